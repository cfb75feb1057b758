"""How many runs of a study go on at once where nobody says: by the size of the bases, the steps and the memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headstart.runs.watch import Watch
from headstart.study import at_once
from headstart.study.at_once import SELF, SMALL, runs_at_once
from headstart.study.plan import StudyConfig
from headstart.study.run import Cells, Planned


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(at_once, "_free_memory", lambda: 100 * SELF)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base" / "model").mkdir(parents=True)
    with (tmp_path / "base" / "model" / "model.safetensors").open("wb") as file:
        file.truncate(SMALL)  # a hole, as large as a small base
    return tmp_path / "base"


def study(base: Path, **settings: Any) -> StudyConfig:
    given = {"arms": ("tfidf", "scratch", "frozen", "full"), "seeds": 5, "least_steps": 300, **settings}
    return StudyConfig.model_validate({"data": {"train": "rows.csv"}, "bases": (str(base),), **given})


def test_many_steps_of_a_small_base_use_every_core(base: Path) -> None:
    assert runs_at_once(study(base)) == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"seeds": 1},
        {"least_steps": 100},
        {"arms": ("tfidf", "frozen")},
        {"finetune": {"train": {"steps": 20}}},
        {"finetune": {"train": {"threads": 2}}},
        {"finetune": {"train": {"device": "cuda"}}},
        {"pretrain": {"data": {"paths": ["corpus.txt"]}}},
        {"bases": ("minilm",)},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_others_run_one_after_the_other(base: Path, settings: dict[str, Any]) -> None:
    assert runs_at_once(study(base, **settings)) == 1


def test_a_large_base_has_all_threads(base: Path) -> None:
    with (base / "model" / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    assert runs_at_once(study(base)) == 1


@pytest.mark.parametrize(("free", "jobs"), [(0, 1), (4 * SELF, 1), (7 * SELF, 2), (100 * SELF, 4)])
def test_half_of_the_free_memory_is_left(base: Path, free: int, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "_free_memory", lambda: free)
    assert runs_at_once(study(base)) == jobs


def note_process(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "result.json").write_text(str(os.getpid()))


def test_the_runs_of_every_phase_find_warm_workers(tmp_path: Path) -> None:
    phases = [[Planned(f"{phase}-{i}", note_process) for i in range(4)] for phase in ("trial", "final")]
    with Cells(tmp_path, [cell for phase in phases for cell in phase], jobs=2, watch=Watch()) as cells:
        for phase in phases:
            cells.run(phase)
    processes = {file.read_text() for file in tmp_path.glob("cells/*/result.json")}
    assert cells.failures == []
    assert len(processes) == 2
    assert str(os.getpid()) not in processes
