"""Scores against scikit-learn's, scipy's and counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    precision_recall_fscore_support,
)

from headstart.targets.class_scores import (
    accuracy_interval,
    brier,
    calibration_error,
    class_scores,
    confusion,
    scores_by_class,
)
from headstart.tasks.metrics import language_scores, prefix_entropy


@pytest.mark.parametrize("classes", [2, 5])
def test_class_scores_are_those_of_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    target, predicted = rng.integers(classes, size=(2, 300)).tolist()
    found = class_scores(target, predicted, classes)
    assert found["accuracy"] == pytest.approx(accuracy_score(target, predicted))
    assert found["macro_f1"] == pytest.approx(f1_score(target, predicted, average="macro"))
    assert confusion(target, predicted, classes) == confusion_matrix(target, predicted).tolist()


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (37, 50), (0, 2000), (1999, 2000), (2000, 2000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_of_a_proportion_is_that_of_scipy(right: int, rows: int, level: float) -> None:
    theirs = binomtest(right, rows).proportion_ci(level, method="wilson")
    assert accuracy_interval(right, rows, level) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_precision_recall_and_f1_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, rows = rng.integers(2, 6), rng.integers(1, 20)  # so that some classes do not occur, or are not predicted
    target, predicted = rng.integers(0, classes, rows).tolist(), rng.integers(0, classes, rows).tolist()
    theirs = precision_recall_fscore_support(target, predicted, labels=range(classes), zero_division=np.nan)
    found = [list(row.values()) for row in scores_by_class(target, predicted, classes)]
    ours = np.array([row[1:] + row[:1] for row in found], dtype=float)  # None becomes NaN
    np.testing.assert_allclose(ours, np.array(theirs, dtype=float).T)


@pytest.mark.parametrize("classes", [2, 5])
def test_brier_is_that_of_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    target = rng.integers(classes, size=200).tolist()
    probabilities = rng.dirichlet(np.ones(classes), 200)
    given = probabilities[:, 1] if classes == 2 else probabilities
    assert brier(probabilities, target) == pytest.approx(brier_score_loss(target, given, labels=range(classes)))


def test_calibration_error_is_the_gap_between_confidence_and_accuracy() -> None:
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.5, 1, 20_000)
    probabilities = np.stack([sure, 1 - sure], 1)
    honest, boastful = rng.random(20_000) > sure, rng.random(20_000) > sure - 0.1  # 1 where class 0 is wrong
    assert calibration_error(probabilities, honest.astype(int).tolist()) < 0.02
    assert calibration_error(probabilities, boastful.astype(int).tolist()) == pytest.approx(0.1, abs=0.01)
    # Gaps of opposite sign in two bins do not cancel; in one bin they do.
    one, other = [[0.9, 0.1]] * 10, [[0.6, 0.4]] * 10
    wrong = [0] * 8 + [1] * 2 + [0] * 7 + [1] * 3
    assert calibration_error(np.array(one + other), wrong) == pytest.approx(0.1)
    assert calibration_error(np.array(one + other), wrong, bins=1) == pytest.approx(0)
    assert calibration_error(np.array([[1.0, 0.0]] * 4), [0] * 4) == 0


def test_entropy_given_the_prefix_is_counted() -> None:
    # After [0]: 1 twice, 2 twice -> ln 2, four times; after [0, 1]: 3, 3 -> 0; after [0, 2]: 3, 4 -> ln 2, twice.
    rows = [[0, 1, 3], [0, 1, 3], [0, 2, 3], [0, 2, 4]]
    assert prefix_entropy(rows) == pytest.approx((4 * math.log(2) + 2 * math.log(2)) / 8)


def test_a_loss_of_one_bit_a_token_is_two_in_perplexity() -> None:
    found = language_scores(nats=10 * math.log(2), tokens=10, text_bytes=5)
    assert found == {
        "loss": pytest.approx(math.log(2)),
        "perplexity": pytest.approx(2.0),
        "bits_per_byte": pytest.approx(2.0),
    }


def test_a_loss_per_token_is_no_whole_number() -> None:
    found = language_scores(nats=3.0, tokens=2.0, text_bytes=None)
    assert (found["loss"], found["perplexity"]) == (1.5, pytest.approx(math.exp(1.5)))
    assert found["bits_per_byte"] is None
