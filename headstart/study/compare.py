"""The comparison of the demo, in percentage points. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.study.statistics import Scores as Right
from headstart.study.statistics import difference as estimate

__all__ = ["Difference", "Right", "paired_difference", "verdict"]


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
    """Accuracy of `a` minus that of `b` on the same test rows, averaged over seeds."""
    found = estimate(a, b, level)
    return Difference(100 * found.value, 100 * found.low, 100 * found.high, found.seeds)


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
