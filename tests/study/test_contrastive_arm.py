"""The arm contrastive in a study: what it runs, and what is reported of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError
from headstart.jobs.pretrain import pretrain
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.study.estimate import study_estimate
from headstart.study.plan import Arm, BaseRun, StudyConfig
from headstart.study.study import Study

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
ROWS = [f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]},{'pos' if i % 2 else 'neg'}" for i in range(60)]


@pytest.fixture(scope="module")
def cfg(tmp_path_factory: pytest.TempPathFactory) -> StudyConfig:
    folder = tmp_path_factory.mktemp("study")
    (folder / "rows.csv").write_text("\n".join(["text,label", *ROWS]) + "\n")
    (folder / "text.txt").write_text("\n".join(row.split(",")[0] for row in ROWS))
    train = {"steps": 2, "batch_size": 8, "threads": 1, "tensorboard": False}
    data = {"paths": [str(folder / "text.txt")], "unit": "line"}
    pretrain(
        parse(PretrainConfig, {"data": data, "model": {"size": "nano", "context": 16}, "train": train}), folder / "base"
    )
    return parse(StudyConfig, {
        "data": {"train": str(folder / "rows.csv")}, "bases": [str(folder / "base")], "arms": ["scratch", "full", "contrastive"],
        "seeds": 2, "labels": [20, 0], "least_steps": 4, "finetune": {"epochs": 1, "train": {"threads": 1}},
    })  # fmt: skip


@pytest.fixture(scope="module")
def study(cfg: StudyConfig, tmp_path_factory: pytest.TempPathFactory) -> Study:
    out = tmp_path_factory.mktemp("out") / "study"
    found = Study.run(cfg, out)
    found.write()
    return found


def test_its_cells_are_contrastive_runs_of_the_whole_base(study: Study) -> None:
    cells = {path.name: Run.open(path).config for path in (study.folder / "cells").iterdir()}
    assert len(cells) == 12
    for name, config in cells.items():
        assert isinstance(config, FinetuneConfig)
        wanted = ("contrastive", 3e-4) if name.startswith("contrastive") else ("classify", 1e-3)
        assert (config.objective, config.train.lr, config.scope) == (*wanted, "full")


def test_it_is_compared_with_scratch_and_described_on_the_page(study: Study) -> None:
    assert [arm.kind for arm in study.results.at(48)] == ["scratch", "full", "contrastive"]
    assert ("contrastive", "scratch") in {(d.a, d.b) for d in study.results.differences}
    assert {r.arm: r.objective for r in study.results.receipts} == {
        "scratch": "classify", "full": "classify", "contrastive": "contrastive",
    }  # fmt: skip
    page = study.page.read_text("utf-8")
    assert page.count("the base was trained on pairs of texts of the same and of different classes (SetFit)") == 1


def test_its_training_loss_is_not_drawn_among_losses_in_nats(study: Study) -> None:
    curves = study.results.curves
    assert curves["full"].train_loss
    assert curves["contrastive"].train_loss == []
    assert len(curves["contrastive"].valid_accuracy) == 2


def test_its_estimate_counts_both_texts_of_a_pair_and_the_heads(
    cfg: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.jobs.estimate.TIMED", 0.0)
    longer = cfg.model_copy(update={"least_steps": 3000})
    _, cells = study_estimate(longer)
    for labels in ("20", "all"):
        assert cells[f"contrastive-base~{labels}~0"] > 1.8 * cells[f"full-base~{labels}~0"]


@pytest.mark.parametrize(("elsewhere", "usual"), [(True, 2e-5), (False, 3e-4)])
def test_its_usual_learning_rate_on_an_external_base_is_that_of_setfit(elsewhere: bool, usual: float) -> None:
    rates = Arm("contrastive", "contrastive", BaseRun("b", Path("b"), "", elsewhere)).rates
    assert rates[len(rates) // 2] == usual


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"finetune": {"objective": "contrastive"}}, "add the arm contrastive to --arms"),
        ({"arms": ["contrast"]}, "an arm is majority, constant, tfidf, .* scratch, frozen, contrastive"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str, cfg: StudyConfig) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(StudyConfig, {**cfg.model_dump(), **change})


def test_a_preset_without_weights_is_refused_by_the_verb(cfg: StudyConfig, tmp_path: Path) -> None:
    words = [
        "compare",
        cfg.data.train,
        "--base",
        "gpt",
        "--arms",
        "scratch,contrastive",
        "--out",
        str(tmp_path / "study"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4
    assert "has no pretrained weights, which contrastive would start from" in done.stderr
