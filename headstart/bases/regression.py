"""Logistic regression with C (inverse regularization) chosen on rows that it was not fitted to. No torch.

With ENOUGH validation rows C is chosen on them; with fewer, by cross-validation on the training rows, because the best
of several on sixty rows is mostly chance. Another C than the usual one must be better by one standard error of the
paired difference (Breiman and others, 1984).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENOUGH = 400  # validation rows to choose on
FOLDS = 5
FLOOR = 0.05  # of the root mean square of all features: features that vary less are not scaled up to unit variance

Rows = tuple[Any, Any]  # a matrix of features, one row per text, and the classes, as scikit-learn takes them
Hits = NDArray[np.bool_]  # for each held-out row, whether it was classified correctly


@dataclass(frozen=True)
class Regression:
    c: float
    model: Any  # scikit-learn's, fitted to all training rows
    hits: Hits  # of the chosen C; empty where there were too few rows to hold any out


@dataclass(frozen=True)
class Standard:
    """Features with mean 0 and variance 1 on the training rows; those that hardly vary are not scaled up as far."""

    mean: Any  # (D,)
    scale: Any  # (D,)

    @classmethod
    def of(cls, features: Any, centred: bool = True) -> Standard:
        mean = features.mean(0) if centred else np.zeros_like(features[0])
        return cls(mean, np.hypot(features.std(0), FLOOR * np.sqrt(np.mean(features**2))))

    def __call__(self, features: Any) -> Any:
        return (features - self.mean) / self.scale

    def unit(self, features: Any) -> Any:
        """The same with length 1 on average, as rows of TF-IDF have."""
        return self(features) / np.sqrt(len(self.mean))


def fit_regression(
    train: Rows,
    valid: Rows | None,
    cs: Sequence[float],
    usual: float,
    importance: Mapping[Any, float] | None = None,
    intercept: bool = True,
) -> Regression:
    """A logistic regression on `train`; `usual` is its C unless another of `cs` is clearly better on held-out rows."""
    from sklearn.linear_model import LogisticRegression

    def unfitted(c: float) -> Any:
        return LogisticRegression(C=c, max_iter=1000, class_weight=importance, fit_intercept=intercept)

    chosen, hits = usual, held_out_hits(unfitted(usual), train, valid)
    if len(hits):
        tried = {c: hits if c == usual else held_out_hits(unfitted(c), train, valid) for c in cs}
        best = max(tried, key=lambda c: (tried[c].mean(), -c))
        if clearly_better(tried[best], hits):
            chosen, hits = best, tried[best]
    return Regression(chosen, unfitted(chosen).fit(*train), hits)


def held_out_hits(model: Any, train: Rows, valid: Rows | None) -> Hits:
    """Which held-out rows `model` classifies correctly: validation rows if there are ENOUGH, otherwise each training row."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    if valid and len(valid[1]) >= ENOUGH:
        return np.asarray(model.fit(*train).predict(valid[0]) == np.asarray(valid[1]))
    target = np.asarray(train[1])
    rarest = int(np.unique(target, return_counts=True)[1].min())
    if rarest < 2:
        return np.zeros(0, dtype=bool)
    folds = StratifiedKFold(min(FOLDS, rarest), shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence: this only chooses
        return np.asarray(cross_val_predict(model, train[0], target, cv=folds) == target)


def clearly_better(a: Hits, b: Hits, errors: float = 1.0) -> bool:
    """Whether `a` is right more often than `b` on the same rows, by so many standard errors of the difference."""
    difference = a.astype(float) - b
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > errors * error * (1 + 1e-9))  # one row that differs is one standard error exactly
