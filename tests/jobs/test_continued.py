"""A classifier trained further: known labels keep their rows of the head, new labels extend it, the receipt has both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig
from headstart.errors import ConfigError
from headstart.jobs.finetune import finetune
from headstart.jobs.job import prepare
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.use.estimator import TextClassifier

WORDS = {"bad": "awful", "good": "lovely", "odd": "strange", "so-so": "middling"}


def table(path: Path, labels: tuple[str, ...], rows: int = 60) -> Path:
    lines = [f"film {i} was {WORDS[labels[i % len(labels)]]} to me,{labels[i % len(labels)]}" for i in range(rows)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def config(base: str, data: Path, **settings: Any) -> FinetuneConfig:
    train = {"lr": 3e-3, "batch_size": 8, "threads": 1, "tensorboard": False, **settings.pop("train", {})}
    return parse(FinetuneConfig, {"base": base, "epochs": 4, "data": {"train": str(data)}, "train": train, **settings})


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the labels bad and odd, by characters, so that it can read the words of the others."""
    folder = tmp_path_factory.mktemp("classifier")
    first = table(folder / "first.csv", ("bad", "odd"))
    shape = {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 40}
    settings = {"init": "scratch", "tokenizer": {"kind": "char"}, "model": shape, "pool": "mean"}
    finetune(config("gpt", first, **settings), folder / "run")
    return folder / "run"


def test_known_labels_keep_their_rows_and_new_ones_extend_the_head(classifier, tmp_path):
    more = table(tmp_path / "more.csv", ("bad", "good", "so-so"))
    job = prepare(config(str(classifier), more))
    assert job.data.labels == ["bad", "odd", "good", "so-so"]  # odd has no rows here, and stays
    assert job.cfg.pool == "mean"
    before, head = weights(read_model(classifier / "model").model.head), weights(job.model.head)
    assert torch.equal(head["linear.weight"][:2], before["linear.weight"])
    assert torch.equal(head["linear.bias"][:2], before["linear.bias"])
    assert not head["linear.bias"][2:].any()
    assert head["linear.weight"][2:].abs().max() < 0.2
    assert len(set(job.text.targets)) == 3
    receipt = job.receipt()
    assert receipt["labels_kept"] == ["bad", "odd"]
    assert receipt["labels_added"] == ["good", "so-so"]
    assert receipt["extended"] == ["head.linear.bias", "head.linear.weight"]
    assert receipt["new"] == receipt["unused"] == []
    assert all(name.startswith("base.") for name in receipt["copied"])
    notes = list(job.notes())
    assert any("labels kept: bad, odd; new labels: good, so-so" in note for note in notes)
    assert any("no training rows for odd" in note for note in notes)
    assert not any("random weights" in note for note in notes)


def test_without_new_labels_the_head_is_copied_whole(classifier, tmp_path):
    job = prepare(config(str(classifier), table(tmp_path / "more.csv", ("bad", "odd"))))
    assert job.receipt()["extended"] == job.receipt()["labels_added"] == job.receipt()["new"] == []
    assert {"head.linear.bias", "head.linear.weight"} <= set(job.receipt()["copied"])
    source = weights(read_model(classifier / "model").model)
    assert all(torch.equal(tensor, source[name]) for name, tensor in weights(job.model).items())


def test_labels_that_settings_give_mean_nothing_without_a_classifier(tmp_path):
    rows = table(tmp_path / "rows.csv", ("bad", "odd"))
    shape = {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 40}
    job = prepare(config("gpt", rows, init="scratch", model=shape, head_labels=["ghost"]))
    assert job.data.labels == ["bad", "odd"]
    assert job.receipt()["labels_kept"] == job.receipt()["labels_added"] == []


def test_it_learns_the_new_labels_and_resumes_as_if_it_had_not_stopped(classifier, tmp_path):
    more = table(tmp_path / "more.csv", ("bad", "good", "odd"))
    result = finetune(config(str(classifier), more, epochs=8), tmp_path / "more")
    assert result["valid"]["accuracy"] > 0.8
    assert read_model(tmp_path / "more" / "model").head.labels == ("bad", "odd", "good")
    assert Run.open(tmp_path / "more").read_json("receipt.json")["labels_added"] == ["good"]
    words = ["predict", str(tmp_path / "more"), "film 3 was lovely to me", "film 4 was strange to me", "--json"]
    assert [r["label"] for r in json.loads(CliRunner().invoke(app, words).stdout)] == ["good", "odd"]

    class Stop(Exception):
        pass

    from headstart.runs.watch import Watch

    class Stops(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done > 20:
                raise Stop

    with pytest.raises(Stop):
        finetune(config(str(classifier), more, epochs=8), tmp_path / "cut", watch=Stops())
    finetune(config(str(classifier), more, epochs=8), tmp_path / "cut", resume=True)
    one, other = (weights(read_model(tmp_path / name / "model").model) for name in ("more", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pool": "last"}, "is a classifier with the pooling mean. Leave out --pool"),
        ({"objective": "contrastive"}, "Its head can be trained further without a prompt"),
        ({"prompt": "{text} it was"}, "Its head can be trained further without a prompt"),
        ({"init": "scratch"}, "is a classifier already, and has seen its own rows"),
    ],
)
def test_what_does_not_go_with_a_classifier_is_refused(settings, says, classifier, tmp_path):
    with pytest.raises(ConfigError, match=says):
        prepare(config(str(classifier), table(tmp_path / "more.csv", ("bad", "odd")), **settings))


def test_a_study_and_pretraining_refuse_a_classifier_as_before(classifier, tmp_path):
    rows = table(tmp_path / "more.csv", ("bad", "odd"))
    for words in (["compare", str(rows)], ["pretrain", str(rows)]):
        done = CliRunner().invoke(
            app, [*words, "--base", str(classifier), "--out", str(tmp_path / words[0]), "--quiet"]
        )
        assert done.exit_code == 4, done.output
        assert "is a classifier already, and has seen its own rows" in done.stderr


def test_the_estimator_has_the_labels_of_both(classifier):
    X = [f"film {i} was {word} to me" for i in range(24) for word in ("awful", "lovely")]
    model = TextClassifier(str(classifier), epochs=1, settings={"train": {"threads": 1}}).fit(X, ["bad", "good"] * 24)
    assert model.classes_.tolist() == ["bad", "good", "odd"]
    assert model.predict_proba(X[:2]).shape == (2, 3)
