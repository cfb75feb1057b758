"""One of several classes that have an order, such as stars (ordinal regression)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import confusion
from headstart.targets.classes import Classes, by_confusion
from headstart.targets.numbers import number_fault, number_in, spearman
from headstart.targets.target import Encoded, Outputs, Scores
from headstart.task import Task


def in_order(labels: Sequence[str]) -> tuple[str, ...]:
    """Different labels from the lowest to the highest, by the numbers that they are.

    >>> in_order(["10", "2", "2"])
    ('2', '10')
    """
    return tuple(sorted(set(labels), key=lambda label: (number_in(label) or 0.0, label)))


@dataclass(frozen=True)
class Ordered(Classes):
    names: tuple[str, ...]  # from the lowest to the highest

    task: ClassVar[Task] = "ordinal"
    card = "A text classifier with ordered classes"
    label_is, noun = "a grade, such as 1 to 5 stars", "a classifier of ordered classes"
    baselines = ("constant", "tfidf")
    linear, quality, of_held_out = "cumulative logits", "log-likelihood", True
    titles: ClassVar[Mapping[str, str]] = {
        "kappa": "quadratic kappa",
        "accuracy": "accuracy",
        "mae": "MAE, in classes",
        "spearman": "Spearman's ρ",
    }

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        return cls(in_order(labels))

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        return number_fault(label, cls.task)

    def answers(self, outputs: Outputs) -> Encoded:
        """The median of each row's probabilities: the answer with the least expected distance."""
        reached = np.cumsum(np.asarray(outputs), axis=1) >= 0.5 - 1e-9
        return np.where(reached.any(1), reached.argmax(1), len(self.names) - 1)

    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        return {
            "kappa": float(quadratic_kappa(np.array(confusion(truth.tolist(), answers.tolist(), len(self.names))))),
            "accuracy": float((truth == answers).mean()),
            "mae": float(np.abs(truth - answers).mean()),
            "spearman": spearman(truth, answers),
            "rows": len(truth),
        }

    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64] | None:
        match score:
            case "kappa":
                return by_confusion(quadratic_kappa, truth.tolist(), answers.tolist(), len(self.names))
            case "accuracy":
                return (truth == answers).astype(float)
            case "mae":
                return np.abs(truth - answers).astype(float)
        return None

    def leading(self, labels: Sequence[str]) -> str:
        return "kappa"

    @property
    def described(self) -> str:
        return f" (classes in the order {', '.join(self.names)})"

    def heaviest(self, score: str, truth: Encoded) -> float:
        return 1.0 if score == "accuracy" else 0.0


def quadratic_kappa(counts: NDArray[Any]) -> Any:
    """Cohen's kappa with quadratic weights, as scikit-learn has it, from a confusion table; its counts may be complex."""
    places = np.arange(len(counts))
    weights = (places[:, None] - places[None, :]) ** 2
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    chance = (weights * expected).sum()
    return 1 - (weights * counts).sum() / chance if chance != 0 else chance * 0
