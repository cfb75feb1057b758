"""The statistics of an honest comparison, from the scores of test rows alone. No torch; scipy loads
with the first figure, because a list of studies needs none.

Shapes: S seeds, N test rows, C classes. Scores are (S, N): 1 where the prediction of a seed is right, or the
`row_values` of another score (targets/). An arm without chance in it has S = 1.

Seeds and rows are crossed: every seed is tested on the same rows, so

    score of seed s on row n  =  mean + seed_s + row_n + rest_sn

and the mean is uncertain twice over: another seed and other rows would have changed it. Two-way analysis of variance
tells the two parts. Radiology has met the problem before, with readers for seeds and cases for rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]  # (S, N)
Over = Literal["seeds and rows", "rows only"]
FEWEST_SEEDS = 5  # with fewer the spread of seeds is a guess, and the interval is over rows only


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference, and how far from it the truth may be. Interval and p-value come from one quantile."""

    value: float  # what was seen
    level: float  # of the interval
    seeds: int
    rows: int
    over: Over
    centre: float  # of the interval: the value, drawn in a little by the added rows
    seed_part: float  # variance of the value, had the seeds been others
    row_part: float  # variance of the value, had the rows been others
    rest: float  # variance of one score that is of neither its seed nor its row; a part of `seed_part`
    bounds: tuple[float, float]

    @property
    def low(self) -> float:
        return max(self.bounds[0], self.centre - self._reach)

    @property
    def high(self) -> float:
        return min(self.bounds[1], self.centre + self._reach)

    @property
    def clear(self) -> bool:
        """Zero is outside of the interval; the same as p < 1 - level."""
        return self.low > 0 or self.high < 0

    @property
    def p(self) -> float:
        """The chance of a value this far from zero, if the truth is zero."""
        from scipy.optimize import brentq
        from scipy.special import stdtr

        score = abs(self.centre) / math.sqrt(self.seed_part + self.row_part)
        ends = [2 * float(stdtr(max(1, n - 1), -score)) for n in (self.rows, self.seeds)]
        least, most = (
            max(1e-300, min(ends) * (1 - 1e-9)),
            max(ends) * (1 + 1e-9),
        )  # the quantile is between Student's two
        if self._quantile(least) <= score:
            return min(ends)
        return float(brentq(lambda p: self._quantile(p) - score, least, most))

    def at(self, level: float) -> Estimate:
        return replace(self, level=level)

    @property
    def _reach(self) -> float:
        return self._quantile(1 - self.level) * math.sqrt(self.seed_part + self.row_part)

    def _quantile(self, error: float) -> float:
        return _quantile(error, self.seed_part, self.row_part, self.seeds, self.rows)


def _quantile(error: float, seed_part: float, row_part: float, seeds: int, rows: int) -> float:
    """How many standard errors the interval reaches: Student's quantiles for seeds and rows, weighted by their parts.

    It is the rule of Cochran and Cox (Experimental Designs, 1957, section 4.14). Satterthwaite's degrees of freedom
    are too many when the seed part happens to come out small, and it does with five seeds: eight comparisons of equal
    arms, tested by Holm, then raise a false alarm up to 9 times in 100 instead of 5. This rule stays below 5.
    """
    from scipy.special import stdtrit

    share = seed_part / (seed_part + row_part)
    of_seeds, of_rows = (-float(stdtrit(max(1, n - 1), error / 2)) for n in (seeds, rows))
    return share * of_seeds + (1 - share) * of_rows


def mean_interval(scores: Scores, level: float = 0.95, heaviest: float = 1.0) -> Estimate:
    """The mean over seeds and rows.

    Two rows right and two wrong are added (Agresti and Coull, 1998), without which a perfect score would look certain.
    `heaviest` is what one row may count: see `heaviest_row` in targets/classes.py; 0, where scores have no bounds: none is added.

    >>> sure = mean_interval(np.ones((1, 20)))
    >>> sure.value, round(sure.low, 2), sure.high
    (1.0, 0.79, 1.0)
    """
    return _estimate(scores, level, heaviest, added={0.0: 2.0, 1.0: 2.0})


def difference(a: Scores, b: Scores, level: float = 0.95, heaviest: float = 1.0) -> Estimate:
    """The mean of `a` minus that of `b`, on the same rows and, where both have several, the same seeds in the same order.

    Half a row of each outcome is added (Agresti and Min, 2005): both right, both wrong, and one right either way.
    Without them a few rows that differ would look like certainty.
    """
    assert len(a) == len(b) or 1 in (len(a), len(b)), f"seeds are paired, but there are {len(a)} and {len(b)}"
    return _estimate(a - b, level, heaviest, added={-1.0: 0.5, 0.0: 1.0, 1.0: 0.5})


def _estimate(scores: Scores, level: float, heaviest: float, added: dict[float, float]) -> Estimate:
    """Mean and variance of crossed scores, after Hillis (2007): the row part is no less than nothing.

    Each mean square is that of the rest plus what its own effect adds, so the variance of the mean is
    (MS_seeds + MS_rows - MS_rest) / SN. Rows that matter less than the rest must not make the seeds look better.
    """
    seeds, rows = scores.shape
    over: Over = "seeds and rows" if seeds >= FEWEST_SEEDS else "rows only"
    if over == "rows only":
        scores = scores.mean(0, keepdims=True)
    s = len(scores)
    by_seed, by_row = scores.mean(1, keepdims=True), scores.mean(0, keepdims=True)
    mean = float(scores.mean())
    rest = scores - by_seed - by_row + mean
    ms_seeds = rows * float(((by_seed - mean) ** 2).sum()) / max(1, s - 1)
    ms_rows = s * float(((by_row - mean) ** 2).sum()) / max(1, rows - 1)
    ms_rest = float((rest**2).sum()) / max(1, (s - 1) * (rows - 1))
    values, weights = np.array(list(added)), np.array(list(added.values()))
    total = rows + weights.sum()
    pull = min(1.0, heaviest * weights.sum() / total)
    extra = heaviest**2 * weights @ (values - mean) ** 2  # what the added rows bring to the sum of squares
    return Estimate(
        value=mean,
        level=level,
        seeds=seeds,
        rows=rows,
        over=over,
        centre=float(mean + pull * (np.average(values, weights=weights) - mean)),
        seed_part=float(rows / s * ms_seeds / total**2),
        row_part=float((rows / s * max(0.0, ms_rows - ms_rest) + extra) / total**2) or 1e-18,
        rest=ms_rest,
        bounds=(min(added), max(added)) if heaviest else (-math.inf, math.inf),
    )


def holm(family: Sequence[Estimate], level: float = 0.95) -> list[Estimate]:
    """The same estimates, each at the level at which Holm's step-down tested it: clear means rejected.

    The k-th smallest p-value is held against (1 - level) / (m - k); from the first that fails, all fail, at its level.
    """
    adjusted = list(family)
    left = len(family)
    for i in sorted(range(len(family)), key=lambda i: family[i].p):
        adjusted[i] = family[i].at(1 - (1 - level) / left)
        left -= adjusted[i].clear  # not clear: neither is any later one at this level
    return adjusted


def split_interval(values: Sequence[float], test_share: float, level: float = 0.95) -> tuple[float, float] | None:
    """Where the mean over random splits may lie; None where nothing tells it: of a single one, and of equal values.

    `test_share` is test rows by training rows. The training parts of two splits overlap, so their scores are not
    independent, and the plain interval would be too narrow (Nadeau and Bengio, 2003).

    >>> low, high = split_interval([0.5, 0.6, 0.7], test_share=0.125)
    >>> round(low, 3), round(high, 3)
    (0.309, 0.891)
    >>> split_interval([0.6 - 0.4, 0.4 - 0.2], test_share=0.125)
    """
    from scipy.special import stdtrit

    if len(values) < 2 or np.ptp(values) < 1e-9:  # a few test pictures give few values, which coincide by chance
        return None
    error = math.sqrt((1 / len(values) + test_share) * float(np.var(values, ddof=1)))
    reach = float(stdtrit(len(values) - 1, (1 + level) / 2)) * error
    centre = float(np.mean(values))
    return centre - reach, centre + reach


@dataclass(frozen=True)
class Needed:
    """How many would make a difference clear, were it as seen; None: no number would, the other part is too large."""

    seeds: int | None  # with these rows
    rows: int | None  # with these seeds


def needed_to_tell(found: Estimate, most: int = 1_000_000) -> Needed:
    """What it would take for an interval that excludes zero, if the truth is what was seen. Half of such studies succeed."""
    of_seed = max(0.0, found.seed_part * found.seeds - found.rest / found.rows)

    def tells(seeds: int, rows: int) -> bool:
        seed_part = (of_seed + found.rest / rows) / seeds
        row_part = found.row_part * found.rows / rows
        reach = _quantile(1 - found.level, seed_part, row_part, seeds, rows) * math.sqrt(seed_part + row_part)
        return abs(found.value) > reach

    def fewest(now: int, enough: Callable[[int], bool]) -> int | None:
        if not enough(most):
            return None
        low, high = now - 1, most  # not enough, enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    return Needed(
        seeds=fewest(found.seeds, lambda seeds: tells(seeds, found.rows)),
        rows=fewest(found.rows, lambda rows: tells(found.seeds, rows)),
    )


@dataclass(frozen=True)
class LabelsNeeded:
    """Where a learning curve reaches a target, and where its band does; None: not with the labels there are."""

    labels: int | None
    low: int | None  # where the upper edge of the band reaches it
    high: int | None  # where the lower edge does
    at_most: bool  # reached with the fewest labels that were tried


def labels_needed(counts: Sequence[int], curve: Sequence[Estimate], target: float = 0.0) -> LabelsNeeded:
    """The number of labels from which on a curve stays at or above the target, on straight lines over log labels.

    A curve that reaches the target, falls below it and comes back has reached it where it came back: what was lost
    again was not won. To count labels against another arm, give differences from that arm's score at all labels, and
    target 0: then the band knows that the target is uncertain too, and that both were tested on the same rows.
    """

    def reached(values: Sequence[float]) -> int | None:
        below = [i for i, value in enumerate(values) if value < target]
        if not below:
            return counts[0]
        i = below[-1]  # the last measurement below the target
        if i == len(counts) - 1:
            return None
        part = (target - values[i]) / (values[i + 1] - values[i])
        return math.ceil(counts[i] * (counts[i + 1] / counts[i]) ** part - 1e-9)

    labels = reached([e.value for e in curve])
    low, high = reached([e.high for e in curve]), reached([e.low for e in curve])
    return LabelsNeeded(labels, low, high, at_most=labels == counts[0])
