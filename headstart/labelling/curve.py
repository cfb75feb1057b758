"""The learning curve of a labelling session, and what more labels are expected to bring. No torch.

Accuracy is measured on the random part of the labelled rows alone, because rows that were chosen are harder than others. Every
point of the curve is a classifier of the first n labels; a random row among them is predicted by one that was fitted without
it. All points share the same test rows, so that their differences are much less noisy than each of them.

The error follows a power law, a + b * n^-c (Cortes and others, 1994; Rosenfeld and others, 2020). It is fitted to resamples of
the test rows; what the next labels bring is the difference of two of its values, in each resample.

Shapes: K points, T test rows, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.labelling.classifier import Classifier

FOLDS = 5
MANY = 1000  # labels, from which on fewer folds do
FIRST = 10  # labels of the first point
STEP = 2**0.5  # between the points
RESAMPLES = 400
LEVEL = 0.90  # of the intervals of gains; accuracies have 95 %
FEWEST = 10  # random rows, for an estimate
FEWEST_POINTS = 4
EXPONENTS = np.linspace(0.05, 0.8, 16)

Floats = NDArray[np.float64]
Hits = NDArray[np.bool_]


@dataclass(frozen=True)
class Gain:
    """Points of accuracy that so many more labels bring."""

    labels: int
    points: float
    low: float
    high: float


def marks(labels: int) -> list[int]:
    """The label counts of the curve's points; the last is all of them.

    >>> marks(60)
    [10, 14, 20, 28, 40, 60]
    """
    found = [round(FIRST * STEP**i) for i in range(40)]
    return [*(n for n in found if n * STEP**0.5 < labels), labels] if labels >= FIRST else []


def hits_of(classifier: Classifier, rows: Sequence[int], targets: Sequence[int], test: Sequence[int], at: Sequence[int]) -> Hits:  # fmt: skip
    """Whether each test row is classified correctly by the first n labelled rows for each n of `at`, (K, T).

    `test` are places in `rows`, which are in the order in which they were labelled.
    """
    found = np.zeros((len(at), len(test)), dtype=bool)
    truth = np.array([targets[i] for i in test])
    for k, n in enumerate(at):
        usual = int(np.bincount(targets[:n]).argmax())
        inside = [j for j, i in enumerate(test) if i < n]
        folds = 2 if n > MANY else FOLDS
        parts = [inside[f::folds] for f in range(folds)] + [[j for j, i in enumerate(test) if i >= n]]
        for part in filter(None, parts):
            without = {test[j] for j in part}
            kept = [i for i in range(n) if i not in without]
            model = classifier.fit([rows[i] for i in kept], [targets[i] for i in kept])
            found[k, part] = classifier.predicted(model, [rows[test[j]] for j in part], usual) == truth[part]
    return found


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927).

    >>> low, high = wilson(45, 50)
    >>> f"{low:.2f} to {high:.2f}"
    '0.79 to 0.96'
    """
    z, share = 1.959964, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def gains(hits: Hits, at: Sequence[int], more: Sequence[int], seed: int = 0) -> list[Gain]:
    """What `more` labels are expected to bring; none, where there are too few points or test rows."""
    if len(at) < FEWEST_POINTS or hits.shape[1] < FEWEST:
        return []
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, hits.shape[1], (RESAMPLES, hits.shape[1]))
    drawn[0] = np.arange(hits.shape[1])
    errors = 1 - hits[:, drawn].mean(-1).T  # (R, K)
    curves = fitted(np.array(at, float), errors)
    now, found = at[-1], []
    for labels in more:
        gained = 100 * (curves.at(now) - curves.at(now + labels))
        low, high = np.quantile(gained, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found.append(Gain(labels, float(np.mean(gained)), float(low), float(high)))
    return found


@dataclass(frozen=True)
class PowerLaws:
    """One for each resample."""

    floor: Floats  # (R,)
    scale: Floats
    exponent: Floats

    def at(self, labels: float) -> Floats:
        """The error with so many labels, (R,)."""
        return self.floor + self.scale * labels**-self.exponent


def fitted(at: Floats, errors: Floats) -> PowerLaws:
    """The power law of each row of errors (R, K) by least squares, with nothing below zero.

    Points count by the square of their labels: what comes next is like what came last.
    """
    weights = at**2 / (at**2).sum()
    best = np.full(len(errors), np.inf)
    found = np.zeros((3, len(errors)))
    for exponent in EXPONENTS:
        x = at**-exponent
        mean_x, mean_y = weights @ x, errors @ weights
        slope = ((errors - mean_y[:, None]) * (x - mean_x)) @ weights / (weights @ (x - mean_x) ** 2)
        slope = np.maximum(slope, 0)
        floor = mean_y - slope * mean_x
        through = (errors * x) @ weights / (weights @ x**2)  # where the floor would be below zero
        slope, floor = np.where(floor < 0, through, slope), np.maximum(floor, 0)
        loss = ((errors - floor[:, None] - slope[:, None] * x) ** 2) @ weights
        better = loss < best
        best = np.where(better, loss, best)
        found[:, better] = np.stack([floor, slope, np.full(len(errors), exponent)])[:, better]
    return PowerLaws(*found)
