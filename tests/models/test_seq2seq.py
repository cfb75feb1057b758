"""What every encoder and decoder promises, the transformer against torch's, and why the decoder has a mask."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from headstart.bases.translator import build_seq2seq
from headstart.models.block import Attention, AttentionMask
from headstart.models.decode import TranslationStep, search
from headstart.models.seq2seq import DecoderBlock, Seq2Seq, TransformerSeq2Seq
from headstart.shapes import Seq2SeqConfig
from headstart.text.batch import IGNORE, pad

TIGHT = {"atol": 2e-5, "rtol": 1e-4}
MODELS: dict[str, dict[str, Any]] = {
    "gru": {"kind": "gru"},
    "lstm": {"kind": "lstm", "layers": 2},
    "gru-additive": {"kind": "gru-additive"},
    "lstm-additive both ways": {"kind": "lstm-additive", "two_way": True, "layers": 2},
    "written": {"kind": "gru-additive", "cell": "written"},
    "reset-before": {"kind": "gru", "cell": "reset-before"},
    "attention": {"kind": "attention"},
    "transformer": {"kind": "transformer"},
}
LOOKING = [name for name, settings in MODELS.items() if settings["kind"] not in ("gru", "lstm")]
SOURCE, MASK = pad([[7, 8, 9, 10, 5], [1, 2, 3]])
TARGET = torch.tensor([[2, 4, 6, 8], [2, 11, 3, 9]])


def made(name: str, **settings: Any) -> Seq2Seq:
    torch.manual_seed(0)
    shape = {"vocab": 12, "target_vocab": 14, "hidden": 16, "dropout": 0.0}
    model = build_seq2seq(Seq2SeqConfig.model_validate({**shape, **MODELS[name], **settings}))
    with torch.no_grad():  # norms and biases away from 0 and 1, so that any slip shows
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.eval()


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return made(request.param)


def test_step_by_step_gives_the_logits_of_teacher_forcing(model: Seq2Seq) -> None:
    logits, state = model(SOURCE, MASK, TARGET), model.encode(SOURCE, MASK)
    for t in range(TARGET.size(1)):
        now, state = model.step(TARGET[:, t : t + 1], state)
        assert_close(now, logits[:, t], **TIGHT)


def test_a_step_leaves_the_state_it_was_given(model: Seq2Seq) -> None:
    _, state = model.step(TARGET[:, :1], model.encode(SOURCE, MASK))
    before = {name: t.clone() for name, t in state.items()}
    model.step(torch.full((2, 1), 5), state)
    assert state.keys() == before.keys()
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_padding_of_the_source_changes_nothing(model: Seq2Seq) -> None:
    alone = model(SOURCE[1:, :3], MASK[1:, :3], TARGET[1:])
    assert_close(model(SOURCE, MASK, TARGET)[1:], alone, **TIGHT)


def test_a_target_token_is_not_seen_before_its_place(model: Seq2Seq) -> None:
    other = TARGET.clone()
    other[:, 2:] = 1
    one, two = model(SOURCE, MASK, TARGET), model(SOURCE, MASK, other)
    assert_close(one[:, :2], two[:, :2], **TIGHT)
    assert not torch.allclose(one[:, 2:], two[:, 2:], **TIGHT)


def test_the_loss_is_that_of_the_logits(model: Seq2Seq) -> None:
    target = torch.tensor([[4, 6, 8, 3], [11, 3, IGNORE, IGNORE]])
    total, count = model.loss(SOURCE, MASK, TARGET, target)
    expected = F.cross_entropy(model(SOURCE, MASK, TARGET).mT, target, ignore_index=IGNORE, reduction="sum")
    assert count == 6
    assert_close(total, expected, **TIGHT)


@pytest.mark.parametrize("name", LOOKING)
def test_looking_gives_weights_over_real_tokens_and_changes_no_number(name: str) -> None:
    model = made(name)
    maps = model.look(SOURCE, MASK, TARGET)
    for weights in [*maps.encoder, *maps.cross]:
        assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert weights[1, ..., 3:].max() == 0
    for weights in maps.decoder:
        assert weights.triu(1).max() == 0
    layers = 3 if isinstance(model, TransformerSeq2Seq) else 1
    assert len(maps.cross) == layers
    slow = model.decode(TARGET, model.encode(SOURCE, MASK, maps), maps)
    assert_close(slow, model.decode(TARGET, model.encode(SOURCE, MASK)), **TIGHT)


def test_only_without_positions_is_the_source_a_bag_of_tokens() -> None:
    turned, mask = SOURCE[:1].flip(1), MASK[:1]
    for name, is_bag in (("attention", True), ("transformer", False), ("gru-additive", False)):
        model = made(name)
        same = torch.allclose(model(turned, mask, TARGET[:1]), model(SOURCE[:1], mask, TARGET[:1]), **TIGHT)
        assert same == is_bag, name


def test_the_transformer_is_torch_transformer() -> None:
    ours = made("transformer")
    assert isinstance(ours, TransformerSeq2Seq)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it regrets that it cannot use nested tensors
        theirs = nn.Transformer(16, 4, 3, 3, 64, 0.0, batch_first=True, norm_first=True).eval()
    for mine, yours in zip(ours.encoder.blocks, theirs.encoder.layers, strict=True):
        yours.load_state_dict(_their_names(mine))
    for mine, yours in zip(ours.layers, theirs.decoder.layers, strict=True):
        yours.load_state_dict(_their_names(mine))
    theirs.encoder.norm.load_state_dict(ours.encoder.norm.state_dict())
    theirs.decoder.norm.load_state_dict(ours.norm.state_dict())
    source = ours.encoder.tokens(SOURCE) * 4 + ours.positions[: SOURCE.size(1)]
    target = ours.target(TARGET) * 4 + ours.positions[: TARGET.size(1)]
    square = nn.Transformer.generate_square_subsequent_mask(TARGET.size(1), dtype=torch.bool)
    expected = theirs(
        source, target, tgt_mask=square, src_key_padding_mask=~MASK, memory_key_padding_mask=~MASK, tgt_is_causal=True
    )
    assert_close(ours.decode(TARGET, ours.encode(SOURCE, MASK)), expected, **TIGHT)


def _their_names(block: nn.Module) -> dict[str, Tensor]:
    parts: dict[str, Any] = {
        "self_attn.in_proj_": block.attention.qkv, "self_attn.out_proj.": block.attention.out,
        "linear1.": block.up, "linear2.": block.down, "norm1.": block.attention_norm,
    }  # fmt: skip
    if not isinstance(block, DecoderBlock):
        parts["norm2."] = block.ff_norm
        return {f"{name}{kind}": getattr(part, kind) for name, part in parts.items() for kind in ("weight", "bias")}
    parts |= {"multihead_attn.out_proj.": block.cross.out, "norm2.": block.cross_norm, "norm3.": block.ff_norm}
    state = {f"{name}{kind}": getattr(part, kind) for name, part in parts.items() for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        both = [getattr(block.cross.query, kind), getattr(block.cross.key_value, kind)]
        state[f"multihead_attn.in_proj_{kind}"] = torch.cat(both)
    return state


@pytest.mark.parametrize("causal", [False, True])
def test_one_head_is_scaled_dot_product_attention_as_its_equations_say(causal: bool) -> None:
    torch.manual_seed(0)
    attention = Attention(8, 1, 0.0).eval()
    with torch.no_grad():
        attention.out.weight.copy_(torch.eye(8))
        attention.out.bias.zero_()
    x = torch.randn(2, 5, 8)
    q, k, v = attention.qkv(x).chunk(3, dim=-1)
    scores = torch.bmm(k, q.transpose(2, 1)) * 8**-0.5  # (B, keys, queries)
    if causal:
        scores = scores + torch.tril(torch.ones_like(scores) * -1e7, diagonal=-1)  # a key after its query
    weights = scores.softmax(dim=1)
    assert_close(attention(x, AttentionMask(causal=causal))[0], torch.bmm(weights.transpose(2, 1), v), **TIGHT)


def test_without_the_causal_mask_the_loss_collapses_and_translation_fails() -> None:
    """The target is the source backwards, each token in one of two shapes by the toss of a coin.

    No model that sees only what stands before a token can know the toss, so none can lose less than its entropy. Without
    the mask a model reads the answer instead of learning the task.
    """
    floor = 4 * math.log(2) / 5  # four tosses and an end that is sure
    (honest, right), (peeking, wrong) = _trained(causal=True), _trained(causal=False)
    assert floor < honest < floor + 0.1
    assert right > 0.8
    assert peeking < 0.05
    assert wrong < 0.05


def _trained(causal: bool) -> tuple[float, float]:
    """The last losses in training, and the part of new sources that come out right."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    shape = {"vocab": 10, "target_vocab": 20, "hidden": 32, "layers": 1, "heads": 2, "dropout": 0.0}
    model = build_seq2seq(Seq2SeqConfig.model_validate({**shape, "causal": causal}))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, fused=True)

    def batch(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        source = torch.randint(4, 10, (count, 4), generator=generator)
        toss = torch.randint(0, 2, (count, 4), generator=generator)
        target = torch.cat([2 * source.flip(1) + toss, torch.full((count, 1), 3)], dim=1)
        given = torch.cat([torch.full((count, 1), 2), target[:, :-1]], dim=1)
        return source, torch.ones_like(source, dtype=torch.bool), given, target

    losses = []
    for _ in range(120):
        total, count = model.loss(*batch(32))
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach()) / count)
    source, mask, *_ = batch(64)
    with torch.inference_mode():
        step = TranslationStep(model.eval(), model.encode(source, mask))
    found = search(step, torch.full((64, 1), 2), 6, end=3)
    right = [[i // 2 for i in best[0].ids] == row for best, row in zip(found, source.flip(1).tolist(), strict=True)]
    return sum(losses[-10:]) / 10, sum(right) / 64


def test_attention_without_positions_may_be_of_an_odd_width() -> None:
    assert made("attention", hidden=33)(SOURCE, MASK, TARGET).shape == (2, 4, 14)


@pytest.mark.parametrize("setting", [{"heads": 2}, {"positions": True}, {"causal": False}])
def test_what_only_attention_has_is_refused_of_a_recurrent_model(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="kind 'gru' is recurrent"):
        Seq2SeqConfig.model_validate({"kind": "gru", "hidden": 16, "vocab": 12, "target_vocab": 14, **setting})
