"""What every base promises, ours and others', through the same door."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

from headstart.errors import ConfigError
from headstart.models.base import Base, freeze, layer_groups
from headstart.models.heads import ClassHead, Model, first, last_real, mean_real
from headstart.models.huggingface import KINDS, HuggingFaceBase
from headstart.models.transformer import Transformer
from headstart.models.universal import UniversalEncoder
from headstart.shapes import HuggingFaceConfig, TransformerConfig, UniversalConfig
from headstart.text.batch import pad

LOOSE = {"atol": 1e-5, "rtol": 1e-4}
BASES = {
    "gpt": {"preset": "gpt"},
    "bert": {"preset": "bert"},
    "classic": {"preset": "classic"},
    "classic two-way": {"preset": "classic", "causal": False},
    "gpt without positions": {"preset": "gpt", "positions": "none"},
}


UNIVERSAL = UniversalConfig(vocab=53, context=24, width=16, branch=8, hidden=12, norm_eps=1e-6)


@pytest.fixture(params=[*BASES, *KINDS, "universal"])
def base(
    request: pytest.FixtureRequest,
    tiny: Callable[..., TransformerConfig],
    elsewhere: Callable[..., HuggingFaceConfig],
) -> Base:
    torch.manual_seed(0)
    if request.param == "universal":
        return UniversalEncoder(UNIVERSAL).eval()
    if request.param in KINDS:
        return HuggingFaceBase(elsewhere(request.param)).eval()
    return Transformer(tiny(**BASES[request.param])).eval()


def test_padding_changes_no_real_token(base: Base) -> None:
    alone = base(*pad([[7, 8, 9]])).last
    beside_a_longer_text = base(*pad([[7, 8, 9], [1, 2, 3, 4, 5, 6]])).last
    assert_close(beside_a_longer_text[0, :3], alone[0], **LOOSE)


def test_only_a_causal_model_is_blind_to_the_future(base: Base) -> None:
    one, other = base(*pad([[1, 2, 3, 4]])).last, base(*pad([[1, 2, 3, 9]])).last
    assert torch.allclose(one[:, :3], other[:, :3], **LOOSE) == base.causal


def test_looking_gives_the_same_states_and_weights_that_sum_to_one(base: Base) -> None:
    ids, mask = pad([[7, 8, 9, 4], [1, 2]])
    fast, slow = base(ids, mask), base(ids, mask, look=True)
    assert_close(slow.last[mask], fast.last[mask], **LOOSE)
    assert len(slow.attention) == (len(base.blocks) if base.attends else 0)
    assert len(slow.layers) == len(base.blocks) + 1
    assert_close(base.finish(slow.layers[-1]), slow.last, **LOOSE)
    for weights in slow.attention:
        assert_close(weights.sum(-1)[mask[:, None].expand(-1, 2, -1)].mean(), torch.tensor(1.0), **LOOSE)
        above = weights.triu(1).abs().max()
        assert (above == 0) == base.causal


def test_reading_token_by_token_gives_the_states_of_reading_at_once(base: Base) -> None:
    if not base.causal:
        with pytest.raises((AssertionError, NotImplementedError), match="bidirectional"):
            base.new_cache(1)
        return
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
    whole = base(ids, torch.ones_like(ids, dtype=torch.bool)).last
    cache = base.new_cache(2)
    parts = [base.step(piece, cache).last for piece in (ids[:, :3], ids[:, 3:4], ids[:, 4:7], ids[:, 7:])]
    assert_close(torch.cat(parts, dim=1), whole, **LOOSE)
    assert cache.length == 8


def test_layer_groups_hold_every_parameter_once_in_order(base: Base) -> None:
    groups = layer_groups(base)
    grouped = [id(p) for _, parameters in groups for p in parameters]
    assert sorted(grouped) == sorted(id(p) for p in base.parameters())
    names = [name for name, _ in groups]
    assert names[:3] == ["embedding", "layer 1", "layer 2"]
    after = [parameter for _, parameters in groups[3:] for parameter in parameters]
    assert {id(p) for p in after} <= {
        id(p) for m in base.modules() if "Norm" in type(m).__name__ for p in m.parameters()
    }


@pytest.mark.parametrize(
    ("scope", "learning"), [("full", {0, 1, 2}), ("last:1", {2}), ("last:2", {1, 2}), ("head", set())]
)
def test_freeze_lets_only_its_scope_learn(base: Base, scope: str, learning: set[int]) -> None:
    freeze(base, scope)
    for i, (_, parameters) in enumerate(layer_groups(base)[:3]):
        assert {p.requires_grad for p in parameters} == {i in learning}


def test_freezing_more_layers_than_there_are_is_refused(base: Base) -> None:
    with pytest.raises(ConfigError, match="has 2 layers"):
        freeze(base, "last:3")


def test_the_classifier_reads_the_last_real_token(base: Base) -> None:
    model = Model(base, ClassHead(base.width, 3, last_real)).eval()
    alone = model(*pad([[7, 8, 9]]))
    assert_close(model(*pad([[7, 8, 9], [1, 2, 3, 4, 5, 6]]))[:1], alone, **LOOSE)
    assert_close(alone, model.head.logits(base(*pad([[7, 8, 9]])).last[:, 2]), **LOOSE)


def test_pooling_ignores_padding() -> None:
    hidden = torch.arange(12.0).reshape(2, 3, 2)
    _, mask = pad([[1, 1, 1], [1]])
    assert last_real(hidden, mask).tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert first(hidden, mask).tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert mean_real(hidden, mask).tolist() == [[2.0, 3.0], [6.0, 7.0]]


def test_a_frozen_base_has_no_dropout_while_its_head_learns(base: Base) -> None:
    model = Model(base, ClassHead(base.width, 2, mean_real, dropout=0.5))
    assert model.train().base.training
    freeze(base, "head")
    assert not model.train().base.training
    assert model.head.training


def test_a_text_may_fill_the_whole_context(base: Base) -> None:
    ids, mask = pad([[7] * base.max_len])
    assert base.max_len == 24
    assert base(ids, mask).last.isfinite().all()
