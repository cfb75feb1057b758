"""Temperature scaling finds the minimum that scipy finds; label sets cover what was asked, by the exact quantile."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import betabinom

from headstart.targets.class_scores import calibration_error
from headstart.tasks.calibration import (
    before_temperature,
    fit_temperature,
    label_set,
    nonconformity,
    rows_for,
    softmax,
    threshold,
)


def drawn(rows: int, classes: int, temperature: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are `temperature` times too large, and labels drawn from the right ones."""
    rng = np.random.default_rng(seed)
    right = rng.normal(size=(rows, classes)) * 2
    target = np.array([rng.choice(classes, p=p) for p in softmax(right)])
    return right * temperature, target


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_temperature_is_found_and_the_error_falls(temperature, classes):
    logits, target = drawn(4000, classes, temperature, seed=1)
    found = fit_temperature(logits, target.tolist())
    plain = minimize_scalar(
        lambda t: -log_softmax(logits / t, 1)[np.arange(len(target)), target].mean(),
        bounds=(0.01, 100),
        method="bounded",
    ).x
    assert found == pytest.approx(plain, rel=0.02)  # the smoothing of 4,000 rows is all that differs
    assert found == pytest.approx(temperature, rel=0.1)
    before, after = softmax(logits), softmax(logits / found)
    assert (before.argmax(1) == after.argmax(1)).all()
    assert calibration_error(after, target.tolist()) < 0.03
    if temperature != 1.0:
        assert calibration_error(before, target.tolist()) > 0.08
    assert before_temperature(after, found) == pytest.approx(before, abs=1e-9)


def test_rows_that_are_all_right_or_all_wrong_give_a_finite_temperature():
    logits = np.tile([[3.0, 0.0]], (40, 1))
    sure = softmax(logits / fit_temperature(logits, [0] * 40)).max()
    assert sure == pytest.approx(41 / 42)
    assert fit_temperature(logits, [1] * 40) == 100.0  # never negative: that would turn the labels around


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("rows", [19, 50, 400, 1001])
def test_the_threshold_is_the_exact_finite_sample_quantile(coverage, rows):
    scores = np.random.default_rng(rows).random(rows)
    k = int(np.ceil(np.round((rows + 1) * coverage, 9)))
    assert threshold(scores.tolist(), coverage) == np.sort(scores)[k - 1]
    level = (k - 1e-6) / rows  # as it is usually written: the ceil((n + 1)(1 - alpha)) / n quantile
    assert threshold(scores.tolist(), coverage) == np.quantile(scores, level, method="inverted_cdf")


def test_too_few_rows_are_known_beforehand():
    for coverage in (0.5, 0.8, 0.9, 0.95, 0.99):
        fewest = rows_for(coverage)
        threshold([0.5] * fewest, coverage)
        with pytest.raises(AssertionError):
            threshold([0.5] * (fewest - 1), coverage)


@pytest.mark.parametrize(("rows", "later"), [(467, 667), (60, 60)])
@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_the_coverage_of_one_run_is_spread_as_theory_has_it(coverage, rows, later):
    """Beta over draws of the validation rows (Vovk, 2012), and binomial over the rows that it is measured on."""
    rng = np.random.default_rng(rows)
    scores, met = rng.random((4000, rows)), rng.random((4000, later))
    largest = np.array([threshold(each.tolist(), coverage) for each in scores])
    covered = (met <= largest[:, None]).mean(1)
    place = int(np.ceil(np.round((rows + 1) * coverage, 9)))
    theory = betabinom(later, place, rows + 1 - place)
    spread = theory.std() / later
    assert np.mean(covered) == pytest.approx(theory.mean() / later, abs=4 * spread / np.sqrt(4000))
    assert np.std(covered) == pytest.approx(spread, rel=0.05)
    assert abs(np.mean(covered) - coverage) < 0.02
    low, high = theory.interval(0.95)
    inside = theory.cdf(high) - theory.cdf(low - 1)  # at least 95 %, of whole rows
    assert np.mean((covered * later > low - 0.5) & (covered * later < high + 0.5)) == pytest.approx(inside, abs=0.015)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_label_sets_cover_what_was_asked_over_many_draws(coverage, temperature):
    """Whatever the probabilities are worth: the guarantee needs rows that are drawn alike, and nothing of the model."""
    covered = []
    for seed in range(200):
        logits, target = drawn(120, 4, temperature, seed)
        scores = softmax(logits)
        largest = threshold(nonconformity(scores[:60], target[:60].tolist()), coverage)
        sets = [label_set(range(4), row, largest) for row in scores[60:].tolist()]
        covered.append(np.mean([label in found for label, found in zip(target[60:], sets, strict=True)]))
    assert coverage - 0.01 < np.mean(covered) < coverage + 0.02  # at most 1 / (n + 1) too much
