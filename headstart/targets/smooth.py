"""Scores as smooth functions of sums over rows, and what each row does to them.

Accuracy, F1, kappa and R2 are functions of sums: of the cells of a confusion table, of true positives, of squared errors.
Their infinitesimal jackknife gives each row a value whose mean is the score, so that one analysis of variance serves all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]  # (N, K): what each row adds to each of K sums
Score = Callable[[NDArray[Any]], Any]  # of the K sums, which may be complex; the same for twice as many of each row


def pseudo_values(score: Score, rows: Rows) -> NDArray[np.float64]:
    """(N,): the score plus N times its slope in the direction of each row; their mean is the score.

    Slopes are taken by a complex step (Squire and Trapp, 1998), which is exact to the last digit.

    >>> pseudo_values(lambda sums: sums[0] / sums[1], np.array([[1.0, 1.0], [0.0, 1.0]])).tolist()
    [1.0, 0.0]
    """
    sums = rows.sum(0).astype(complex)
    slopes = np.zeros(len(sums))
    for k in np.flatnonzero(rows.any(0)):
        step = sums.copy()
        step[k] += 1e-30j
        slopes[k] = score(step).imag / 1e-30
    return np.asarray(score(sums).real + len(rows) * (rows @ slopes))
