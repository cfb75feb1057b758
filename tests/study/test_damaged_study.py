"""A damaged study.json or receipt.json of a cell is one sentence, not a crash of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse
from headstart.study.plan import StudyConfig
from headstart.study.study import Study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("damaged")
    lines = [f"film {i} was {'lovely' if i % 2 else 'awful'}" for i in range(60)]
    (here / "text.txt").write_text("\n".join(lines))
    rows = [f"{line},{'pos' if i % 2 else 'neg'}" for i, line in enumerate(lines)]
    (here / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    train = {"steps": 2, "batch_size": 8, "threads": 1, "tensorboard": False}
    base = {
        "data": {"paths": [str(here / "text.txt")], "unit": "line"},
        "model": {"size": "nano", "context": 16},
        "train": train,
    }
    pretrain(parse(PretrainConfig, base), here / "base")
    given = {
        "data": {"train": str(here / "rows.csv")}, "bases": (str(here / "base"),), "arms": ("frozen", "scratch"), "seeds": 1,
        "rates": (1e-3,), "least_steps": 2, "finetune": {"epochs": 1, "train": {"threads": 1}},
    }  # fmt: skip
    Study.run(parse(StudyConfig, given), here / "study")
    return here / "study"


def damaged(file: Path, place: list[str], value: Any) -> bytes:
    """The file with one entry that is something else, or gone; what it was."""
    before = file.read_bytes()
    whole = inner = json.loads(before)
    for key in place[:-1]:
        inner = inner[key]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    file.write_text(json.dumps(whole))
    return before


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["data", "hygiene", "splits", "test", "words"], 7),
        (["data", "hygiene", "near", "leaked"], -0.0),
        (["data", "hygiene", "contained", "leaked", "valid"], 1e308),
        (["data", "rows", "test"], "x"),
    ],
)
def test_a_damaged_study_file_is_named(study: Path, place: list[str], value: Any) -> None:
    before = damaged(study / "study.json", place, value)
    done = CliRunner().invoke(app, ["report", str(study)])
    (study / "study.json").write_bytes(before)
    assert done.exit_code in (3, 5), done.output
    assert "study.json" in done.output


@pytest.mark.parametrize("key", ["frozen_moved", "base_sha256_after"])
def test_a_receipt_that_was_not_finished_is_shown_as_far_as_it_goes(study: Path, key: str) -> None:
    file = next((study / "cells").glob("frozen*~all~0")) / "receipt.json"
    before = damaged(file, [key], None)
    done = CliRunner().invoke(app, ["report", str(study)])
    file.write_bytes(before)
    assert done.exit_code == 0, done.output
