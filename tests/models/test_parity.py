"""The same weights give the same numbers in torch's and Hugging Face's own models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headstart.models.heads import LanguageHead, Model
from headstart.models.layout import from_disk, to_disk
from headstart.models.transformer import Transformer, sinusoids
from headstart.runs.checkpoint import load_weights, weights
from headstart.shapes import TransformerConfig
from headstart.text.batch import pad

transformers = pytest.importorskip("transformers")
TIGHT = {"atol": 2e-5, "rtol": 1e-4}
ROWS = [[7, 8, 9, 10, 11], [1, 2, 3], [50, 4, 50, 4, 50, 4]]


def language_model(cfg: TransformerConfig) -> Model:
    torch.manual_seed(0)
    base = Transformer(cfg)
    model = Model(base, LanguageHead(cfg, base.tokens))
    with torch.no_grad():  # biases and norms away from 0 and 1, and activations large, so that any slip shows
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model.eval()


def test_classic_is_torch_transformer_encoder(tiny: Callable[..., TransformerConfig]) -> None:
    cfg = tiny("classic")
    ours = language_model(cfg).base
    layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, cfg.ff, cfg.dropout, batch_first=True)
    theirs = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False).eval()
    for mine, yours in zip(ours.blocks, theirs.layers, strict=True):
        pairs = {
            "self_attn.in_proj_": mine.attention.qkv,
            "self_attn.out_proj.": mine.attention.out,
            "linear1.": mine.up,
            "linear2.": mine.down,
            "norm1.": mine.attention_norm,
            "norm2.": mine.ff_norm,
        }
        yours.load_state_dict(
            {f"{name}{kind}": getattr(m, kind) for name, m in pairs.items() for kind in ("weight", "bias")}
        )
    ids, mask = pad(ROWS)
    embedded = ours.tokens(ids) * cfg.width**0.5 + sinusoids(cfg.context, cfg.width)[: ids.size(1)]
    square = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
    expected = theirs(embedded, mask=square, is_causal=True)
    assert_close(ours(ids, mask).last[mask], expected[mask], **TIGHT)


def hugging_face(cfg: TransformerConfig) -> Any:
    if cfg.preset == "gpt":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=cfg.vocab, n_positions=cfg.context, n_embd=cfg.width, n_layer=cfg.layers, n_head=cfg.heads,
                n_inner=cfg.ff, tie_word_embeddings=cfg.tied,
            )
        )  # fmt: skip
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=cfg.vocab, hidden_size=cfg.width, num_hidden_layers=cfg.layers, num_attention_heads=cfg.heads,
            intermediate_size=cfg.ff, max_position_embeddings=cfg.context,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("preset", "settings"), [("gpt", {}), ("gpt", {"tied": False}), ("bert", {})])
def test_our_weights_give_the_same_logits_in_transformers(
    tiny: Callable[..., TransformerConfig], preset: str, settings: dict[str, Any]
) -> None:
    cfg = tiny(preset, **settings)
    ours, theirs = language_model(cfg), hugging_face(cfg).eval()
    unexpected = theirs.load_state_dict(to_disk(weights(ours), cfg), strict=False).unexpected_keys
    assert unexpected == []
    theirs.tie_weights()
    ids, mask = pad(ROWS)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert_close(ours(ids, mask)[mask], expected[mask], **TIGHT)


@pytest.mark.parametrize("preset", ["gpt", "bert"])
def test_weights_of_transformers_give_the_same_logits_in_ours(
    tiny: Callable[..., TransformerConfig], preset: str
) -> None:
    cfg = tiny(preset)
    torch.manual_seed(1)
    theirs, ours = hugging_face(cfg).eval(), language_model(cfg)
    state = dict(theirs.named_parameters())  # tied ones once
    load_weights(ours, from_disk(state, cfg))
    ids, mask = pad(ROWS)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert_close(ours(ids, mask)[mask], expected[mask], **TIGHT)


@pytest.mark.parametrize("preset", ["gpt", "bert", "classic"])
def test_to_disk_and_back_is_exact(tiny: Callable[..., TransformerConfig], preset: str) -> None:
    cfg = tiny(preset)
    state = weights(language_model(cfg))
    back = from_disk(to_disk(state, cfg), cfg)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
