"""Scores of classes: accuracy with its interval, macro-F1, precision and recall by class, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

IMBALANCED = 2.0  # times as many rows of the majority class as of the rarest: macro-F1 leads


class ClassScores(TypedDict):
    """The scores of a classifier over all rows."""

    accuracy: float
    interval: list[float]  # of the accuracy, 95 %
    macro_f1: float
    rows: int


class PerClassScores(TypedDict):
    """The scores of one class; None where there is nothing to divide by."""

    rows: int  # that have this class
    precision: float | None
    recall: float | None
    f1: float | None


def accuracy_interval(right: int, rows: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for `right` of `rows`.

    >>> [round(x, 3) for x in accuracy_interval(211, 240)]
    [0.832, 0.915]
    """
    z = NormalDist().inv_cdf((1 + level) / 2)  # scipy.stats has the interval, and loads for as long as torch
    share, both = right / rows, 2 * (rows + z**2)
    centre, reach = (2 * right + z**2) / both, z / both * math.sqrt(4 * right * (1 - share) + z**2)
    return 0.0 if right == 0 else centre - reach, 1.0 if right == rows else centre + reach


def confusion(target: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    """Counts by true class (row) and predicted class (column)."""
    counts = np.zeros((classes, classes), dtype=int)
    np.add.at(counts, (np.asarray(target, dtype=int), np.asarray(predicted, dtype=int)), 1)
    return counts.tolist()


def class_scores(target: Sequence[int], predicted: Sequence[int], classes: int) -> ClassScores:
    """Accuracy with its interval and macro-F1 over the classes that occur."""
    counts = np.array(confusion(target, predicted, classes))
    right, rows = int(np.trace(counts)), int(counts.sum())
    return {
        "accuracy": right / rows,
        "interval": list(accuracy_interval(right, rows)),
        "macro_f1": float(macro_f1(counts)),
        "rows": rows,
    }


def scores_by_class(target: Sequence[int], predicted: Sequence[int], classes: int) -> list[PerClassScores]:
    """Rows, precision, recall and F1 of each class; None where there is nothing to divide by.

    >>> scores_by_class([0, 0], [0, 1], 3)[1:]
    [{'rows': 0, 'precision': 0.0, 'recall': None, 'f1': 0.0}, {'rows': 0, 'precision': None, 'recall': None, 'f1': None}]
    """
    counts = np.array(confusion(target, predicted, classes))

    def share(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    return [
        {
            "rows": rows,
            "precision": share(right, found),
            "recall": share(right, rows),
            "f1": share(2 * right, rows + found),
        }
        for right, rows, found in zip(
            *(each.tolist() for each in (counts.diagonal(), counts.sum(1), counts.sum(0))), strict=True
        )
    ]


def is_imbalanced(counts: Sequence[int]) -> bool:
    """Whether classes with so many rows call for macro-F1 instead of accuracy.

    >>> is_imbalanced([50, 40]), is_imbalanced([90, 10])
    (False, True)
    """
    return max(counts) > IMBALANCED * min(counts)


def macro_f1(counts: NDArray[Any]) -> Any:
    """The mean F1 of the classes that occur, from a confusion table; smooth in its counts, which may be complex."""
    either = counts.sum(0) + counts.sum(1)
    present = either != 0
    return (2 * np.diag(counts)[present] / either[present]).mean()


def brier(probabilities: NDArray[np.float64], target: Sequence[int]) -> float:
    """Mean squared distance of the probabilities (N, C) from the truth; halved for two classes, as is the custom.

    >>> brier(np.array([[0.8, 0.2], [0.4, 0.6]]), [0, 1])
    0.1
    """
    truth = np.eye(probabilities.shape[1])[np.asarray(target)]
    distance = float(((probabilities - truth) ** 2).sum(1).mean())
    return distance / 2 if probabilities.shape[1] == 2 else distance


def calibration_error(probabilities: NDArray[np.float64], target: Sequence[int], bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over equal bins of the top probability.

    >>> calibration_error(np.array([[0.9, 0.1], [0.9, 0.1]]), [0, 1])
    0.4
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == np.asarray(target)
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # bins hold their upper edge
    gaps = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities of the classes, (N, C)."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
