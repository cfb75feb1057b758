"""What the finished cells of a study say, read and checked, and how many are not finished. No torch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ModelError
from headstart.quantities import counted
from headstart.runs.run import Run
from headstart.study.plan import Arm, BaseRun, StudyConfig, cells
from headstart.targets.target import Encoded, Outputs, Target
from headstart.text.split import Labelled


class BaseFacts(TypedDict):
    path: str
    shape: str
    elsewhere: bool
    sha256: str  # of its weights
    language_head: NotRequired[bool]  # missing in a study made before it was kept


class StudyFile(TypedDict, total=False):
    """study.json; what comes after the environment is missing while the study has not come that far."""

    data: dict[str, Any]  # files, sizes, label counts and hygiene of the rows
    score: str  # chooses learning rates and weights; missing: accuracy, in a study made before it was kept
    environment: dict[str, Any]
    chosen: str  # why this base, where it was chosen on the training rows
    bases: dict[str, BaseFacts]
    rates: dict[str, float]  # "full~all" -> the learning rate that was chosen
    failures: list[dict[str, Any]]


def bases_of(state: StudyFile) -> list[BaseRun]:
    """The bases of a study, as study.json has them; none while it is pretraining them."""
    return [
        BaseRun(name, Path(b["path"]), b["shape"], b.get("elsewhere", False), b.get("language_head", True))
        for name, b in state.get("bases", {}).items()
    ]


class CellResult(TypedDict, total=False):
    """result.json of a cell or of a base, as far as a study reads it."""

    seconds: float
    preparing_seconds: float
    rate: float | None  # of a baseline: C
    tokens: int
    parameters: int
    trained_parameters: int
    valid: dict[str, Any] | None
    calibration: dict[str, Any] | None


@dataclass(frozen=True)
class Taken:
    """What an arm said of the test rows at one label count. S seeds, N rows, K outputs."""

    arm: Arm
    labels: int | None  # 0: all; None: the arm uses none
    seeds: list[int]
    said: Encoded  # (S, N), or (S, N, L) of several labels
    outputs: NDArray[np.float64]  # (S, N, K)
    results: list[CellResult]  # of each seed
    paths: list[Path]
    rate: float | None

    @property
    def random(self) -> bool:
        """Whether another seed would have said something else."""
        return self.arm.varies(self.labels)


def take(
    out: Path, cfg: StudyConfig, arm: Arm, labels: int | None, data: Labelled, rates: Mapping[str, float]
) -> Taken | None:
    """The finished cells of an arm at one label count; None while there are none."""
    wanted = [c for c in cells(cfg, [arm], {}) if c.labels == labels]
    done = {c.seed: out / "cells" / c.name for c in wanted if (out / "cells" / c.name / "result.json").exists()}
    if not done:
        return None
    read = [read_predictions(path, data.target, len(data.test)) for path in done.values()]
    results = [Run(path).read_json("result.json") for path in done.values()]
    rate = rates.get(f"{arm.name}~{labels or 'all'}") or results[0].get("rate")
    said, outputs = (np.array([cell[i] for cell in read]) for i in (0, 1))
    return Taken(arm, labels, list(done), said, outputs, results, list(done.values()), rate)


def read_predictions(path: Path, target: Target, rows: int, file: str = "predictions.jsonl") -> tuple[Encoded, Outputs]:
    """What a cell predicted of each test row, or of each row of another part, by its `file`: answers and outputs."""
    records = list(Run(path).read_lines(file))
    try:
        read = [target.read(record) for record in records]
    except (KeyError, TypeError, ValueError):
        read = []
    if len(read) != rows:
        raise ModelError(
            f"{path / file} is damaged (not one prediction for each of {rows:,} rows). Remove {path} and run the "
            "study again: it makes only what is missing.",
            "RUN_DAMAGED",
        )
    return np.array([answer for answer, _ in read]), np.array([outputs for _, outputs in read])


def result_of(path: Path) -> CellResult | None:
    return Run(path).read_json("result.json") if (path / "result.json").exists() else None


def missing_cells(out: Path, cfg: StudyConfig, arms: Sequence[Arm], state: StudyFile) -> int:
    """Cells that neither came to an end nor failed; of bases that are not yet there, all."""
    failed = {failure["cell"] for failure in state.get("failures", [])}
    planned = [c for c in cells(cfg, list(arms), {}) if c.name not in failed]
    unknown = 0 if state.get("bases") else len(cfg.bases) + len(cfg.objectives if cfg.pretrain else ())
    to_come = unknown * len(cfg.trained) * cfg.seeds * len(cfg.labels)
    return to_come + sum(not (out / "cells" / c.name / "result.json").exists() for c in planned)


def unfinished(out: Path, missing: int) -> str:
    """What is to be said of a study that was interrupted; nothing of one that is done."""
    if not missing:
        return ""
    told = counted(missing, "cell", "is", "are")
    return f"This study is not finished: {told} missing, so nothing is concluded yet. {go_on(out)}"


def go_on(out: Path) -> str:
    again = ["headstart", "compare", "--config", str(out / "study.toml"), "--out", str(out)]
    return f"To go on with it: {shlex.join(again)}"
