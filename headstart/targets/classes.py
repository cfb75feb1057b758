"""One class for each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import class_scores, confusion, is_imbalanced, macro_f1
from headstart.targets.target import Encoded, Outputs, Scores, Target
from headstart.task import Task


@dataclass(frozen=True)
class Classes(Target):
    names: tuple[str, ...]  # sorted; the place of a class is its number

    task: ClassVar[Task] = "classify"
    titles: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
    card = "A text classifier"
    label_is = "one class"
    quality = "accuracy"
    rows = "rows with one class each"
    baselines = ("majority", "tfidf")

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        return cls(tuple(sorted(set(labels))))

    def encode(self, labels: Sequence[str]) -> Encoded:
        return np.array([self.names.index(label) for label in labels], dtype=np.int64)

    def answers(self, outputs: Outputs) -> Encoded:
        return np.asarray(outputs).argmax(1)

    def written(self, answer: Any) -> str:
        return self.names[int(answer)]

    def answer_of(self, written: Any) -> int:
        return self.names.index(written)

    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        return dict(class_scores(truth.tolist(), answers.tolist(), len(self.names)))

    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64] | None:
        if score == "accuracy":
            return (answers == truth).astype(float)
        return by_confusion(macro_f1, truth.tolist(), answers.tolist(), len(self.names))

    def leading(self, labels: Sequence[str]) -> str:
        return "macro_f1" if is_imbalanced(list(Counter(labels).values())) else "accuracy"

    def heaviest(self, score: str, truth: Encoded) -> float:
        return heaviest_row(truth.tolist()) if score == "macro_f1" else 1.0

    def constant(self, truth: Encoded) -> NDArray[np.float64]:
        return np.bincount(truth, minlength=len(self.names)) / len(truth)

    def strata(self, labels: Sequence[str]) -> list[Hashable]:
        return list(labels)

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        return dict(sorted(Counter(labels).items()))

    def strange(self, labels: Sequence[str]) -> list[str]:
        return sorted(set(labels) - set(self.names))


def by_confusion(score: Any, target: Sequence[int], answers: Sequence[int], classes: int) -> NDArray[np.float64]:
    """(N,): what each row does to a smooth score of the confusion table; their mean is the score.

    It is the infinitesimal jackknife: the score plus N times its slope in the cell of the row. Slopes are taken by a
    complex step (Squire and Trapp, 1998), which is exact to the last digit.

    >>> by_confusion(lambda table: np.trace(table) / table.sum(), [0, 1, 1], [0, 0, 1], 2).round(9).tolist()
    [1.0, 0.0, 1.0]
    """
    table = np.array(confusion(target, answers, classes), dtype=complex)
    slopes = np.zeros((classes, classes))
    for cell in zip(*np.nonzero(table), strict=True):
        step = table.copy()
        step[cell] += 1e-30j
        slopes[cell] = score(step).imag / 1e-30
    return np.asarray(score(table).real + len(target) * slopes[np.asarray(target), np.asarray(answers)])


def heaviest_row(target: Sequence[int]) -> float:
    """How much a row of the rarest class weighs in macro-F1; 1, as in accuracy, when the classes are of one size.

    A row of class i that is taken for class j moves a perfect macro-F1 by (1 / n_i + 1 / n_j) / 2C.

    >>> heaviest_row([0, 0, 1, 1]), round(heaviest_row([0] * 90 + [1] * 10), 2)
    (1.0, 2.78)
    """
    counts = np.sort(np.unique(np.asarray(target), return_counts=True)[1])
    return len(target) / (2 * len(counts)) * float((1 / counts[:2]).sum()) if len(counts) > 1 else 1.0
