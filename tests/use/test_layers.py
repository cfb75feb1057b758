"""Layer by layer: the lens ends where the model does, and a probe finds what was planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError, ModelError
from headstart.models.heads import last_real
from headstart.runs.watch import Watch
from headstart.show.layers import LayerProbes, LogitLens
from headstart.show.probabilities import TokenProbabilities
from headstart.tasks.classify import pooled, rows_of
from headstart.text.read import read_labelled
from headstart.use.inspect import Inspector, inspect
from headstart.use.layers import layer_features, probe_layers

TEXT = "film 7 was lovely from end to end"


def test_the_last_layer_of_the_lens_is_the_model(runs: dict[str, Path]) -> None:
    seen = inspect(runs["lm"], TEXT, views=("lens", "probabilities"))
    lens, plain = seen["lens"], seen["probabilities"]
    assert isinstance(lens, LogitLens)
    assert isinstance(plain, TokenProbabilities)
    assert lens.layers == ["embedding", "layer 1", "layer 2"]
    following = plain.places[1:]
    assert [token for token, _ in lens.guesses[-1]] == [place.top[0] for place in following]
    assert [p for _, p in lens.guesses[-1]] == pytest.approx([plain.belief(p).top[0] for p in following], abs=1e-5)
    assert lens.right[-1][:-1] == pytest.approx([plain.probability(p) for p in following[:-1]], abs=1e-5)
    assert lens.right[-1][-1] is None
    assert lens.guesses[0] != lens.guesses[-1]


def test_the_lens_reads_an_early_layer_through_the_last_norm(runs: dict[str, Path]) -> None:
    inspector = Inspector.load(runs["lm"])
    ids, _ = inspector._read(TEXT)
    row = torch.tensor([ids])
    early = inspector.model.base(row, torch.ones_like(row, dtype=torch.bool), look=True).layers[1]
    with torch.no_grad():
        expected = inspector.model.head.logits(inspector.model.base.norm(early))[0].softmax(-1).max(-1).values
    lens = inspect(runs["lm"], TEXT, views=("lens",))["lens"]
    assert isinstance(lens, LogitLens)
    assert_close(torch.tensor([p for _, p in lens.guesses[1]]), expected, atol=1e-5, rtol=1e-4)


def test_a_masked_model_and_a_classifier_have_no_lens(runs: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="what follows each token"):
        inspect(runs["mlm"], TEXT, views=("lens",))
    with pytest.raises(ConfigError, match="can be shown: labels, attribution, attention"):
        inspect(runs["full"], TEXT, views=("lens",))


def test_the_features_of_the_last_layer_are_what_the_head_reads(runs: dict[str, Path]) -> None:
    inspector = Inspector.load(runs["full"])
    rows, _, _ = rows_of([TEXT, "film 1", "awful"] * 20, inspector.tokenizer, inspector.model.base, "truncate")
    features = layer_features(inspector.model, rows, inspector.tokenizer.pad, last_real)
    assert features.shape == (3, 60, 16)
    expected = pooled(inspector.model, rows, inspector.tokenizer.pad)
    with torch.no_grad():
        assert_close(inspector.model.base.finish(features[-1]), expected, atol=1e-5, rtol=1e-4)


def test_a_probe_finds_what_was_planted_in_one_layer() -> None:
    torch.manual_seed(0)
    labels = ["good", "bad"] * 100
    features = torch.randn(3, 200, 64)  # enough to fit noise by heart
    features[1, ::2, 2] += 6.0
    found = probe_layers(features, labels)
    assert [probe.layer for probe in found.probes] == ["embedding", "layer 1", "layer 2"]
    assert found.probes[1].accuracy > 0.9
    assert max(found.probes[0].accuracy, found.probes[2].accuracy) < 0.65
    assert found.probes[1].interval[0] < found.probes[1].accuracy <= found.probes[1].interval[1]
    assert (found.rows, found.commonest) == (200, 0.5)
    with pytest.raises(DataError, match="each with 5 rows"):
        probe_layers(features[:, :6], labels[:6])


def test_rows_show_what_each_layer_knows(runs: dict[str, Path]) -> None:
    rows = read_labelled(runs["reviews.csv"], None, None)
    for run in ("full", "lm", "mlm"):
        found = Inspector.load(runs[run]).inspect_rows(rows, "reviews", ("probes",))["probes"]
        assert isinstance(found, LayerProbes)
        assert len(found.probes) == 3
    tuned = Inspector.load(runs["full"]).inspect_rows(rows, views=("probes",))["probes"]
    assert isinstance(tuned, LayerProbes)
    assert tuned.probes[-1].accuracy > 0.95
    assert tuned.probes[0].accuracy < 0.7  # the last token alone does not tell
    assert "linear probes" in str(tuned)


def test_rows_are_at_most_so_many_of_a_label_for_every_view_and_progress_is_told(runs: dict[str, Path]) -> None:
    rows = read_labelled(runs["reviews.csv"], None, None)
    told: list[str] = []

    class Listening(Watch):
        def start(self, title: str, total: int, done: int = 0) -> None:
            told.append(title)

    seen = Inspector.load(runs["full"]).inspect_rows(rows, "reviews", ("probes",), most=8, watch=Listening())
    found = seen["probes"]
    assert isinstance(found, LayerProbes)
    assert found.rows == 16
    assert seen.notes == (
        f"16 of {len(rows)} rows are looked at, the first 8 of each label; --rows (in Python, most) takes more.",
    )
    assert told == ["probes of 3 layers on 16 rows"]
    whole = Inspector.load(runs["full"]).inspect_rows(rows, "reviews", ("probes",), most=len(rows))
    assert not whole.notes
    few = Inspector.load(runs["full"]).inspect_rows(rows, "reviews", ("probes",), most=2)["probes"]
    assert isinstance(few, LayerProbes)
    assert few.rows == 10, "a probe has five folds"


def test_the_verb_compares_with_before_on_the_same_rows(runs: dict[str, Path]) -> None:
    argv = ["inspect", str(runs["full"]), "--data", str(runs["reviews.csv"]), "--rows", "6", "--json"]
    done = CliRunner().invoke(app, [*argv, "--before", str(runs["lm"])])
    assert done.exit_code == 0, done.output
    rows, change = json.loads(done.stdout)
    assert rows["probes"]["rows"] == 12
    assert change["change"]["texts"] == 12
