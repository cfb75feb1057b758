"""Cumulative logits (McCullagh, 1980): one linear score of a text, and cuts on its line between ordered classes. No torch.

P(class <= k) is the logistic function of cut k minus the score. scikit-learn has no such model.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

Vector = NDArray[np.float64]


class CumulativeLogit:
    """Fitted by maximum likelihood with an L2 penalty on the weights; C is the inverse regularization."""

    def __init__(self, c: float, classes: int) -> None:
        self.c, self.classes = c, classes

    def fit(self, rows: Any, target: NDArray[Any]) -> Self:
        """`rows` is a dense or sparse matrix (N, D); `target` the numbers of classes."""
        width, cuts = rows.shape[1], self.classes - 1
        shares = np.cumsum(np.bincount(target, minlength=self.classes) + 0.5)
        first = np.log(shares[:-1] / (shares[-1] - shares[:-1]))
        start = np.concatenate([np.zeros(width), first[:1], np.log(np.diff(first))])

        def loss(parameters: Vector) -> tuple[float, Vector]:
            weight, found = parameters[:width], as_cuts(parameters[width:])
            score = np.asarray(rows @ weight).ravel()
            likely, by_score, by_cut = _slopes(score, found, target)
            of_gaps = np.exp(parameters[width + 1 :])
            later = np.cumsum(by_cut[::-1])[::-1]  # a gap moves its cut and all after it
            slope = np.concatenate(
                [np.asarray(rows.T @ by_score).ravel() + weight / self.c, later[:1], later[1:] * of_gaps]
            )
            return -float(likely.sum()) + float(weight @ weight) / (2 * self.c), slope

        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
        self.coef_, self.cuts_ = found[None, :width], as_cuts(found[width:])
        assert len(self.cuts_) == cuts
        return self

    def outputs(self, rows: Any) -> Vector:
        """The probabilities of the classes, (N, C)."""
        return probabilities(np.asarray(rows @ self.coef_[0]).ravel(), self.cuts_)


def as_cuts(parameters: Vector) -> Vector:
    """Ascending cuts from the first one and the logarithms of the gaps.

    >>> as_cuts(np.array([-1.0, 0.0, 0.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return np.cumsum(np.concatenate([parameters[:1], np.exp(parameters[1:])]))


def probabilities(score: Vector, cuts: Vector) -> Vector:
    """(N, C) from scores (N,)."""
    below = expit(cuts[None, :] - score[:, None])
    edges = np.hstack([np.zeros((len(score), 1)), below, np.ones((len(score), 1))])
    return np.diff(edges, axis=1)


def _slopes(score: Vector, cuts: Vector, target: NDArray[Any]) -> tuple[Vector, Vector, Vector]:
    """Log-likelihoods (N,), and the slopes of the loss by each score (N,) and each cut (C - 1,)."""
    edges = np.concatenate([[-np.inf], cuts, [np.inf]])
    low, high = edges[target] - score, edges[target + 1] - score
    gap = np.where(np.isfinite(high - low), high - low, 1.0)
    inside = np.isfinite(low) & np.isfinite(high)
    likely = log_expit(high) + log_expit(-low) + np.where(inside, np.log1p(-np.exp(-gap)), 0.0)
    shared = np.where(inside, np.exp(-gap) / -np.expm1(-gap), 0.0)
    by_high = np.where(np.isfinite(high), expit(-high), 0.0) + shared
    by_low = -(np.where(np.isfinite(low), expit(low), 0.0) + shared)
    by_cut = np.zeros(len(cuts) + 2)
    np.add.at(by_cut, target + 1, -by_high)
    np.add.at(by_cut, target, -by_low)
    return likely, by_high + by_low, by_cut[1:-1]
