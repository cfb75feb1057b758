"""Looking works on models made elsewhere as it does on ours: tokens, attention, layers, evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headstart.config import TokenizerConfig
from headstart.models.huggingface import KINDS
from headstart.runs.model_dir import HeadSpec, Saved, build_model
from headstart.shapes import HuggingFaceConfig
from headstart.show.attention import AttentionMaps
from headstart.show.attribution import Attribution
from headstart.show.probabilities import TokenProbabilities
from headstart.text.tokenizer import Tokenizer
from headstart.use.inspect import Inspector, inspect

TEXT = "She rub the dog."


@pytest.fixture
def tokenizer(sentences: Path) -> Tokenizer:
    return Tokenizer.train(sentences.read_text().splitlines(), TokenizerConfig(kind="word"))


@pytest.mark.parametrize("model_type", KINDS)
def test_a_classifier_on_any_base_shows_complete_evidence(
    model_type: str, tokenizer: Tokenizer, elsewhere: Callable[..., HuggingFaceConfig]
) -> None:
    torch.manual_seed(0)
    cfg, spec = elsewhere(model_type, vocab_size=tokenizer.size), HeadSpec("classify", ("good", "bad"))
    model = build_model(cfg, spec).eval()
    with torch.no_grad():
        model.head.linear.weight.normal_()
    seen = Inspector(Saved(model, tokenizer, cfg, spec), model_type).inspect(TEXT)
    evidence, maps = seen["attribution"], seen["attention"]
    assert isinstance(evidence, Attribution)
    assert isinstance(maps, AttentionMaps)
    assert evidence.complete, evidence.summary
    assert max(map(abs, evidence.evidence)) > 1e-4
    assert (maps.allowed is not None) == model.base.causal
    assert maps.weights.shape[2:] == (len(evidence.tokens),) * 2


def test_a_folder_of_transformers_can_be_looked_into(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "vocab_size": tokenizer.size}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()
    theirs.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer.to_json())
    seen = inspect(tmp_path / "model", TEXT, views=("probabilities", "lens", "attention"))
    plain, maps = seen["probabilities"], seen["attention"]
    assert isinstance(plain, TokenProbabilities)
    assert isinstance(maps, AttentionMaps)
    ids = torch.tensor([[place.id for place in plain.places[:-1]]])
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        expected = theirs(ids, output_attentions=True)
    assert_close(torch.from_numpy(maps.weights), torch.stack(expected.attentions)[:, 0], atol=1e-5, rtol=1e-4)
    right = expected.logits[0, :-1].softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert plain.predicted == pytest.approx(right.tolist(), abs=1e-5)
    assert seen["lens"].right[-1][:-1] == pytest.approx(right.tolist(), abs=1e-5)  # type: ignore[attr-defined]
