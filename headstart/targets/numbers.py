"""A number for each row (regression). Encoded numbers are standardized by the training rows; shown ones are in their unit."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.targets.smooth import pseudo_values
from headstart.targets.target import Encoded, Outputs, Record, Scores, Target
from headstart.task import Task

STRATA = 10  # parts of the training numbers that a split spreads evenly


def number_in(cell: str) -> float | None:
    """The number in a cell, with a point or a comma for decimals; None where there is none.

    >>> number_in(" 3,5 "), number_in("n/a"), number_in("inf")
    (3.5, None, None)
    """
    try:
        number = float(cell.strip().replace(",", ".", 1))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def number_fault(label: str, task: str) -> str | None:
    """What is wrong with a label of a task that needs numbers."""
    if number_in(label) is not None:
        return None
    return f"the label '{label[:40]}' is no number, which --task {task} needs"


@dataclass(frozen=True)
class Numbers(Target):
    mean: float
    spread: float  # standard deviation of the training numbers

    task: ClassVar[Task] = "regression"
    card = "A model that predicts a number for a text"
    label_is, noun = "a number", "a model of numbers"
    linear, quality = "ridge regression", "minus squared error"
    numeric, fewest = True, 1
    titles: ClassVar[Mapping[str, str]] = {"r2": "R²", "mae": "MAE", "rmse": "RMSE", "spearman": "Spearman's ρ"}
    names = ("value",)

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        numbers = [_number(cell) for cell in labels]
        return cls(float(np.mean(numbers)), float(np.std(numbers)) or 1.0)

    @classmethod
    def of_model(cls, names: Sequence[str], thresholds: Sequence[float] = ()) -> Self:
        return cls(0.0, 1.0)

    @staticmethod
    def outputs_of(logits: Outputs) -> Outputs:
        return logits

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        return number_fault(label, cls.task)

    def encode(self, labels: Sequence[str]) -> Encoded:
        numbers = np.array([_number(cell) for cell in labels], dtype=np.float64)
        return ((numbers - self.mean) / self.spread).astype(np.float32)

    def answers(self, outputs: Outputs) -> Encoded:
        return np.asarray(outputs)[:, 0]

    def written(self, answer: Any) -> float:
        return float(answer) * self.spread + self.mean

    def cell(self, answer: Any, like: str) -> str:
        """With as many decimals as the other cell.

        >>> [Numbers(0.0, 1.0).cell(3.14159, like=cell) for cell in ("2,5", "2", "1e-3")]
        ['3.1', '3', '3.142']
        """
        exponent = Decimal(like.strip().replace(",", ".", 1)).as_tuple().exponent
        return f"{self.written(answer):.{max(0, -int(exponent))}f}"

    def answer_of(self, written: Any) -> float:
        return (float(written) - self.mean) / self.spread

    def names_in(self, label: str) -> list[str]:
        return list(self.names)

    def record(self, label: str, answer: Any, outputs: Sequence[float]) -> Record:
        return {"label": _number(label), "prediction": self.written(answer)}

    def read(self, record: Mapping[str, Any]) -> tuple[Any, list[float]]:
        answer = self.answer_of(record["prediction"])
        return answer, [answer]

    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        error = self.spread * (truth.astype(np.float64) - answers)
        return {
            "r2": float(_r2(_moments(truth, answers).sum(0))),
            "mae": float(np.abs(error).mean()),
            "rmse": float(np.sqrt((error**2).mean())),
            "spearman": spearman(truth, answers),
            "rows": len(truth),
        }

    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64] | None:
        error = self.spread * (truth.astype(np.float64) - answers)
        match score:
            case "r2":
                return pseudo_values(_r2, _moments(truth, answers))
            case "mae":
                return np.abs(error)
            case "rmse":
                rows = np.stack([error**2, np.ones(len(error))], axis=1)
                return pseudo_values(lambda sums: np.sqrt(sums[0] / sums[1]), rows)
        return None

    def leading(self, labels: Sequence[str]) -> str:
        return "r2"

    def heaviest(self, score: str, truth: Encoded) -> float:
        return 0.0

    def constant(self, truth: Encoded) -> NDArray[np.float64]:
        return np.array([truth.astype(np.float64).mean()])

    @property
    def described(self) -> str:
        return f" (numbers with mean {self.mean:.3g} and standard deviation {self.spread:.3g})"

    def strata(self, labels: Sequence[str]) -> list[Hashable]:
        """Tenths of the numbers; fewer parts of fewer rows, of which a fraction is to be held out."""
        numbers = np.array([_number(cell) for cell in labels])
        parts = max(1, min(STRATA, len(numbers) // 10))
        edges = np.quantile(numbers, np.linspace(0, 1, parts + 1)[1:-1])
        return np.searchsorted(edges, numbers, side="right").tolist()

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        return {}


def spearman(truth: Encoded, answers: Encoded) -> float:
    """Spearman's rank correlation; 0 where one of the two never varies."""
    from scipy.stats import spearmanr  # loads slowly

    if len(truth) < 2 or np.ptp(truth) == 0 or np.ptp(answers) == 0:
        return 0.0
    return float(spearmanr(truth, answers).statistic)


def _number(cell: str) -> float:
    number = number_in(cell)
    if number is None:
        raise ValueError(f"'{cell}' is no number")
    return number


def _moments(truth: Encoded, answers: Encoded) -> NDArray[np.float64]:
    known = truth.astype(np.float64)
    return np.stack([(known - answers) ** 2, known, known**2, np.ones(len(known))], axis=1)


def _r2(sums: NDArray[Any]) -> Any:
    """The share of the variance that the answers explain, as scikit-learn's r2_score; below 0 they do worse than the mean."""
    error, total, squares, rows = sums
    variance = squares - total**2 / rows
    return 1 - error / variance if variance != 0 else variance * 0
