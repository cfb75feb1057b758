"""Statistics of a comparison, from which test rows each arm got right. No torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Right = NDArray[np.float64]  # (seeds, rows): 1 where the prediction is right


@dataclass(frozen=True)
class Difference:
    points: float  # a minus b, in percentage points
    low: float
    high: float
    seeds: int

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_difference(a: Right, b: Right, level: float = 0.95) -> Difference:
    """Accuracy of `a` minus that of `b` on the same test rows, averaged over seeds.

    The interval is over rows only: it says how much other test rows would change the answer, for these seeds. With
    a handful of seeds no honest interval over seeds can be had.
    """
    per_row = a.mean(0) - b.mean(0)  # (rows,): pairing takes out what makes a row easy or hard for both
    rows = len(per_row)
    error = per_row.std(ddof=1) / np.sqrt(rows) if rows > 1 else np.inf
    reach = norm.ppf((1 + level) / 2) * error
    mean = float(per_row.mean())
    return Difference(100 * mean, 100 * float(mean - reach), 100 * float(mean + reach), len(a))


def verdict(difference: Difference, better: str, worse: str) -> str:
    """One sentence: what was seen, and how sure it is.

    >>> verdict(Difference(3.0, 1.0, 5.0, 2), "pretraining", "training from scratch")
    'pretraining beats training from scratch by 3.0 points (95 % interval over test rows 1.0 to 5.0; 2 seeds)'
    """
    low, high, points = difference.low, difference.high, difference.points
    verb = "beats"
    if high < 0:
        verb, points, low, high = "loses to", -points, -high, -low
    span = f"95 % interval over test rows {low:.1f} to {high:.1f}; {difference.seeds} seeds"
    if not difference.clear:
        return f"{better} and {worse} cannot be told apart ({points:+.1f} points, {span})"
    return f"{better} {verb} {worse} by {points:.1f} points ({span})"
