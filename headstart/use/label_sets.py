"""Answers with their doubt: a label only where the model is sure enough, and conformal label sets. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.config import FinetuneConfig
from headstart.errors import ModelError, UserError
from headstart.quantities import counted
from headstart.runs.kinds import must_be
from headstart.runs.record_shapes import Conformal
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.targets.target import Target
from headstart.tasks.calibration import label_set, rows_for, threshold
from headstart.use.labels import LabelledText


@dataclass(frozen=True)
class Doubt:
    """When no label is given, and which labels are in a set."""

    abstain_below: float = 0.0  # probability of the best label
    largest: float | None = None  # nonconformity of a label in a set; None: no sets

    def must_suit(self, target: Target) -> None:
        """Refuse doubt of anything but one class per text."""
        if target.task != "classify" and (self.abstain_below or self.largest is not None):
            raise ModelError(
                f"--abstain-below and --coverage are for one class per text; the task of this model is {target.task}."
            )

    def applied(self, records: Sequence[LabelledText]) -> None:
        """Add to records what is asked for."""
        for record in records:
            ranked = record["probabilities"]
            if self.largest is not None:
                record["label_set"] = label_set(list(ranked), list(ranked.values()), self.largest)
            if self.abstain_below:
                record["abstained"] = max(ranked.values()) < self.abstain_below
                record["label"] = None if record["abstained"] else record["label"]


def doubt_of(run: str | Path, abstain_below: float | None, coverage: float | None) -> Doubt:
    """How the classifier in `run` abstains, and the threshold with which its label sets have the coverage."""
    return Doubt(abstain_below or 0.0, None if coverage is None else _threshold(run, coverage))


def _threshold(run: str | Path, coverage: float) -> float:
    if not 0 < coverage < 1:
        raise UserError(f"--coverage takes a fraction between 0 and 1, such as 0.9, not {coverage:g}.")
    if str(run).endswith(".onnx"):
        raise ModelError(f"{run}: --coverage needs scores of the validation rows, which an .onnx file does not hold. Give the run.")  # fmt: skip
    found = Run.open(run)
    must_be(found.config, FinetuneConfig, run)
    if (task := found.read_json("result.json").get("task", "classify")) != "classify":
        raise ModelError(f"{run}: --coverage is for one class per text; the task of this model is {task}.")
    file = found.path / "conformal.json"
    if not file.exists():
        raise ModelError(f"{run} was trained by a version without label sets. Train it again for --coverage.")
    scores = read_json(file, Conformal)["scores"]
    if not scores:
        raise ModelError(
            f"{run} had no validation rows, so no coverage can be guaranteed. Train it with --valid, or with 200 labels or more."
        )
    if len(scores) < rows_for(coverage):
        raise ModelError(
            f"--coverage {coverage:g} needs {rows_for(coverage)} validation rows or more; {run} had "
            f"{counted(len(scores), 'row')}. Ask for less coverage, or train with more validation rows."
        )
    return threshold(scores, coverage)
