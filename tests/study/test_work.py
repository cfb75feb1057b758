"""Workers on one study: each cell is run once, a worker that dies costs its cell only, and the table is the same."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.study.leases import Leases
from tests.clock import without
from tests.forked import Forked, headstart

BEAT = "1.5"  # a busy machine may be late by three of them
STUDY = ["compare", "rows.csv", "--base", "bert", "--arms", "majority,scratch", "--labels", "all", "--seeds", "2", "--rates", "0.001,0.003",
         "--set", "least_steps=40", "--set", "finetune.train.steps=40", "--set", "finetune.train.threads=1", "--set", "finetune.model.size=nano",
         "--set", "finetune.train.log_every=1", "--yes", "--quiet"]  # fmt: skip
GRID = ["translate", "grid", "pairs.tsv", "--model", "gru", "--hidden", "8", "--seeds", "2", "--epochs", "1", "--threads", "1", "--quiet"]  # fmt: skip
CLOCK = (
    "seconds",
    "training_seconds",
    "pretraining_seconds",
    "started",
    "command",
    "folder",
    "cost",
    "run",
    "tokens_per_second",
    "wall",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[i % 2]}" for i in range(80)]
    pairs = [f"{c}{v}{e}\t{v}{e}{c}ay" for c in "bdgklm" for v in "aeio" for e in ("n", "r")]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path


def run(*words: str) -> str:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == 0, done.output
    return done.stdout


def start(study: str) -> Forked:
    return headstart(["work", study, "--beat", BEAT, "--quiet"])


def table(study: Path) -> Any:
    """results.json without what the clock and the machine decide."""
    return without(CLOCK, json.loads((study / "results.json").read_text()))


def test_three_workers_of_whom_one_is_killed_make_the_same_table(folder: Path) -> None:
    run(*STUDY, "--out", "alone")
    run(*STUDY, "--out", "shared", "--prepare")
    assert not (folder / "shared" / "cells").exists()
    first = start("shared")
    while not any((folder / "shared" / "cells").glob("*/log.jsonl")):  # it trains
        assert first.poll() is None, first.communicate()
        time.sleep(0.001)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    left = [path for path in (folder / "shared" / "leases").glob("*/*") if not (path / "released").exists()]
    assert len(left) == 1, "the killed one held a lease"
    workers = [start("shared"), start("shared")]
    told = [worker.communicate(timeout=200) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], told
    assert table(folder / "shared") == table(folder / "alone")
    leases = sorted(
        path.relative_to(folder / "shared" / "leases") for path in (folder / "shared" / "leases").glob("*/*")
    )
    assert len({path.parent for path in leases}) == len(list((folder / "alone" / "cells").iterdir())) + 1  # one gathers
    assert [path.parent.name for path in leases if path.name != "0001"] == [left[0].parent.name], "each other cell once"


def test_a_worker_runs_a_grid(folder: Path) -> None:
    run(*GRID, "--out", "alone")
    run(*GRID, "--out", "shared", "--prepare")
    run("work", "shared", "--quiet")
    assert table(folder / "shared") == table(folder / "alone")


def test_a_lease_is_for_one_and_is_taken_over_after_three_beats(tmp_path: Path) -> None:
    mine, theirs = Leases(tmp_path, 0.3), Leases(tmp_path, 0.3)
    held = mine.take("cell")
    assert held is not None
    with held.held():
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert theirs.take("cell") is None, "its owner lives"
            time.sleep(0.01)
    until = time.monotonic() + 5
    while (taken := theirs.take("cell")) is None:  # no beat any more
        assert time.monotonic() < until
    assert taken.place.name == "0002"
    assert mine.take("cell") is None


def test_an_owner_hears_that_its_lease_was_taken_over(tmp_path: Path) -> None:
    mine, theirs, heard = Leases(tmp_path, 0.05), Leases(tmp_path, 0.0), []
    held = mine.take("cell")
    assert held is not None
    theirs.take("cell")
    assert theirs.take("cell") is not None, "three beats of no length have passed"
    with held.held(lambda: heard.append(True)):
        until = time.monotonic() + 5
        while not heard and time.monotonic() < until:
            time.sleep(0.01)
    assert heard == [True]
    assert held.lost


def test_what_failed_is_left_to_whoever_begins_later(tmp_path: Path) -> None:
    mine, beside = Leases(tmp_path), Leases(tmp_path)
    held = mine.take("cell")
    assert held is not None
    assert beside.outcome("cell") is None
    held.leave({"exit": 3, "message": "no rows"})
    assert beside.outcome("cell") == {"exit": 3, "message": "no rows"}
    assert Leases(tmp_path).outcome("cell") is None
    assert Leases(tmp_path).take("cell") is not None


def test_a_folder_without_a_study_is_refused(folder: Path) -> None:
    done = CliRunner().invoke(app, ["work", "nothing"])
    assert done.exit_code == 5
    assert "holds no study" in done.stderr
