from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel

from headstart.study.compare import Difference, paired_difference, verdict


def test_the_difference_of_one_seed_is_the_paired_test_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random((1, 4000)) < 0.7).astype(float), (rng.random((1, 4000)) < 0.66).astype(float)
    found = paired_difference(a, b)
    theirs = ttest_rel(a[0], b[0]).confidence_interval()
    assert found.points == pytest.approx(100 * (a.mean() - b.mean()))
    assert (found.low, found.high) == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=0.02)


def test_equal_arms_differ_by_nothing() -> None:
    a = np.array([[1.0, 0.0, 1.0, 1.0]] * 2)
    found = paired_difference(a, a)
    assert found.points == 0
    assert not found.clear


def test_a_few_rows_that_differ_are_no_proof() -> None:
    # 4 of 2,000 rows differ, all one way: exact McNemar gives p = 0.125.
    a, b = np.ones((1, 2000)), np.ones((1, 2000))
    b[0, :4] = 0
    assert not paired_difference(a, b).clear
    assert not paired_difference(np.ones((1, 3)), np.zeros((1, 3))).clear
    b[0, :40] = 0
    assert paired_difference(a, b).clear


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference(3.0, 1.0, 5.0, 2), "beats"),
        (Difference(-3.0, -5.0, -1.0, 2), "loses to scratch by 3.0 points (1.0 to 5.0)"),
        (Difference(1.0, -1.0, 3.0, 2), "cannot be told apart"),
    ],
)
def test_the_verdict_says_no_more_than_the_interval(difference: Difference, words: str) -> None:
    sentence = verdict(difference, "pretraining", "scratch")
    assert words in sentence
