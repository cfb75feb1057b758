"""Probabilities that agree with how often they are right: temperature scaling and conformal label sets. No torch.

Temperature scaling (Guo et al. 2017) divides all logits by one number, fitted on held-out rows. Split conformal prediction
(Vovk et al. 2005) with the least ambiguous sets (LAC; Sadinle et al. 2019) gives each text the labels whose probability is
at least a threshold, chosen on held-out rows so that the right label is among them as often as was asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import softmax

FEWEST_ROWS = 30  # to fit a temperature on
COLDEST, HOTTEST = 0.01, 100.0  # temperatures that are considered


def fit_temperature(logits: NDArray[np.float64], target: Sequence[int]) -> float:
    """The temperature T at which softmax(logits / T) has the lowest negative log-likelihood, logits being (N, C).

    Targets are smoothed as Platt (1999) does: N rows that are all right give no reason to be surer than (N + 1) / (N + 2).
    The loss is convex in 1 / T, so its slope has one zero.
    """
    from scipy.optimize import brentq

    rows, classes = logits.shape
    surest = (rows + 1) / (rows + 2)
    truth = np.full(logits.shape, (1 - surest) / (classes - 1))
    truth[np.arange(rows), np.asarray(target)] = surest

    def slope(inverse: float) -> float:
        return float(((softmax(inverse * logits) - truth) * logits).sum(1).mean())

    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(low) >= 0:
        return HOTTEST
    return COLDEST if slope(high) <= 0 else 1 / float(brentq(slope, low, high))


def before_temperature(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """The probabilities that were divided by a temperature, as they were before.

    >>> before_temperature(softmax(np.array([[1.0, 0.0]]) / 2), 2).round(4).tolist() == softmax(np.array([[1.0, 0.0]])).round(4).tolist()
    True
    """
    powers = probabilities**temperature
    return powers / powers.sum(1, keepdims=True)


def nonconformity(probabilities: NDArray[np.float64], target: Sequence[int]) -> list[float]:
    """1 - the probability of the right label, of each held-out row; sorted.

    >>> nonconformity(np.array([[0.5, 0.5], [0.25, 0.75]]), [0, 1])
    [0.25, 0.5]
    """
    right = probabilities[np.arange(len(probabilities)), np.asarray(target)]
    return sorted((1 - right).tolist())


def rows_for(coverage: float) -> int:
    """The fewest held-out rows with which a coverage can be had.

    >>> rows_for(0.9), rows_for(0.95)
    (9, 19)
    """
    return math.ceil(round(coverage / (1 - coverage), 9))


def threshold(scores: Sequence[float], coverage: float) -> float:
    """The largest nonconformity that a label in a set may have: the ceil((n + 1) * coverage)-th smallest score of n.

    >>> threshold([0.1, 0.2, 0.3, 0.4], 0.5)
    0.3
    """
    place = math.ceil(round((len(scores) + 1) * coverage, 9))  # 0.7 * 10 is a little more than 7
    assert place <= len(scores), f"{len(scores)} scores do not allow a coverage of {coverage}"
    return sorted(scores)[place - 1]


def label_set(labels: Sequence[str], probabilities: Sequence[float], largest: float) -> list[str]:
    """The labels with a nonconformity up to `largest`, most probable first; there may be none.

    >>> label_set(["a", "b", "c"], [0.3, 0.6, 0.1], 0.75)
    ['b', 'a']
    """
    ranked = sorted(range(len(labels)), key=lambda i: -probabilities[i])
    return [labels[i] for i in ranked if 1 - probabilities[i] <= largest]
