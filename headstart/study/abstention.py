"""What abstaining would gain: the accuracy on the rows that an arm is surest of, against their share. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.study.results import Abstention, Calibration
from headstart.study.taken import CellResult
from headstart.targets.class_scores import brier, calibration_error

SHARES = 20  # points of the curve


def abstention(probabilities: NDArray[np.float64], target: NDArray[np.int64]) -> Abstention:
    """The curve of an arm, from probabilities (S, N, C): the mean over seeds of the accuracy on the surest rows."""
    rows = len(target)
    counts = sorted({max(1, round(rows * share / SHARES)) for share in range(1, SHARES + 1)})
    surest = np.argsort(-probabilities.max(2), axis=1, kind="stable")  # (S, N)
    right = np.take_along_axis(probabilities.argmax(2) == target, surest, axis=1)
    among = right.cumsum(1) / np.arange(1, rows + 1)  # (S, N): accuracy on the 1, 2, ... surest rows
    return Abstention(coverage=[n / rows for n in counts], accuracy=among.mean(0)[[n - 1 for n in counts]].tolist())


def calibration(
    probabilities: NDArray[np.float64], target: Sequence[int], results: Sequence[CellResult]
) -> Calibration:
    """Calibration error and Brier score, means over seeds; and the error before temperature scaling, where all seeds had it."""
    found = [(calibration_error(p, target), brier(p, target)) for p in probabilities]
    ece, brier_score = np.mean(found, axis=0).tolist()
    tested = [(result.get("calibration") or {}).get("test") for result in results]
    before = [test["ece_before"] for test in tested if test]
    known = before and len(before) == len(results)
    return Calibration(ece=ece, brier=brier_score, ece_before=float(np.mean(before)) if known else None)
