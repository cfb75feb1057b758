"""Linear models with C (inverse regularization) chosen on rows that they were not fitted to. No torch.

Logistic regression for classes, one for each of several labels, cumulative logits for ordered classes, ridge regression
for numbers.

With ENOUGH validation rows C is chosen on them; with fewer, by cross-validation on the training rows, because the best
of several on sixty rows is mostly chance. Another C than the usual one must be better by one standard error of the
paired difference (Breiman and others, 1984).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headstart.bases.ordinal import CumulativeLogit
from headstart.targets.target import Outputs, Target
from headstart.targets.tasks import TARGETS
from headstart.task import Task

ENOUGH = 400  # validation rows to choose on
FOLDS = 5
FLOOR = 0.05  # of the root mean square of all features: features that vary less are not scaled up to unit variance

Rows = tuple[Any, Any]  # a matrix of features, one row per text, and the encoded labels, as scikit-learn takes them
# For each held-out row, whether it was classified correctly; of several labels and ordered classes the log-likelihood, of a number minus the squared error.
Hits = NDArray[Any]


@dataclass(frozen=True)
class Regression:
    c: float
    model: Any  # scikit-learn's, fitted to all training rows
    hits: Hits  # of the chosen C; empty where there were too few rows to hold any out

    def outputs(self, rows: Any, target: Target) -> Outputs:
        """What it predicts for each row, (N, K)."""
        if target.task != "classify":
            return outputs_of(self.model, rows)
        found = np.zeros((rows.shape[0], len(target.names)))
        found[:, self.model.classes_] = self.model.predict_proba(rows)
        return found


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
    task: Task = "classify",
    classes: int = 0,
) -> Regression:
    """A linear model on `train`; `usual` is its C unless another of `cs` is clearly better on held-out rows.

    Without `cs` nothing is chosen, and no rows are held out.
    """

    def unfitted(c: float) -> Any:
        return linear_model(task, c, classes, importance, intercept)

    with one_thread():
        chosen, hits = usual, held_out_hits(unfitted(usual), train, valid) if cs else np.zeros(0)
        if len(hits):
            tried = {c: hits if c == usual else held_out_hits(unfitted(c), train, valid) for c in cs}
            best = max(tried, key=lambda c: (tried[c].mean(), -c))
            if clearly_better(tried[best], hits):
                chosen, hits = best, tried[best]
        return Regression(chosen, unfitted(chosen).fit(*train), hits)


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS on one thread: L-BFGS takes dot products of vectors so short that the threads mostly wait for each other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield


def linear_model(
    task: Task,
    c: float,
    classes: int,
    importance: Mapping[Any, float] | None = None,
    intercept: bool = True,
    most_steps: int = 1000,
) -> Any:
    """The linear model of a task, not yet fitted."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if TARGETS[task].numeric:
        return Ridge(1 / c, fit_intercept=intercept)
    if task == "ordinal":
        return CumulativeLogit(c, classes)
    logistic = LogisticRegression(C=c, max_iter=most_steps, class_weight=importance, fit_intercept=intercept)
    return OnePerLabel(logistic) if task == "multilabel" else logistic


class OnePerLabel:
    """A logistic regression for each label; a label that all rows have, or none, is predicted for all, or none."""

    def __init__(self, logistic: Any) -> None:
        self.logistic = logistic

    def fit(self, rows: Any, labels: NDArray[Any]) -> Self:
        from sklearn.base import clone

        width, count = rows.shape[1], labels.shape[1]
        self.coef_, self.intercept_ = np.zeros((count, width)), np.zeros(count)
        for i, there in enumerate(labels.T.astype(bool)):
            if there.all() or not there.any():
                self.intercept_[i] = np.log((there.sum() + 0.5) / (len(there) - there.sum() + 0.5))
                continue
            fitted = clone(self.logistic).fit(rows, there)
            self.coef_[i], self.intercept_[i] = fitted.coef_[0], float(np.ravel(fitted.intercept_)[0])
        return self


def outputs_of(model: Any, rows: Any) -> Outputs:
    """The outputs of a linear model of several labels, ordered classes or numbers, (N, K)."""
    if isinstance(model, CumulativeLogit):
        return model.outputs(rows)
    found = np.asarray(rows @ np.atleast_2d(model.coef_).T) + model.intercept_
    return 1 / (1 + np.exp(-found)) if isinstance(model, OnePerLabel) else found


def _quality(model: Any, rows: Any, truth: NDArray[Any]) -> Hits:
    """(N,): how well each row is predicted."""
    found = outputs_of(model, rows)
    if isinstance(model, CumulativeLogit):
        return np.log(np.clip(found[np.arange(len(truth)), truth], 1e-12, 1))
    if not isinstance(model, OnePerLabel):
        return -((found[:, 0] - truth) ** 2)
    likely = np.clip(np.where(truth.astype(bool), found, 1 - found), 1e-12, 1)
    return np.log(likely).mean(1)


def _held_out_quality(model: Any, train: Rows, valid: Rows | None) -> Hits:
    from sklearn.model_selection import KFold

    rows, truth = train
    if valid and len(valid[1]) >= ENOUGH:
        return _quality(model.fit(*train), *valid)
    if len(truth) < 2 * FOLDS:
        return np.zeros(0)
    found = np.zeros(len(truth))
    for fitted, held_out in KFold(FOLDS, shuffle=True, random_state=0).split(truth):
        found[held_out] = _quality(model.fit(rows[fitted], truth[fitted]), rows[held_out], truth[held_out])
    return found


def held_out_hits(model: Any, train: Rows, valid: Rows | None) -> Hits:
    """Whether `model` is right on held-out rows: validation rows if there are ENOUGH, otherwise each training row."""
    return _held_out(model, train, valid, _right)


def held_out_likelihood(model: Any, train: Rows, valid: Rows | None) -> Hits:
    """The same by the log-probability of the right class: of many models, the best is chosen with less noise."""
    return _held_out(model, train, valid, _log_probability)


def _right(model: Any, rows: Any, target: NDArray[Any]) -> Hits:
    return np.asarray(model.predict(rows) == target)


def _log_probability(model: Any, rows: Any, target: NDArray[Any]) -> Hits:
    right = model.classes_[None] == target[:, None]  # a class that no training row has is given no probability
    return np.log(np.maximum((model.predict_proba(rows) * right).sum(1), 1e-6))


def _held_out(model: Any, train: Rows, valid: Rows | None, judge: Callable[[Any, Any, NDArray[Any]], Hits]) -> Hits:
    from sklearn import config_context
    from sklearn.model_selection import StratifiedKFold

    if not hasattr(model, "predict_proba"):
        return _held_out_quality(model, train, valid)
    if valid and len(valid[1]) >= ENOUGH:
        return judge(model.fit(*train), valid[0], np.asarray(valid[1]))
    rows, target = train[0], np.asarray(train[1])
    rarest = int(np.unique(target, return_counts=True)[1].min())
    if rarest < 2:
        return np.zeros(0)
    folds = StratifiedKFold(min(FOLDS, rarest), shuffle=True, random_state=0)
    found = np.zeros(len(target))
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore")  # of slow convergence: this only chooses
        for fitted, held_out in folds.split(target, target):
            found[held_out] = judge(model.fit(rows[fitted], target[fitted]), rows[held_out], target[held_out])
    return found


def clearly_better(a: Hits, b: Hits, errors: float = 1.0) -> bool:
    """Whether `a` is right more often than `b` on the same rows, by so many standard errors of the difference."""
    difference = a.astype(float) - b
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > errors * error * (1 + 1e-9))  # one row that differs is one standard error exactly
