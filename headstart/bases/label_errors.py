"""Which labels are likely wrong, by the out-of-fold outputs of several models. No torch.

The models are combined by a log-linear pool, whose weights are fitted to the labels, so that a weak model does not dilute a good one. Rows are ranked by
the log odds of the most probable other label against the given one, each probability taken relative to the mean of its class among the rows that have it as
their label: a class that the models predict with less confidence is not suspected more. How many are flagged is the count of confident learning (Northcutt,
Jiang and Chuang, 2021): the rows that are confidently of another class than their label, by the same means.

Of several labels each is judged alone, as the two classes "has it" and "has it not". Numbers are judged by how far they are from a weighted mean of the
models, in robust standard deviations of that distance: as far as, among so many normal errors, less than one is expected to be.

Shapes: M models, R repeats with other folds, N rows, C classes, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-6  # of a probability, so that no model can forbid a class
MOST_WEIGHT = 3.0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Audited:
    """What the models together make of the labels."""

    weights: Floats  # (M,), of the models
    margin: Floats  # (N,), by which rows are ranked: relative log odds of the other label against the given one; of numbers, the deviation
    suggested: NDArray[
        Any
    ]  # encoded as labels are: the most probable other class, the other labels, the number that is expected
    confidence: Floats  # (N,), the probability of what is suggested; of numbers, the deviation
    votes: Ints  # (N,), of the models and repeats that would suggest the same
    flagged: Ints  # numbers of the rows with a likely wrong label, the likeliest first


def audited(models: Floats, labels: Ints, judged: NDArray[np.bool_] | None = None) -> Audited:
    """The rows with a likely wrong class, by the out-of-fold probabilities of each model, (M, R, N, C); only those that are `judged`."""
    means = models.mean(1)
    weights = pool_weights(means, labels)
    together = pooled(means, weights)
    rows = np.arange(len(labels))
    others = together.copy()
    others[rows, labels] = -1.0
    suggested, usual = others.argmax(1), own_means(together, labels)
    margin = _relative(together, suggested, usual) - _relative(together, labels, usual)
    votes = (models.argmax(3) == suggested).sum((0, 1))
    possible = others[rows, suggested] > together[rows, labels]
    if judged is not None:
        possible &= judged
    ranked = [i for i in np.argsort(-margin, kind="stable") if possible[i]]
    flagged = np.array(ranked[: confident_errors(together, labels)], int)
    return Audited(weights, margin, suggested, together[rows, suggested], votes, flagged)


def audited_labels(models: Floats, labels: NDArray[Any], judged: NDArray[np.bool_]) -> Audited:
    """The rows with a label too many or too few, (N, L), by the out-of-fold probabilities of each model, (M, R, N, L); of the labels (L,) that are `judged`.

    A row has the margin, the confidence and the votes of its surest change.
    """
    there, found = labels.astype(np.int64), list[Audited]()
    for i in np.flatnonzero(judged):
        found.append(audited(np.stack([1 - models[..., i], models[..., i]], axis=-1), there[:, i]))
    count, suggested = len(labels), labels.copy()
    if not found:
        nothing = np.zeros(count)
        return Audited(np.zeros(len(models)), nothing, suggested, nothing, nothing.astype(int), np.zeros(0, int))
    wrong = np.zeros((count, len(found)), dtype=bool)
    for place, each in enumerate(found):
        wrong[each.flagged, place] = True
    suggested[:, judged] = np.where(wrong, 1 - labels[:, judged], labels[:, judged])
    margins = np.where(wrong, np.stack([each.margin for each in found], axis=1), -np.inf)
    surest, rows = margins.argmax(1), np.arange(count)
    margin = margins[rows, surest]
    confidence, votes = (
        np.stack(part, axis=1)[rows, surest]
        for part in ([each.confidence for each in found], [each.votes for each in found])
    )
    ranked = np.argsort(-margin, kind="stable")[: np.count_nonzero(wrong.any(1))]  # the others have no change
    weights = np.mean([each.weights for each in found], axis=0)
    return Audited(weights, margin, suggested, confidence, votes, ranked)


def audited_numbers(models: Floats, numbers: Floats) -> Audited:
    """The rows whose number is far from what is expected, by the out-of-fold predictions of each model, (M, R, N)."""
    from scipy.optimize import nnls

    truth = numbers.astype(np.float64)
    weights = nnls(models.mean(1).T, truth)[0]
    expected = np.tensordot(weights, models.mean(1), 1)
    most = -NormalDist().inv_cdf(0.5 / len(truth))  # less than one of so many normal errors is further off
    deviation, away = deviations(truth - expected), deviations(truth - models)
    votes = ((np.abs(away) > most) & (np.sign(away) == np.sign(deviation))).sum((0, 1))
    ranked = np.argsort(-np.abs(deviation), kind="stable")
    flagged = ranked[np.abs(deviation)[ranked] > most]
    return Audited(weights, np.abs(deviation), expected, np.abs(deviation), votes, flagged)


def deviations(errors: Floats) -> Floats:
    """Errors in robust standard deviations along the last axis: of normal errors, 1.4826 times their median size.

    >>> deviations(np.array([-1.0, 0.5, 1.0, 20.0])).round(2).tolist()
    [-0.67, 0.34, 0.67, 13.49]
    """
    spread = 1.4826 * np.median(np.abs(errors), axis=-1, keepdims=True)
    return np.asarray(errors / np.maximum(spread, LEAST))


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
    confident = probabilities >= own_means(probabilities, labels) - 1e-6
    best = np.where(confident, probabilities, -1.0).argmax(1)
    return int((confident.any(1) & (best != labels)).sum())


def own_means(probabilities: Floats, labels: Ints) -> Floats:
    """The mean probability of each class among the rows that have it as their label, (C,); without such rows infinite, so that it is never confident."""
    own = [probabilities[labels == c, c] for c in range(probabilities.shape[1])]
    return np.array([part.mean() if len(part) else np.inf for part in own])


def _relative(probabilities: Floats, classes: Ints, usual: Floats) -> Floats:
    """The logarithm of the probability of one class per row, against what is usual for it, (N,)."""
    rows = np.arange(len(classes))
    return np.log(np.maximum(probabilities[rows, classes], LEAST)) - np.log(usual[classes])
