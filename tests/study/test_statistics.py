"""Statistics against textbooks, other libraries, and simulations in which the truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest, ttest_1samp, ttest_rel
from sklearn.metrics import f1_score

from headstart.study.statistics import (
    Estimate,
    Needed,
    difference,
    holm,
    labels_needed,
    mean_interval,
    needed_to_tell,
)
from headstart.targets.class_scores import confusion, macro_f1
from headstart.targets.classes import by_confusion, heaviest_row

LEVELS = st.sampled_from([0.8, 0.9, 0.95, 0.99, 0.999])


@st.composite
def two_arms(draw):
    """Right and wrong of two arms on the same rows, few or many seeds, one arm perhaps without chance in it."""
    seeds, rows = draw(st.sampled_from([1, 2, 5, 6])), draw(st.integers(1, 30))
    scores = arrays(float, st.tuples(st.sampled_from([1, seeds]), st.just(rows)), elements=st.sampled_from([0.0, 1.0]))
    return draw(scores), draw(scores)


def right(rng, chance, seeds, spread=0.0, own=0.5):
    """(S, N): rows with their own chance of being right, shifted for this arm and for each of its seeds."""
    shift = own * (rng.random(len(chance), dtype=np.float32) * 2 - 1) * np.minimum(chance, 1 - chance)
    by_seed = spread * rng.standard_normal((seeds, 1), dtype=np.float32)
    return (rng.random((seeds, len(chance)), dtype=np.float32) < chance + shift + by_seed).astype(float)


def row_chances(rng, rows):
    return 0.9 - 0.4 * rng.random(rows, dtype=np.float32)  # 0.7 on average


# --- one number from one function


@settings(deadline=None)
@given(two_arms(), LEVELS, st.sampled_from([1.0, 3.0, 20.0]))
def test_the_interval_and_the_p_value_cannot_disagree(arms, level, heaviest):
    found = difference(*arms, level, heaviest)
    assert found.clear == (found.p < 1 - level)
    assert 0 <= found.p <= 1
    assert -1 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("seeds", [1, 5])
def test_a_difference_beyond_doubt_has_a_p_value_too(seeds):
    found = difference(np.ones((seeds, 2000)), np.zeros((1, 2000)))
    assert 0 <= found.p < 1e-12
    same = np.array([[1.0, 0.0, 0.0] * 30])  # copies of one seed: their spread is a rounding error
    assert difference(np.repeat(same, 7, axis=0) / 3, np.zeros((1, 90))).p == pytest.approx(
        difference(same / 3, np.zeros((1, 90))).p
    )


@settings(deadline=None)
@given(two_arms())
def test_a_difference_turned_round_changes_only_its_sign(arms):
    a, b = arms
    there, back = difference(a, b), difference(b, a)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert there.p == pytest.approx(back.p)


@settings(deadline=None)
@given(two_arms(), st.sampled_from([1.0, 3.0, 20.0]))
def test_the_interval_of_a_mean_holds_the_mean_and_stays_a_score(arms, heaviest):
    found = mean_interval(arms[0], heaviest=heaviest)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high


# --- textbook cases


def test_mean_squares_worked_by_hand():
    seed = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])[:, None]  # MS = 3 x 0.1 / 4 = 0.075
    row = np.array([-0.1, 0.0, 0.1])[None]  # MS = 5 x 0.02 / 2 = 0.05
    rest = np.zeros((5, 3))
    rest[:2, :2] = [[0.1, -0.1], [-0.1, 0.1]]  # MS = 0.04 / 8 = 0.005
    found = difference(0.3 + seed + row + rest, np.zeros((1, 3)))
    # variance of the mean of 15: (0.075 + 0.05 - 0.005) / 15 = 0.008; then the sum over 5 rows, two of them added
    added = 0.5 * 0.7**2 + 0.5 * 1.3**2 + 0.3**2
    assert found.value == pytest.approx(0.3)
    assert found.centre == pytest.approx(3 * 0.3 / 5)
    assert found.rest == pytest.approx(0.005)
    assert found.seed_part == pytest.approx(0.075 / 15 * 9 / 25)
    assert found.seed_part + found.row_part == pytest.approx(0.008 * 9 / 25 + added / 25)
    share = found.seed_part / (found.seed_part + found.row_part)
    quantile = share * 2.776445 + (1 - share) * 4.302653  # of Student, 4 and 2 degrees of freedom
    assert found.high == pytest.approx(min(1, 0.18 + quantile * math.sqrt(found.seed_part + found.row_part)))


def test_one_seed_is_the_paired_test_of_scipy():
    rng = np.random.default_rng(0)
    a, b = (rng.random((1, 4000)) < 0.7).astype(float), (rng.random((1, 4000)) < 0.68).astype(float)
    found, theirs = difference(a, b), ttest_rel(a[0], b[0])
    interval = theirs.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=2e-4)
    assert found.p == pytest.approx(theirs.pvalue, abs=2e-3)
    assert found.over == "rows only"


def test_rows_that_matter_less_than_noise_leave_the_test_of_seeds():
    rng = np.random.default_rng(1)
    scores = 0.02 + 0.03 * rng.standard_normal((6, 1)) + 0.1 * rng.standard_normal((6, 5000))
    scores -= scores.mean(0) - scores.mean()  # all rows equally hard: fewer differences than chance would make
    found, theirs = difference(scores, np.zeros((1, 5000))), ttest_1samp(scores.mean(1), 0)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-2)
    interval = theirs.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-4)


def test_one_accuracy_is_close_to_wilson():
    for hits in (100, 140, 190):
        scores = np.array([[1.0] * hits + [0.0] * (200 - hits)])
        wilson = binomtest(hits, 200).proportion_ci(method="wilson")
        found = mean_interval(scores)
        assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=4e-3)


def test_mcnemar_and_the_analysis_of_variance_of_statsmodels():
    contingency = pytest.importorskip("statsmodels.stats.contingency_tables")
    anova, api = pytest.importorskip("statsmodels.stats.anova"), pytest.importorskip("statsmodels.formula.api")
    frame = pytest.importorskip("pandas").DataFrame

    a = np.array([[1.0] * 60 + [0.0] * 40 + [1.0] * 1900])
    b = np.array([[0.0] * 60 + [1.0] * 40 + [1.0] * 1900])
    theirs = contingency.mcnemar([[1900, 60], [40, 0]], exact=False, correction=False)
    assert difference(a, b).p == pytest.approx(theirs.pvalue, rel=0.05)

    scores = np.random.default_rng(2).random((6, 12)) + np.arange(6)[:, None] * 0.1 + np.arange(12) * 0.05
    seed, row = np.indices(scores.shape).reshape(2, -1)
    table = anova.anova_lm(api.ols("y ~ C(s) + C(r)", frame({"y": scores.ravel(), "s": seed, "r": row})).fit())
    seeds, rows, rest = table["mean_sq"]
    found = difference(scores, np.zeros((1, 12)))
    assert found.rest == pytest.approx(rest)
    assert found.seed_part == pytest.approx(seeds / 72 * (12 / 14) ** 2)
    added = 0.5 * (1 - found.value) ** 2 + 0.5 * (1 + found.value) ** 2 + found.value**2
    assert found.row_part == pytest.approx((rows - rest) / 72 * (12 / 14) ** 2 + added / 14**2)


# --- what must not look like certainty


def test_a_few_rows_that_differ_are_no_proof():
    # 4 of 2,000 rows differ, all one way: exact McNemar gives p = 0.125.
    for seeds in (1, 5):
        a, b = np.ones((seeds, 2000)), np.ones((seeds, 2000))
        b[:, :4] = 0
        assert not difference(a, b).clear
        b[:, :40] = 0
        assert difference(a, b).clear
        assert not difference(np.ones((seeds, 3)), np.zeros((seeds, 3))).clear


def test_equal_arms_differ_by_nothing():
    a = np.array([[1.0, 0.0, 1.0, 1.0]] * 5)
    found = difference(a, a)
    assert found.value == 0
    assert found.p == 1
    assert found.low < 0 < found.high


def test_seeds_that_happen_to_agree_are_not_certain():
    # Every seed is one row better, each on another row: no spread of seeds, less spread of rows than chance would make.
    found = difference(np.eye(5), np.zeros((1, 5)))
    assert found.seed_part == 0
    assert found.high - found.low > 0.4
    assert not found.clear


@pytest.mark.parametrize(
    ("first", "second", "over"),
    [(1, 1, "rows only"), (4, 4, "rows only"), (4, 1, "rows only"), (5, 5, "seeds and rows"), (1, 5, "seeds and rows")],
)
def test_below_five_seeds_the_interval_is_over_rows_only(first, second, over):
    rng = np.random.default_rng(3)
    found = difference(right(rng, row_chances(rng, 50), first), right(rng, row_chances(rng, 50), second))
    assert found.over == over
    assert found.seeds == max(first, second)
    assert (found.seed_part == 0) == (over == "rows only")


def test_seeds_that_are_not_pairs_are_refused():
    with pytest.raises(AssertionError, match="5 and 4"):
        difference(np.ones((5, 3)), np.ones((4, 3)))


# --- simulations: the truth is known

GRID = [(seeds, rows, spread) for seeds in (5, 10) for rows in (200, 2000) for spread in (0.0, 0.01, 0.03)]
QUICK = [
    pytest.param(*case, marks=[pytest.mark.slow] if case[0] * case[1] > 10_000 else [], id="-".join(map(str, case)))
    for case in GRID
]


@pytest.mark.parametrize(("seeds", "rows", "spread"), QUICK)
@pytest.mark.parametrize("against", ["seeds", pytest.param("one", marks=pytest.mark.slow)])
def test_intervals_of_differences_hold_the_truth_95_times_in_100(seeds, rows, spread, against):
    rng, truth, trials, held = np.random.default_rng(4), 0.03, 2000, 0
    for _ in range(trials):
        chance = row_chances(rng, rows)
        a = right(rng, chance + truth, seeds, spread)
        b = right(rng, chance, seeds, spread) if against == "seeds" else right(rng, chance, 1)
        found = difference(a, b)
        held += found.low <= truth <= found.high
    assert 0.93 <= held / trials <= 0.98


@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_intervals_of_means_hold_the_truth_95_times_in_100(seeds):
    rng, trials, held = np.random.default_rng(5), 2000, 0
    for _ in range(trials):
        chance = row_chances(rng, 200)
        found = mean_interval(right(rng, chance, seeds, spread=0.01 if seeds > 4 else 0))
        held += found.low <= 0.7 <= found.high
    assert 0.93 <= held / trials <= 0.98


def false_alarms(seeds, rows, spread, trials):
    """How often Holm finds any of four equal arms different from scratch or from an arm without chance."""
    rng, alarms = np.random.default_rng(6), 0
    for _ in range(trials):
        chance = row_chances(rng, rows)
        *arms, scratch = (right(rng, chance, seeds, spread, own=0.2) for _ in range(5))
        tfidf = right(rng, chance, 1)
        alarms += any(e.clear for e in holm([difference(a, b) for a in arms for b in (scratch, tfidf)]))
    return alarms / trials


def test_equal_arms_rarely_raise_a_false_alarm():
    assert false_alarms(5, 200, 0.03, trials=400) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "rows", "spread"), GRID)
def test_equal_arms_raise_a_false_alarm_5_times_in_100_at_most(seeds, rows, spread):
    assert false_alarms(seeds, rows, spread, trials=2000) <= 0.05


# --- other scores


def test_pseudo_values_have_the_score_of_each_seed_as_their_mean():
    rng = np.random.default_rng(7)
    target, said = rng.integers(0, 3, 90), rng.integers(0, 4, (5, 90))  # a class that is said but never true
    values = np.array([by_confusion(macro_f1, target, answers, 5) for answers in said])  # and one that never occurs
    assert values.mean(1) == pytest.approx([f1_score(target, answers, average="macro") for answers in said])


def test_the_spread_of_macro_f1_is_that_of_a_bootstrap():
    rng = np.random.default_rng(8)
    target = (rng.random(600) < 0.15).astype(int)
    said = np.where(rng.random(600) < 0.8, target, 1 - target)
    values = by_confusion(macro_f1, target, said, 2)[None]
    picks = rng.integers(0, 600, (400, 600))
    again = [macro_f1(np.array(confusion(target[p], said[p], 2))) for p in picks]
    found = mean_interval(values)
    assert values.std(ddof=1) / math.sqrt(600) == pytest.approx(np.std(again), rel=0.1)
    assert (found.low, found.high) == pytest.approx(np.quantile(again, [0.025, 0.975]), abs=0.012)


def test_a_perfect_score_on_a_rare_class_is_not_certain():
    target = np.array([0] * 990 + [1] * 10)
    values = np.array([by_confusion(macro_f1, target, target, 2)] * 5)
    assert mean_interval(values).low > 0.98  # as if every row weighed the same
    # Of ten rows all right, at least 0.72 are in the long run (Wilson): an F1 of 0.84 beside one of 1.
    assert 0.85 < mean_interval(values, heaviest=heaviest_row(target)).low < 0.92


# --- Holm


@settings(deadline=None, max_examples=50)
@given(st.lists(two_arms(), min_size=1, max_size=6), LEVELS)
def test_clear_after_holm_is_rejected_by_holm(family, level):
    estimates = [difference(*arms) for arms in family]
    order = np.argsort([e.p for e in estimates], kind="stable")
    rejected = [False] * len(family)
    for k, i in enumerate(order):  # the textbook
        if estimates[i].p >= (1 - level) / (len(family) - k):
            break
        rejected[i] = True
    adjusted = holm(estimates, level)
    assert [e.clear for e in adjusted] == rejected
    assert [e.value for e in adjusted] == [e.value for e in estimates]
    assert all(e.level >= level for e in adjusted)


def test_holm_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(9)
    family = [difference(right(rng, row_chances(rng, 300) - 0.03 * k, 5), np.zeros((1, 300)) + 0.6) for k in range(6)]
    theirs = multitest.multipletests([e.p for e in family], 0.05, method="holm")[0].tolist()
    assert [e.clear for e in holm(family)] == theirs
    assert 0 < sum(theirs) < 6


def test_what_follows_a_failure_is_tested_at_its_level():
    a, b = np.ones((1, 100)), np.ones((1, 100))
    b[0, :20] = 0
    sure, unsure = difference(a, b), difference(a, a)
    assert [round(1 - e.level, 4) for e in holm([unsure, sure, unsure])] == [0.025, 0.0167, 0.025]


# --- what it would take


def seen(value, of_seed=0.02, of_row=0.3, of_rest=0.3, seeds=5, rows=400):
    """An estimate whose parts are exactly what was put in."""
    found = difference(np.zeros((seeds, rows)), np.zeros((1, rows)))
    parts = {"seed_part": (of_seed**2 + of_rest**2 / rows) / seeds, "row_part": of_row**2 / rows, "rest": of_rest**2}
    return replace(found, value=value, centre=value, **parts)


@pytest.mark.parametrize("what", ["seeds", "rows"])
def test_half_of_the_studies_with_what_is_needed_can_tell(what):
    now = seen(0.035)
    needed = getattr(needed_to_tell(now), what)
    assert not now.clear
    seeds, rows = (needed, 400) if what == "seeds" else (5, needed)
    rng, told = np.random.default_rng(10), 0
    for _ in range(300):
        scores = 0.035 + 0.02 * rng.standard_normal((seeds, 1)) + 0.3 * rng.standard_normal((1, rows))
        scores = scores + 0.3 * rng.standard_normal((seeds, rows))
        told += difference(scores, np.zeros((1, rows))).clear
    assert 0.35 < told / 300 < 0.65


def test_no_number_of_seeds_mends_too_few_rows_nor_the_reverse():
    assert needed_to_tell(seen(0.02)).seeds is None
    assert needed_to_tell(seen(0.02)).rows is None  # five seeds are within 2.5 points of the truth at best
    assert needed_to_tell(seen(0.035, of_seed=0.0)).rows < 800
    assert needed_to_tell(seen(0.0)) == Needed(None, None)


def test_what_is_clear_already_needs_no_more():
    found = seen(0.2)
    assert found.clear
    assert needed_to_tell(found) == Needed(seeds=5, rows=400)


def test_rows_only_asks_for_rows_only():
    a, b = np.ones((2, 200)), np.ones((2, 200))
    a[:, :3], b[:, 3:10] = 0, 0
    found = difference(a, b)
    needed = needed_to_tell(found)
    assert not found.clear
    assert needed.seeds is None
    assert 200 < needed.rows < 1000


# --- labels


def curve(*points: tuple[float, float, float]) -> list[Estimate]:
    """Estimates with the given value and interval."""
    template = mean_interval(np.array([[0.0, 1.0]]))
    return [replace(template, value=v, centre=(low + high) / 2, bounds=(low, high)) for v, low, high in points]


def test_labels_needed_are_read_off_straight_lines_over_log_labels():
    found = labels_needed([100, 1000], curve((0.6, 0.55, 0.65), (0.8, 0.75, 0.85)), target=0.7)
    assert found.labels == pytest.approx(100 * 10**0.5, abs=1)  # half way
    assert (found.low, found.high) == (pytest.approx(100 * 10**0.25, abs=1), pytest.approx(100 * 10**0.75, abs=1))
    assert not found.at_most


def test_a_target_that_is_not_reached_has_no_number():
    found = labels_needed([100, 1000], curve((0.6, 0.55, 0.65), (0.68, 0.6, 0.72)), target=0.7)
    assert found.labels is None
    assert found.high is None
    assert 100 < found.low < 1000  # the band does not exclude it


def test_the_fewest_labels_may_be_enough():
    found = labels_needed([100, 1000], curve((0.7, 0.65, 0.75), (0.8, 0.75, 0.85)), target=0.7)
    assert (found.labels, found.low, found.at_most) == (100, 100, True)


def test_what_was_lost_again_was_not_won():
    dip = curve((0.6, 0.5, 0.7), (0.75, 0.7, 0.8), (0.65, 0.6, 0.7), (0.8, 0.75, 0.85))
    found = labels_needed([100, 200, 400, 800], dip, target=0.7)
    assert 400 < found.labels < 800


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.2)), min_size=1, max_size=6), st.floats(0, 1))
def test_labels_needed_lie_inside_their_interval(points, target):
    counts = [100 * 2**i for i in range(len(points))]
    found = labels_needed(counts, curve(*((v, v - reach, v + reach) for v, reach in points)), target)
    low, labels, high = (math.inf if x is None else x for x in (found.low, found.labels, found.high))
    assert low <= labels <= high
