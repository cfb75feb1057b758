"""How far a study of classifiers has come: its cells, what each is doing, and the time that is left. No torch, nothing is written."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Literal, TypedDict

from headstart.errors import ModelError
from headstart.runs.lock import owner_of
from headstart.runs.record_shapes import StudyState
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.schema import parse, read_toml
from headstart.study.plan import StudyConfig, arms_of, cells, trials
from headstart.study.taken import StudyFile, bases_of, result_of

CellState = Literal["waiting", "running", "finished", "failed"]


class CellProgress(TypedDict):
    name: str
    arm: str
    labels: int | None  # 0: all; None: the arm uses none
    seed: int
    trial: bool  # a run that only chooses a learning rate
    state: CellState
    seconds: float | None


class StudyProgress(TypedDict):
    stage: str
    cells: list[CellProgress]
    finished: int
    total: int
    seconds_left: float | None  # by the time that finished cells of the same arm took; None while there are none


def study_progress(out: Path) -> StudyProgress:
    """The planned cells of the study in `out`; none before its data are read and its bases are there."""
    if not (out / "study.toml").exists() or not (out / "study.json").exists():
        return {"stage": "reading the data", "cells": [], "finished": 0, "total": 0, "seconds_left": None}
    cfg = parse(StudyConfig, read_toml(out / "study.toml"), str(out / "study.toml"))
    state: StudyFile = read_json(out / "study.json", StudyState, "STUDY_DAMAGED")
    if cfg.trained and not state.get("bases"):
        return {"stage": "preparing the bases", "cells": [], "finished": 0, "total": 0, "seconds_left": None}
    arms = arms_of(cfg, bases_of(state))
    rows = state["data"]["rows"]
    planned = [*trials(cfg, arms, rows.get("train", 0) + rows.get("valid", 0)), *cells(cfg, arms, {})]
    failed = {failure["cell"] for failure in state.get("failures", [])}
    found: list[CellProgress] = []
    for cell in planned:
        path = out / "cells" / cell.name
        result = _result(path)
        state_now: CellState = "finished" if result else "failed" if cell.name in failed else "waiting"
        if state_now == "waiting" and owner_of(path) is not None:
            state_now = "running"
        found.append(
            {
                "name": cell.name,
                "arm": cell.arm.name,
                "labels": cell.labels,
                "seed": cell.seed,
                "trial": cell.trial,
                "state": state_now,
                "seconds": result["seconds"] if result else None,
            }
        )
    done = sum(cell["state"] in ("finished", "failed") for cell in found)
    stage = "finished" if done == len(found) else "training"
    return {
        "stage": stage, "cells": found, "finished": done, "total": len(found), "seconds_left": _seconds_left(found)
    }  # fmt: skip


def running_cell(out: Path) -> str | None:
    """The cell that is training now, by the lock on its folder; while a base is pretrained, that base."""
    for kind in ("cells", "bases"):
        for path in sorted((out / kind).glob("*")):
            if not (path / "result.json").exists() and owner_of(path) is not None:
                return f"{kind}/{path.name}"
    return None


def log_of(out: Path, name: str) -> Path:
    return Run(out / name).path / "log.jsonl"


def _result(path: Path) -> dict[str, float] | None:
    try:
        found = result_of(path)
    except ModelError:  # damaged: running the study again reports it
        return None
    return {"seconds": found["seconds"]} if found else None


def _seconds_left(found: list[CellProgress]) -> float | None:
    took: defaultdict[str, list[float]] = defaultdict(list)
    for cell in found:
        if cell["seconds"] is not None:
            took[cell["arm"]].append(cell["seconds"])
    every = [seconds for several in took.values() for seconds in several]
    if not every:
        return None
    means = {arm: sum(several) / len(several) for arm, several in took.items()}
    usual = sum(every) / len(every)
    return sum(means.get(c["arm"], usual) for c in found if c["state"] in ("waiting", "running"))
