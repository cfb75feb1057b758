"""A head that fits the base as it is, before anything learns: logistic regression on what the base makes of the rows.

A random head pulls at the base before it knows what it wants, and much of what was pretrained is lost to that (Kumar
and others, 2022). Fitted first, fine-tuning begins where a linear probe ends.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.models.heads import ClassHead
from headstart.train.regression import fit_regression

STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # inverse regularization, chosen on the validation rows
USUAL = 0.01  # where there are none
FLOOR = 0.05  # of the size of the numbers: what varies less than that is not blown up to count as much as the rest
MOST_ROWS = 10_000  # that the regression is given; more take minutes and change little

Rows = tuple[Tensor, list[int]]  # vectors (rows, D), and their classes


def rows_to_fit(count: int) -> list[int]:
    """The numbers of the rows that the regression is given: all, or some from everywhere, as files are often sorted."""
    return sorted(np.random.default_rng(0).permutation(count)[:MOST_ROWS].tolist())


def fit_head(head: ClassHead, train: Rows, valid: Rows) -> float | None:
    """Give `head` the weights of a logistic regression; its strength, or None where a class has no rows to fit."""
    features, target = train[0].cpu().numpy(), np.array(train[1])
    classes = head.linear.out_features
    if len(set(target.tolist())) < max(2, classes):
        return None
    biased = head.linear.bias is not None
    mean = features.mean(0) if biased else np.zeros_like(features[0])  # what is taken away, only a bias can give back
    scale = np.hypot(features.std(0), FLOOR * np.sqrt(np.mean(features**2)))
    strength, best = fit_regression(
        ((features - mean) / scale, target),
        ((valid[0].cpu().numpy() - mean) / scale, valid[1]) if valid[1] else None,
        STRENGTHS,
        USUAL,
        dict(enumerate(head.weights.tolist())),
        biased,
    )
    weight, bias = _for_each_class(best.coef_, best.intercept_)
    weight = weight / scale
    _put(head.linear.weight, weight)
    if biased:
        _put(head.linear.bias, bias - weight @ mean)
    return strength


def _for_each_class(weight: NDArray[np.float64], bias: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Scores of two classes, where the regression has one score for the second of them."""
    return (weight, bias) if len(weight) > 1 else (np.vstack([-weight, weight]) / 2, np.hstack([-bias, bias]) / 2)


def _put(parameter: Tensor, values: NDArray[np.float64]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values))
