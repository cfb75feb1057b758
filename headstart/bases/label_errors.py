"""Which labels are likely wrong, by the out-of-fold probabilities of several models. No torch.

The models are combined by a log-linear pool, whose weights are fitted to the labels, so that a weak model does not dilute a good one. Rows are ranked by
the margin of the most probable other label over the given one. How many are flagged is the count of confident learning (Northcutt, Jiang and Chuang,
2021): the rows that are confidently of another class than their label, by the mean probability of each class among its own rows.

Shapes: M models, R repeats with other folds, N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-6  # of a probability, so that no model can forbid a class
MOST_WEIGHT = 3.0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Audited:
    """What the models together make of the labels."""

    probabilities: Floats  # (N, C)
    weights: Floats  # (M,), of the models
    margin: Floats  # (N,), of the most probable other label over the given one
    suggested: Ints  # (N,), the most probable other label
    votes: Ints  # (N,), of the models and repeats that find it the most probable
    flagged: Ints  # numbers of the rows with a likely wrong label, the likeliest first


def audited(models: Floats, labels: Ints, judged: NDArray[np.bool_] | None = None) -> Audited:
    """The rows with a likely wrong label, by the out-of-fold probabilities of each model, (M, R, N, C); only those that are `judged`."""
    means = models.mean(1)
    weights = pool_weights(means, labels)
    together = pooled(means, weights)
    rows = np.arange(len(labels))
    others = together.copy()
    others[rows, labels] = -1.0
    suggested = others.argmax(1)
    margin = others[rows, suggested] - together[rows, labels]
    votes = (models.argmax(3) == suggested).sum((0, 1))
    possible = margin > 0 if judged is None else (margin > 0) & judged
    ranked = [i for i in np.argsort(-margin, kind="stable") if possible[i]]
    return Audited(
        together, weights, margin, suggested, votes, np.array(ranked[: confident_errors(together, labels)], int)
    )


def pooled(models: Floats, weights: Floats) -> Floats:
    """The weighted geometric mean of the models, (N, C).

    >>> pooled(np.array([[[0.8, 0.2]], [[0.5, 0.5]]]), np.array([1.0, 1.0])).round(2).tolist()
    [[0.8, 0.2]]
    """
    logs = np.tensordot(weights, np.log(np.maximum(models, LEAST)), 1)
    found: Floats = np.exp(logs - logs.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def pool_weights(models: Floats, labels: Ints) -> Floats:
    """The weights of the models, none negative, under which the labels are most probable."""
    from scipy.optimize import minimize

    logs, rows = np.log(np.maximum(models, LEAST)), np.arange(len(labels))
    own = logs[:, rows, labels]  # (M, N)

    def loss(weights: Floats) -> tuple[float, Floats]:
        together = pooled(models, weights)
        value = -np.log(np.maximum(together[rows, labels], LEAST**2)).mean()
        expected = (together * logs).sum(2)  # (M, N)
        return float(value), (expected - own).mean(1)

    start = np.full(len(models), 1 / len(models))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, MOST_WEIGHT)] * len(models)).x
    return np.asarray(found) if found.any() else start


def confident_errors(probabilities: Floats, labels: Ints) -> int:
    """How many rows are confidently of another class: off the diagonal of the confident joint."""
    classes = probabilities.shape[1]
    own = [probabilities[labels == c, c] for c in range(classes)]
    thresholds = np.array([part.mean() if len(part) else np.inf for part in own])
    confident = probabilities >= thresholds - 1e-6
    best = np.where(confident, probabilities, -1.0).argmax(1)
    return int((confident.any(1) & (best != labels)).sum())
