"""Before and after: what is frozen has not moved at all, what is tuned has, and a planted change is measured as planted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ModelError
from headstart.models.base import layer_groups
from headstart.models.transformer import Transformer
from headstart.shapes import TransformerConfig
from headstart.show.change import Change
from headstart.use.change import cka, compare_states, weight_changes
from headstart.use.inspect import Inspector

TEXTS = ["film 8 was awful from end to end", "film 7 was lovely from end to end"]


def change(runs: dict[str, Path], run: str) -> Change:
    found = Inspector.load(runs[run]).inspect_change(Inspector.load(runs["lm"]), TEXTS)["change"]
    assert isinstance(found, Change)
    return found


def test_a_frozen_base_shows_exactly_zero_movement(runs: dict[str, Path]) -> None:
    found = change(runs, "frozen")
    assert [layer.name for layer in found.layers] == ["embedding", "layer 1", "layer 2", "final"]
    assert {layer.weights for layer in found.layers} == {0.0}
    assert {layer.attention for layer in found.layers} == {None, 0.0}
    assert all(layer.similarity in (None, pytest.approx(1.0)) for layer in found.layers)
    assert max(token.divergence for token in found.tokens) < 1e-12
    assert all(token.before == token.after for token in found.tokens)
    assert "nothing moved" in str(found)


def test_a_tuned_base_has_moved_everywhere(runs: dict[str, Path]) -> None:
    found = change(runs, "full")
    assert all(layer.weights > 1e-4 for layer in found.layers)
    assert all(layer.attention > 1e-5 for layer in found.layers if layer.attention is not None)
    assert found.layers[2].similarity < 0.9999
    assert max(token.divergence for token in found.tokens) > 1e-4
    assert found.places == 18


def test_a_planted_change_is_measured_as_planted(tiny: Callable[..., TransformerConfig]) -> None:
    torch.manual_seed(0)
    before = Transformer(tiny()).eval()
    after = copy.deepcopy(before)
    with torch.no_grad():
        for parameter in dict(layer_groups(after))["layer 2"]:
            parameter.mul_(1.25)
    assert weight_changes(before, after) == {
        "embedding": 0.0, "layer 1": 0.0, "layer 2": pytest.approx(0.25), "final": 0.0
    }  # fmt: skip
    similarity, attention = compare_states(before, after, [[1, 2, 3, 4], [5, 6]])
    assert (similarity[:2], attention[0]) == ([pytest.approx(1.0)] * 2, 0.0)
    assert similarity[2] < 1 - 1e-6
    assert attention[1] > 0


def test_all_attention_elsewhere_is_a_movement_of_one(tiny: Callable[..., TransformerConfig]) -> None:
    """Positions so large that every token looks at the first one, or at itself."""
    first, other = (Transformer(tiny(layers=1, heads=1)).eval() for _ in range(2))
    with torch.no_grad():
        for base, sign in ((first, 1.0), (other, -1.0)):
            for parameter in base.parameters():
                parameter.zero_()
            base.embedding_norm = torch.nn.Identity()
            base.layers[0].attention_norm = torch.nn.Identity()
            base.positions.weight[:, 0] = torch.arange(24.0)
            base.positions.weight[:, 1] = 1.0
            base.layers[0].attention.qkv.weight[0, 1] = -1000.0 * sign  # the query is the same everywhere
            base.layers[0].attention.qkv.weight[16, 0] = 1.0  # the key is the position
    _, attention = compare_states(first, other, [[1, 2, 3, 4]])
    assert attention == [pytest.approx(3 / 4)]  # the first token can look at nothing else


def test_cka_is_one_for_a_rotation_and_low_for_noise() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    rotation, _ = torch.linalg.qr(torch.randn(8, 8))
    assert cka(x, 5 * x @ rotation + 3) == pytest.approx(1.0)
    assert cka(x, torch.randn(400, 8)) < 0.1


def test_models_that_share_no_base_are_refused(runs: dict[str, Path], tiny: Callable[..., TransformerConfig]) -> None:
    with pytest.raises(ModelError, match="differ in shape"):
        weight_changes(Transformer(tiny(layers=2)), Transformer(tiny(layers=1)))
    lm, full = Inspector.load(runs["lm"]), Inspector.load(runs["full"])
    lm.tokenizer.backend.add_tokens(["another"])
    with pytest.raises(ModelError, match="different tokenizers"):
        full.inspect_change(lm, TEXTS)


def test_the_verb_shows_what_moved(runs: dict[str, Path], tmp_path: Path) -> None:
    argv = ["inspect", str(runs["full"]), TEXTS[0], "--before", str(runs["lm"]), "--show", "labels"]
    done = CliRunner().invoke(app, [*argv, "--html", str(tmp_path / "a.html"), "--svg", str(tmp_path / "a.svg")])
    assert done.exit_code == 0, done.output
    assert "embedding, layer 1, layer 2, final moved" in done.stdout
    assert "Before and after" in (tmp_path / "a.html").read_text("utf-8")
    told = json.loads(CliRunner().invoke(app, [*argv, "--json"]).stdout)[1]["change"]
    assert len(told["layers"]) == 4
    assert len(told["tokens"]) == 9
