"""Sparse rows in the span of the training rows: the same linear models, by scikit-learn on both."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_info, threadpool_limits

from headstart.bases import regression, span
from headstart.bases.span import in_span

RNG = np.random.default_rng(0)
TRAIN, TEST = (csr_matrix(random_array((n, 300), density=0.05, rng=RNG)) for n in (40, 25))
CLASSES = np.arange(40) % 3


def test_a_logistic_regression_predicts_the_same_in_the_span():
    found = in_span({"train": TRAIN, "test": TEST})
    both = [
        LogisticRegression(C=10, tol=1e-10, max_iter=10_000).fit(fitted, CLASSES).predict_proba(rows)
        for fitted, rows in ((TRAIN, TEST), (found["train"], found["test"]))
    ]
    assert found["train"].shape == (40, 40)
    np.testing.assert_allclose(both[1], both[0], atol=1e-6)


def test_so_does_ridge_regression_on_part_of_the_rows():
    numbers, part = RNG.normal(size=40), slice(0, 30)  # a fold of a cross-validation
    found = in_span({"train": TRAIN, "test": TEST})
    theirs = Ridge(0.1).fit(TRAIN[part].toarray(), numbers[part]).predict(TEST.toarray())
    ours = Ridge(0.1).fit(found["train"][part], numbers[part]).predict(found["test"])
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_rows_that_stand_twice_have_one_axis():
    twice = csr_matrix(np.vstack([TRAIN.toarray()] * 2))
    found = in_span({"train": twice})["train"]
    assert found.shape == (80, 40)
    np.testing.assert_allclose(found @ found.T, (twice @ twice.T).toarray(), atol=1e-12)


@pytest.mark.parametrize("rows", [TRAIN[:, :20], TRAIN.toarray()], ids=["few columns", "dense"])
def test_other_rows_stay_as_they_are(rows):
    assert in_span({"train": rows})["train"] is rows


def test_many_other_rows_stay_sparse(monkeypatch):
    monkeypatch.setattr(span, "MOST_OTHERS", 39)
    assert in_span({"train": TRAIN})["train"] is TRAIN


def test_many_rows_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(span, "MOST_ROWS", 39)
    assert in_span({"train": TRAIN})["train"] is TRAIN


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_blas_has_one_thread_while_a_regression_is_fitted(monkeypatch):
    seen = []

    class Counting(LogisticRegression):
        def fit(self, *rows):
            seen.append(blas_threads())
            return super().fit(*rows)

    monkeypatch.setattr(regression, "linear_model", lambda *_: Counting())
    with threadpool_limits(2, "blas"):
        regression.fit_regression((TRAIN.toarray(), CLASSES), None, (1.0, 10.0), 1.0)
        assert blas_threads() == {2}
    assert seen
    assert set.union(*seen) == {1}
