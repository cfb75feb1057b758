"""A dry run: what it says is what the run does, and it writes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError, DivergedError
from headstart.jobs.estimate import estimate, within_minutes
from headstart.jobs.finetune import finetune
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse

SHAPE = {"size": "nano", "context": 16}
TRAIN = {"batch_size": 8, "threads": 1, "eval_every": 4, "tensorboard": False}


@pytest.fixture(autouse=True)
def three_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.jobs.estimate.TIMED", 0.0)


@pytest.fixture
def language(sentences: Path) -> PretrainConfig:
    data = {"paths": [str(sentences)], "unit": "line"}
    return parse(PretrainConfig, {"data": data, "model": SHAPE, "train": {**TRAIN, "steps": 10}})


@pytest.fixture
def classes(reviews: Path, language: PretrainConfig, tmp_path: Path) -> FinetuneConfig:
    pretrain(language, tmp_path / "base")
    settings = {"base": str(tmp_path / "base"), "scope": "last:1", "epochs": 2, "data": {"train": str(reviews)}}
    return parse(FinetuneConfig, {**settings, "train": TRAIN})


def check(cfg: Any, job: Callable[..., dict[str, Any]], out: Path) -> None:
    before = sorted(out.parent.rglob("*"))
    cost = estimate(cfg)
    assert sorted(out.parent.rglob("*")) == before
    result = job(cfg, out)
    assert cost["parameters"] == result["parameters"]
    assert cost["trained_parameters"] == result.get("trained_parameters", result["parameters"])
    assert cost["steps"] == result["steps"]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert cost["evaluations"] == sum(record["split"] == "valid" for record in log)
    facts = json.loads((out / "data.json").read_text())
    assert cost["texts"] == facts["rows"]["train"]
    assert (
        cost["seconds"]
        > (cost["steps"] - 1) * cost["update_seconds"] + cost["evaluations"] * cost["evaluation_seconds"]
    )
    assert cost["evaluation_seconds"] > 0
    weights = (out / "model" / "model.safetensors").stat().st_size
    assert cost["memory_bytes"] > 1e8 > cost["disk_bytes"] > 6 * weights


def test_a_dry_run_of_pretraining_foresees_the_run(language: PretrainConfig, tmp_path: Path) -> None:
    check(language, pretrain, tmp_path / "run")


def test_a_dry_run_of_fine_tuning_foresees_the_run(classes: FinetuneConfig, tmp_path: Path) -> None:
    check(classes, finetune, tmp_path / "run")


def test_a_frozen_base_is_timed_and_its_features_are_not_kept(classes: FinetuneConfig, tmp_path: Path) -> None:
    cost = estimate(classes.model_copy(update={"scope": "head", "features": str(tmp_path / "features")}))
    assert not (tmp_path / "features").exists()
    assert cost["trained_parameters"] < 1000 < cost["parameters"]


def test_the_disk_foreseen_is_the_disk_used(language: PretrainConfig, tmp_path: Path) -> None:
    cfg = language.model_copy(update={"train": language.train.model_copy(update={"keep_checkpoints": True})})
    pretrain(cfg, tmp_path / "run")
    used = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert estimate(cfg)["disk_bytes_after"] == pytest.approx(used, rel=0.3)


def test_a_batch_of_several_passes_and_no_validation_text(language: PretrainConfig) -> None:
    train = language.train.model_copy(update={"accumulate": 3})
    data = language.data.model_copy(update={"valid_fraction": 0.0})
    once, thrice = estimate(language), estimate(language.model_copy(update={"train": train, "data": data}))
    assert thrice["tokens"] / once["tokens"] == pytest.approx(3, rel=0.3)
    assert thrice["epochs"] / once["epochs"] == pytest.approx(3, rel=0.3)


def test_the_verb_shows_it_and_writes_nothing(sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "pretrain",
        str(sentences),
        "--size",
        "nano",
        "--context",
        "16",
        "--steps",
        "7",
        "--threads",
        "1",
        "--dry-run",
    ]
    shown, as_json = CliRunner().invoke(app, words), CliRunner().invoke(app, [*words, "--json"])
    assert shown.exit_code == 0, shown.output
    for name in ("parameters", "training text", "steps", "time", "memory", "disk"):
        assert f"\n{name} " in shown.stdout
    assert json.loads(as_json.stdout)["steps"] == 7
    assert [path.name for path in tmp_path.iterdir()] == [sentences.name]


def test_minutes_become_updates_that_fit(language: PretrainConfig) -> None:
    short, long = (within_minutes(language, minutes).train.steps for minutes in (1, 20))
    assert 0 < 5 * short < long
    assert long < 20 * 60 / 0.0002  # an update of even this model takes a fifth of a millisecond


def test_no_minutes_are_enough_for_counting_alone(language: PretrainConfig) -> None:
    assert within_minutes(language.model_copy(update={"start": "cooccurrence"}), 0).train.steps == 0
    with pytest.raises(ConfigError, match="preparing alone takes"):
        within_minutes(language, 0)


@pytest.mark.parametrize("steps", [["--steps", "5"], ["--set", "train.steps=5"]])
def test_minutes_and_steps_exclude_each_other(steps: list[str], sentences: Path, tmp_path: Path) -> None:
    words = ["pretrain", str(sentences), *steps, "--minutes", "1", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "Give one of them" in done.stderr


def test_minutes_without_end_are_refused(language: PretrainConfig) -> None:
    with pytest.raises(ConfigError, match="no number of minutes"):
        within_minutes(language, math.inf)


def test_a_rate_at_which_it_diverges_at_once_is_told(language: PretrainConfig) -> None:
    fast = language.train.model_copy(update={"lr": 1e11})
    with pytest.raises(DivergedError, match=r"not finite after a few steps\. Lower train\.lr"):
        estimate(language.model_copy(update={"train": fast, "samples": ("a",)}))


def test_a_model_that_cannot_write_is_timed_without_its_samples(language: PretrainConfig) -> None:
    shape = language.model.model_copy(update={"causal": False})
    cost = estimate(language.model_copy(update={"model": shape, "samples": ("a",)}))
    assert cost["update_seconds"] > 0
    assert cost["closing_seconds"] > 0
