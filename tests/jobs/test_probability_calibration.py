"""Calibration after training: the labels stay, every way to use a model has it, and where it cannot be had it is stated."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig
from headstart.jobs.finetune import finetune
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.tasks.calibration import before_temperature
from headstart.use.predict import LoadedClassifier

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 rows of which a fifth have the wrong label: whoever learns them by heart is too sure."""
    chance, rows = random.Random(0), []
    for i in range(240):
        good = i % 2 == 0
        words = chance.choices(GOOD if good else BAD, k=2)
        label = good if chance.random() < 0.8 else not good
        rows.append(f"film {i} was {' and '.join(words)},{'good' if label else 'bad'}")
    path = tmp_path_factory.mktemp("noisy") / "rows.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def trained(rows: Path, out: Path, watch: Watch | None = None, **settings: Any) -> dict[str, Any]:
    given = {
        "base": "gpt", "init": "scratch", "epochs": 8, "tokenizer": {"kind": "word"},
        "model": {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 16},
        "data": {"train": str(rows)}, "train": {"lr": 3e-3, "batch_size": 8, "threads": 1, "tensorboard": False, "steps": 200, "eval_every": 200}, **settings,
    }  # fmt: skip
    return finetune(parse(FinetuneConfig, given), out, watch=watch)


@pytest.fixture(scope="module")
def pair(noisy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same run with and without calibration."""
    folder = tmp_path_factory.mktemp("pair")
    trained(noisy, folder / "scaled")
    trained(noisy, folder / "plain", temperature_scaling=False)
    return folder / "scaled", folder / "plain"


def result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


def test_the_labels_and_losses_stay_and_the_probabilities_are_divided_by_the_temperature(pair):
    scaled, plain = pair
    temperature = result(scaled)["calibration"]["temperature"]
    assert temperature == read_model(scaled / "model").head.temperature
    assert abs(temperature - 1) > 0.05
    assert read_model(plain / "model").head.temperature is None
    assert result(scaled)["valid"] == result(plain)["valid"]
    assert result(scaled)["test"] == result(plain)["test"]
    texts = [f"film {i} was lovely and {word}" for i in range(20) for word in ("awful", "warm", "dull", "stupid")]
    after, before = (np.array(LoadedClassifier.load(run).probabilities(texts)) for run in pair)
    assert (after.argmax(1) == before.argmax(1)).all()
    assert before_temperature(after, temperature) == pytest.approx(before, abs=1e-5)


def test_the_errors_before_and_after_are_recorded(pair):
    scaled, plain = (result(run)["calibration"] for run in pair)
    assert scaled["rows"] >= 30
    assert scaled["reason"] is None
    assert scaled["valid"]["ece_after"] < scaled["valid"]["ece_before"]
    assert plain["temperature"] is plain["test"] is None
    assert plain["reason"] == "temperature_scaling = false"
    from headstart.targets.class_scores import calibration_error

    rows = list(Run.open(pair[1]).read_lines("predictions.jsonl"))
    labels = list(rows[0]["probabilities"])
    found = np.array([[row["probabilities"][label] for label in labels] for row in rows])
    before = calibration_error(found, [labels.index(row["label"]) for row in rows])
    assert scaled["test"]["ece_before"] == pytest.approx(before, abs=1e-5)


def test_without_validation_rows_nothing_is_done_and_that_is_stated(noisy, tmp_path):
    class Notes(Watch):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def note(self, text: str) -> None:
            self.seen.append(text)

    watch = Notes()
    told = trained(noisy, tmp_path / "few", watch, data={"train": str(noisy), "labels": 40})["calibration"]
    assert told["temperature"] is None
    assert told["reason"] == "0 validation rows; 30 are needed"
    assert "Note: probabilities will not be calibrated: 0 validation rows; 30 are needed." in watch.seen
    assert "not calibrated (0 validation rows" in (tmp_path / "few" / "model" / "README.md").read_text()
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "few"), "a film", "--coverage", "0.9"])
    assert done.exit_code == 5
    assert "had no validation rows, so no coverage can be guaranteed" in done.stderr


def test_scaling_is_part_of_the_onnx_file(pair, tmp_path):
    pytest.importorskip("onnxruntime")
    from headstart.use.onnx import OnnxClassifier
    from headstart.use.onnx_export import export_onnx

    export_onnx(pair[0], tmp_path / "model.onnx")
    texts = ["film 1 was lovely and awful", "film 2 was dull"]
    ours, theirs = (np.array(m.probabilities(texts)) for m in (LoadedClassifier.load(pair[0]), OnnxClassifier.load(tmp_path / "model.onnx")))  # fmt: skip
    assert theirs == pytest.approx(ours, abs=1e-5)
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model.onnx"), "a film", "--coverage", "0.9"])
    assert done.exit_code == 5
    assert "which an .onnx file does not hold. Give the run" in done.stderr


def test_label_sets_follow_the_scores_of_the_validation_rows(pair):
    scores = json.loads((pair[0] / "conformal.json").read_text())["scores"]
    assert scores == sorted(scores)
    assert len(scores) == result(pair[0])["valid"]["rows"]
    words = ["predict", str(pair[0]), "film 1 was lovely and awful", "film 2 was dull", "--json"]
    largest = np.sort(scores)[int(np.ceil((len(scores) + 1) * 0.9)) - 1]
    done = CliRunner().invoke(app, [*words, "--coverage", "0.9"])
    assert done.exit_code == 0, done.stderr
    for record in json.loads(done.stdout):
        assert record["label_set"] == [label for label, p in record["probabilities"].items() if 1 - p <= largest]
    done = CliRunner().invoke(app, [*words, "--coverage", "0.999"])
    assert done.exit_code == 5
    assert f"--coverage 0.999 needs 999 validation rows or more; {pair[0]} had {len(scores)} rows" in done.stderr
    assert CliRunner().invoke(app, [*words, "--coverage", "1"]).exit_code == 2


def test_a_model_abstains_where_it_is_not_sure_enough(pair, tmp_path, noisy):
    words = ["predict", str(pair[0]), "film 1 was lovely and awful"]
    sure = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)[0]
    best = max(sure["probabilities"].values())
    for bound, label in ((best - 0.001, sure["label"]), (best + 0.001, None)):
        record = json.loads(CliRunner().invoke(app, [*words, "--json", "--abstain-below", str(bound)]).stdout)[0]
        assert record["label"] == label
        assert record["abstained"] == (label is None)
    assert CliRunner().invoke(app, [*words, "--abstain-below", "1"]).stdout.startswith("(abstained)\t")
    out = tmp_path / "out.jsonl"
    asked = [
        "predict",
        str(pair[0]),
        "--file",
        str(noisy),
        "--out",
        str(out),
        "--prefix",
        "said_",
        "--abstain-below",
        "0.7",
    ]
    done = CliRunner().invoke(app, [*asked, "--coverage", "0.8", "--json"])
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["said_label"] is None for row in rows] == [row["said_probability"] < 0.7 for row in rows]
    assert json.loads(done.stdout)["abstained"] == sum(row["said_label"] is None for row in rows)
    assert all(isinstance(row["said_label_set"], list) for row in rows)


def test_a_head_without_a_bias_is_divided_too(noisy, tmp_path):
    """As classifiers of GPT-2 have none."""
    from headstart.jobs.probability_calibration import _divide
    from headstart.models.heads import POOLS, ClassHead

    head = ClassHead(4, 3, POOLS["mean"], bias=False)
    before = head.logits(torch.ones(1, 4))
    _divide(head, 2.0)
    assert torch.equal(head.logits(torch.ones(1, 4)), before / 2)
