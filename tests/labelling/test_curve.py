"""The learning curve, what more labels bring, and the advice."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.labelling.advice import advise
from headstart.labelling.classifier import Classifier
from headstart.labelling.curve import Gain, fitted, gains, hits_of, marks
from headstart.labelling.features import Features


def test_a_power_law_is_found_again() -> None:
    at = np.array([10, 20, 40, 80, 160.0])
    for floor, scale, exponent in ((0.1, 2, 0.8), (0.0, 1, 0.5), (0.3, 0, 1.0)):
        errors = floor + scale * at**-exponent
        found = fitted(at, errors[None])
        assert found.at(160)[0] == pytest.approx(errors[-1], abs=1e-9)
        assert found.at(320)[0] == pytest.approx(floor + scale * 320**-exponent, abs=1e-9)


def test_no_curve_rises_or_ends_below_zero() -> None:
    errors = np.random.default_rng(0).uniform(0, 0.5, (200, 6))
    found = fitted(np.array([10, 14, 20, 28, 40, 57.0]), errors)
    assert (found.scale >= 0).all()
    assert (found.at(1e6) >= -1e-12).all()


def test_no_test_row_is_predicted_by_a_classifier_that_was_fitted_to_it() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 400)).astype(np.float32) / 20  # wide enough to remember every row
    targets = rng.integers(0, 2, 200).tolist()
    classifier = Classifier(Features(vectors, np.zeros((200, 0), np.float32)), 2)
    model = classifier.fit(range(200), targets)
    assert (classifier.predicted(model, range(200), 0) == targets).mean() > 0.99
    hits = hits_of(classifier, range(200), targets, range(0, 200, 2), [50, 200])
    assert np.abs(hits.mean(1) - 0.5).max() < 0.15


def test_rows_that_were_labelled_later_are_plain_test_rows() -> None:
    vectors = np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)
    order = np.random.default_rng(1).permutation(40)
    classifier = Classifier(Features(vectors[order], np.zeros((40, 0), np.float32)), 2)
    hits = hits_of(classifier, range(40), (order // 20).tolist(), list(range(0, 40, 4)), [12, 40])
    assert hits.all()
    assert hits.shape == (2, 10)


def test_there_is_no_estimate_of_too_little() -> None:
    assert gains(np.ones((5, 9), bool), [10, 14, 20, 28, 40], (50,)) == []
    assert gains(np.ones((2, 50), bool), [10, 14], (50,)) == []
    assert marks(9) == []


def test_a_flat_curve_promises_little_and_a_steep_one_much() -> None:
    rng, at = np.random.default_rng(0), [10, 14, 20, 28, 40, 57, 80, 113, 160]
    easy = rng.random(100)
    flat = np.array([easy < 0.9 for _ in at])
    steep = np.array([easy < 1 - 2 * n**-0.5 for n in at])
    [little], [much] = (gains(hits, at, (100,)) for hits in (flat, steep))
    assert little.points < 0.5
    assert much.points > 2
    assert much.low <= much.points <= much.high


def test_it_advises_to_stop_only_where_little_is_left_to_gain() -> None:
    counts = {"a": 50, "b": 50}
    assert advise(counts, 40, 500, [Gain(50, 0.3, 0.0, 0.7), Gain(100, 0.4, 0.0, 1.1)]) == (
        True, "Stop: 100 more labels give 0.4 points (0.0 to 1.1).",
    )  # fmt: skip
    stop, told = advise(counts, 40, 500, [Gain(50, 0.5, 0.0, 1.7), Gain(100, 0.9, 0.0, 3.1)])
    assert not stop
    assert told == "Go on: 50 more labels give 0.5 points (0.0 to 1.7), 100 more 0.9 (0.0 to 3.1)."
    assert not advise({**counts, "c": 0}, 40, 500, [Gain(100, 0.4, 0.0, 1.1)])[0]  # a class that was never seen
    assert not advise(counts, 39, 500, [Gain(100, 0.4, 0.0, 1.1)])[0]  # measured on too few rows
    assert advise({"a": 5, "b": 0}, 2, 500, [])[1] == "Go on: no classifier yet, which needs labels of two classes."
    assert "2 random rows are too few" in advise({"a": 5, "b": 3}, 2, 500, [])[1]
    assert advise(counts, 25, 0, [])[0]
