"""Logistic regression, as strong as does best on the validation rows. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = tuple[Any, Any]  # a matrix of features, a row a text, and the classes, as scikit-learn takes them


def fit_regression(
    train: Rows,
    valid: Rows | None,
    strengths: Sequence[float],
    usual: float,
    importance: Mapping[Any, float] | None = None,
    intercept: bool = True,
) -> tuple[float, Any]:
    """The inverse regularization that was chosen, the least of equals, and its model; `usual` without validation rows."""
    from sklearn.linear_model import LogisticRegression

    tried = []
    for strength in strengths if valid else (usual,):
        model = LogisticRegression(C=strength, max_iter=1000, class_weight=importance, fit_intercept=intercept)
        model.fit(*train)
        tried.append((model.score(*valid) if valid else 0.0, -strength, model))
    _, least, best = max(tried, key=lambda entry: entry[:2])
    return -least, best
