"""The calibration of a classifier after its last step, on its validation rows.

The temperature is divided into the weights of the head, because logits / T is again a linear head: predictions, the estimator
and every export have it without knowing of it. The predicted labels stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.models.heads import ClassHead, Model
from headstart.targets.class_scores import calibration_error, softmax
from headstart.task import Task
from headstart.tasks.calibration import FEWEST_ROWS, before_temperature, fit_temperature, nonconformity
from headstart.tasks.classify import ClassifyText


class CalibrationErrors(TypedDict):
    """Expected calibration error (ECE, 15 bins)."""

    ece_before: float
    ece_after: float


class CalibrationAnswer(TypedDict):
    """`calibration` of result.json; without a temperature, `reason` has the cause."""

    temperature: float | None
    rows: int  # that it was fitted on
    reason: str | None
    valid: CalibrationErrors | None  # the rows that it was fitted on
    test: CalibrationErrors | None


class ProbabilityCalibration:
    """What the validation rows showed, once training is over."""

    def __init__(self, wanted: bool = True, rows: int = 0, task: Task = "classify") -> None:
        self.wanted, self.rows, self.task = wanted, rows if task == "classify" else 0, task
        self.temperature: float | None = None
        self.scores: list[float] = []  # nonconformity of the validation rows
        self.valid: CalibrationErrors | None = None
        self.test: CalibrationErrors | None = None

    @property
    def reason(self) -> str | None:
        """Why no temperature is fitted."""
        if self.task != "classify":
            return f"the task is {self.task}"
        if not self.wanted:
            return "temperature_scaling = false"
        return None if self.rows >= FEWEST_ROWS else f"{self.rows} validation rows; {FEWEST_ROWS} are needed"

    def fit(self, model: Model, valid: ClassifyText, device: str) -> None:
        """Fit a temperature, divide the head by it, and keep what label sets need."""
        if not self.rows:
            return
        logits = valid.logits(model, device).double().cpu().numpy()
        if self.reason is None:
            self.temperature = fit_temperature(logits, valid.targets.tolist())
            _divide(model.head, self.temperature)
        after = softmax(logits / (self.temperature or 1.0))
        self.scores = nonconformity(after, valid.targets.tolist())
        self.valid = self._errors(after, valid.targets.tolist())

    def measure(self, probabilities: NDArray[np.float64], target: NDArray[Any]) -> None:
        """Compare test rows before and after."""
        self.test = self._errors(probabilities, target.tolist())

    def _errors(self, after: NDArray[np.float64], target: Sequence[int]) -> CalibrationErrors | None:
        if self.temperature is None:
            return None
        before = before_temperature(after, self.temperature)
        return {"ece_before": calibration_error(before, target), "ece_after": calibration_error(after, target)}

    def answer(self) -> CalibrationAnswer:
        return {
            "temperature": self.temperature,
            "rows": self.rows if self.temperature is not None else 0,
            "reason": self.reason,
            "valid": self.valid,
            "test": self.test,
        }


@torch.no_grad()
def _divide(head: torch.nn.Module, temperature: float) -> None:
    assert isinstance(head, ClassHead)
    for parameter in head.linear.parameters():
        parameter.div_(temperature)
