"""Contrastive fine-tuning: the base learns from pairs, the head is fitted to it, and the run is an ordinary classifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from headstart import TextClassifier
from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError
from headstart.jobs.estimate import estimate
from headstart.jobs.finetune import finetune
from headstart.jobs.job import prepare
from headstart.jobs.pretrain import pretrain
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import HuggingFaceConfig
from headstart.targets.classes import Classes
from headstart.tasks.classify import Classify, head_input
from headstart.use.predict import LoadedClassifier

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
TEXTS = [f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]} to the end" for i in range(250)]
RNG = np.random.default_rng(0)
LABELS = ["good" if i % 2 else "bad" for i in range(250)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder that has read the texts."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "text.txt").write_text("\n".join(TEXTS))
    train = {"steps": 20, "batch_size": 16, "lr": 3e-3, "threads": 1, "tensorboard": False}
    settings = {
        "objective": "masked",
        "data": {"paths": [str(folder / "text.txt")], "unit": "line"},
        "tokenizer": {"kind": "word"},
    }
    shape = {"size": "nano", "context": 16}
    pretrain(parse(PretrainConfig, {**settings, "model": shape, "train": train}), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    path.write_text("\n".join(["text,label", *(f"{t},{y}" for t, y in zip(TEXTS, LABELS, strict=True))]) + "\n")
    return path


def settings(base: Path, rows: Path, **changes: Any) -> FinetuneConfig:
    train = {"batch_size": 8, "steps": 12, "eval_every": 6, "log_every": 1, "threads": 1, "tensorboard": False}
    train |= changes.pop("train", {})
    data = {"train": str(rows), **changes.pop("data", {})}
    return parse(
        FinetuneConfig, {"base": str(base), "objective": "contrastive", "data": data, "train": train, **changes}
    )


def pair_rows(job: Any, index: int) -> list[int]:
    """The rows of a batch of pairs: first texts, then second ones."""
    first = job.batches.contents(index)
    return [*first, *job.batches.partners(first, np.random.default_rng([job.batches.seed, 2, index]))]


class Notes(Watch):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture(scope="module")
def run(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    finetune(settings(base, rows), out)
    return Run.open(out)


def test_eight_rows_are_separated_perfectly(base: Path, rows: Path, tmp_path: Path) -> None:
    cfg = settings(base, rows, data={"labels": 8}, train={"steps": 60, "lr": 1e-3})
    result = finetune(cfg, tmp_path / "run")
    assert (result["steps"], result["valid"]) == (60, None)
    losses = [r["loss"] for r in Run.open(tmp_path / "run").read_lines("log.jsonl") if r["split"] == "train"]
    assert losses[-1] < 0.01 < losses[0]
    model = LoadedClassifier.load(tmp_path / "run")
    job = prepare(cfg)
    assert [r["label"] for r in model.predict(job.text.texts)] == [job.data.labels[y] for y in job.text.targets]


def test_embeddings_of_one_class_come_closer_than_those_of_two(base: Path, rows: Path, tmp_path: Path) -> None:
    finetune(settings(base, rows, train={"steps": 60, "lr": 1e-3}), tmp_path / "run")

    def margin(folder: Path) -> float:
        job = prepare(settings(base, rows, pool="mean"))
        saved = read_model(folder / "model")
        job.model.base.load_state_dict(saved.model.base.state_dict())
        vectors = F.normalize(
            torch.cat([job.model.eval().features(b.ids, b.mask) for b in job.measured()]).detach(), dim=1
        )
        target = torch.cat([b.target for b in job.measured()])
        same = target[:, None] == target
        return float((vectors @ vectors.T)[same].mean() - (vectors @ vectors.T)[~same].mean())

    assert margin(tmp_path / "run") > margin(base) + 0.3


def test_the_saved_model_is_an_ordinary_classifier(run: Run, rows: Path, tmp_path: Path) -> None:
    result = run.read_json("result.json")
    texts = [p["text"] for p in run.read_lines("predictions.jsonl")]
    said = LoadedClassifier.load(run.path).predict(texts)
    assert [r["label"] for r in said] == [p["prediction"] for p in run.read_lines("predictions.jsonl")]
    done = CliRunner().invoke(app, ["evaluate", str(run.path), str(rows), "--json"])
    assert json.loads(done.stdout)["accuracy"] > 0.9
    assert result["valid"]["accuracy"] > 0.9
    done = CliRunner().invoke(app, ["export", str(run.path), "--to", "onnx", "--out", str(tmp_path / "a.onnx")])
    assert done.exit_code == 0, done.output


def test_the_head_is_the_regression_on_the_kept_weights_and_the_scores_are_its_own(
    base: Path, rows: Path, tmp_path: Path
) -> None:
    cfg = settings(base, rows, train={"lr": 1e-3}, temperature_scaling=False)
    result = finetune(cfg, tmp_path / "run")
    assert result["best_step"] > 0
    job = prepare(cfg)
    job.model.load_state_dict(read_model(tmp_path / "run" / "model").model.state_dict())
    head = weights(job.model.head)["linear.weight"].clone()
    job.finish_training()
    assert weights(job.model.head)["linear.weight"].equal(head)
    scores = Classify(Classes(("a", "b")), "accuracy").evaluate(job.model.eval(), job.measured())
    assert scores["loss"] == pytest.approx(result["valid"]["loss"], rel=1e-6)


@pytest.mark.parametrize("labels", [0, 20], ids=["validated", "few"])
def test_an_interrupted_run_resumes_to_the_same_bits(labels: int, base: Path, rows: Path, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    class Impatient(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done == 11:
                raise Enough

    cfg = settings(base, rows, data={"labels": labels}, train={"steps": 20, "checkpoint_every": 4})
    finetune(cfg, tmp_path / "whole")
    with pytest.raises(Enough):
        finetune(cfg, tmp_path / "run", watch=Impatient())
    finetune(cfg, tmp_path / "run", resume=True)
    for name in ("model/model.safetensors", "predictions.jsonl", "receipt.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_gradients_train_the_base_and_not_the_head(base: Path, rows: Path) -> None:
    job = prepare(settings(base, rows))
    free = [name for name, p in job.model.named_parameters() if p.requires_grad]
    assert free
    assert all(name.startswith("base.") for name in free)
    total, count = job.task.loss(job.model.train(), job.batches(0))
    assert count == 8
    total.backward()
    assert all(p.grad is not None for name, p in job.model.named_parameters() if name in free)


def test_receipt_card_and_notes_say_what_was_done(base: Path, rows: Path, run: Run, tmp_path: Path) -> None:
    receipt = run.read_json("receipt.json")
    assert receipt["objective"] == "contrastive"
    assert receipt["final_head_strength"] in (0.001, 0.01, 0.1, 1.0)
    assert receipt["base_sha256_before"] != receipt["base_sha256_after"]
    assert "pairs of texts" in (run.path / "model" / "README.md").read_text()
    assert "logistic regression" in (run.path / "model" / "README.md").read_text()
    watch, lonely = Notes(), tmp_path / "rows.csv"
    lonely.write_text(rows.read_text() + "film 7 was odd to the end,odd\n")
    tables = {"train": str(lonely), "valid": str(rows), "test": str(rows)}
    finetune(settings(base, rows, data=tables, train={"steps": 2}, check=False), tmp_path / "run", watch=watch)
    assert any("Contrastive fine-tuning: 2 steps of up to 8 pairs" in note for note in watch.told)
    assert any("one training row only of 'odd'" in note for note in watch.told)


def test_a_plain_run_has_no_trace_of_it(base: Path, rows: Path, tmp_path: Path) -> None:
    finetune(settings(base, rows, objective="classify"), tmp_path / "run")
    receipt = Run.open(tmp_path / "run").read_json("receipt.json")
    assert receipt["objective"] == "classify"
    assert "final_head_strength" not in receipt
    assert "pairs" not in (tmp_path / "run" / "model" / "README.md").read_text()


@pytest.mark.parametrize("change", [{"scope": "last:1"}, {"scope": "lora"}, {"long": "window"}, {"class_weights": True}, {"pool": "cls"}],
                         ids=lambda change: "-".join(map(str, change.values())))  # fmt: skip
def test_it_goes_with_the_other_settings(change: dict[str, Any], base: Path, rows: Path, tmp_path: Path) -> None:
    if change.get("scope") == "lora":
        pytest.importorskip("peft")
    result = finetune(settings(base, rows, train={"lr": 1e-3}, **change), tmp_path / "run")
    assert result["valid"]["accuracy"] > 0.9
    before, after = (
        weights(read_model(base / "model").model.base),
        weights(read_model(tmp_path / "run" / "model").model.base),
    )
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)


@torch.no_grad()
def test_windows_of_long_texts_are_joined_before_they_are_compared(base: Path, tmp_path: Path) -> None:
    lines = [
        f"{text}{' film' * (30 * (i % 2))},{label}" for i, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    (tmp_path / "long.csv").write_text("\n".join(["text,label", *lines]))
    job = prepare(settings(base, tmp_path / "long.csv", long="window"))
    batch = job.batches(0)
    assert len(batch.ids) > len(batch.target) == 16
    total, count = job.task.loss(job.model.eval(), batch)
    vectors = torch.cat([head_input(job.model, job.text.collate(np.array([row]), RNG)) for row in pair_rows(job, 0)])
    same = batch.target[:8] == batch.target[8:]
    assert count == 8
    assert float(total) == pytest.approx(
        float(((F.cosine_similarity(vectors[:8], vectors[8:]) - same.float()) ** 2).sum()), rel=1e-4
    )


def test_a_dry_run_foresees_it(base: Path, rows: Path, tmp_path: Path) -> None:
    cost = estimate(settings(base, rows, train={"steps": 0, "eval_every": 0}, epochs=2))
    plain = estimate(settings(base, rows, train={"steps": 0, "eval_every": 0}, epochs=2, objective="classify"))
    assert cost["steps"] == plain["steps"] == 40
    assert cost["tokens"] == pytest.approx(2 * plain["tokens"], rel=0.1)
    assert cost["trained_parameters"] < plain["trained_parameters"]
    assert cost["evaluation_seconds"] > plain["evaluation_seconds"]
    assert cost["closing_seconds"] > 0


def test_a_class_that_the_sample_misses_is_fitted_all_the_same(
    base: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.bases.linear_probe.MOST_ROWS", 3)
    job = prepare(settings(base, rows))
    targets = [job.text.targets[row] for row in job.fitted_head.rows]
    assert set(targets) == {0, 1}
    assert np.all(np.diff(job.fitted_head.rows) > 0)
    job.finish_training()


def test_the_learning_rate_of_an_external_base_is_that_of_setfit(elsewhere: Callable[..., HuggingFaceConfig]) -> None:
    cfg = parse(FinetuneConfig, {"base": "minilm", "objective": "contrastive", "data": {"train": "rows.csv"}})
    assert cfg.usual_rate(elsewhere("bert")) == 2e-5


def test_the_estimator_takes_it(base: Path) -> None:
    model = TextClassifier(
        str(base), settings={"objective": "contrastive", "train": {"steps": 10, "lr": 1e-3, "threads": 1}}
    )
    model.fit(TEXTS[:40], LABELS[:40])
    assert model.score(TEXTS[40:80], LABELS[40:80]) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "head"}, r"trains the base, which scope = head \(--train head\) freezes\. Use full, last:K or lora"),
        ({"fit_head": False}, r"always fits its head by logistic regression: leave out fit_head = false"),
        ({"objective": "contrast"}, r"objective"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str, base: Path, rows: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(base, rows, **change)


def test_the_command_line_refuses_a_frozen_base_and_reports_a_run(base: Path, rows: Path, tmp_path: Path) -> None:
    words = [
        "finetune",
        str(rows),
        "--base",
        str(base),
        "--objective",
        "contrastive",
        "--out",
        str(tmp_path / "run"),
        "--threads",
        "1",
    ]
    done = CliRunner().invoke(app, [*words, "--train", "head"])
    assert done.exit_code == 4
    assert "Use full, last:K or lora" in done.stderr
    assert not (tmp_path / "run").exists()
    done = CliRunner().invoke(app, [*words, "--set", "train.steps=3", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "contrastive: trained on pairs of texts; the head is a logistic regression" in done.stdout
