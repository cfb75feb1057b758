"""Statistics of a comparison, from which test rows each arm got right. No torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

Right = NDArray[np.float64]  # (seeds, rows): 1 where the prediction is right


@dataclass(frozen=True)
class Difference:
    points: float  # a minus b, in percentage points
    low: float
    high: float
    seeds: int  # the fewer of the two arms'

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_difference(a: Right, b: Right, level: float = 0.95) -> Difference:
    """Accuracy of `a` minus that of `b` on the same test rows, averaged over seeds.

    The interval is over rows only: it says how much other test rows would change the answer, for these seeds. With
    a handful of seeds no honest interval over seeds can be had. Half a row of each outcome is added (Agresti and Min,
    2005), without which a few rows that differ would look like certainty.
    """
    per_row = a.mean(0) - b.mean(0)  # (rows,): pairing takes out what makes a row easy or hard for both
    rows = len(per_row) + 2
    centre = per_row.sum() / rows
    spread = ((per_row**2).sum() + 1) / rows - centre**2
    reach = t.ppf((1 + level) / 2, max(1, len(per_row) - 1)) * np.sqrt(spread / rows)
    low, high = max(-1.0, centre - reach), min(1.0, centre + reach)
    return Difference(100 * float(per_row.mean()), 100 * float(low), 100 * float(high), min(len(a), len(b)))


def verdict(difference: Difference, better: str, worse: str) -> str:
    """One sentence without its full stop: what was seen, and how sure it is.

    >>> verdict(Difference(3.0, 1.0, 5.0, 2), "pretraining", "training from scratch")
    'pretraining beats training from scratch by 3.0 points (1.0 to 5.0)'
    """
    low, high, points = difference.low, difference.high, difference.points
    if not difference.clear:
        return f"{better} and {worse} cannot be told apart ({points:+.1f} points, {low:.1f} to {high:.1f})"
    if high < 0:
        return f"{better} loses to {worse} by {-points:.1f} points ({-high:.1f} to {-low:.1f})"
    return f"{better} beats {worse} by {points:.1f} points ({low:.1f} to {high:.1f})"
