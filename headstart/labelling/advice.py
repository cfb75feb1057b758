"""The state of a labelling session: how good its classifier is, what more labels are expected to bring, and whether to stop. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.labelling.curve import FEWEST, Gain
from headstart.quantities import counted, points
from headstart.schema import Frozen

STOP = 1.0, 1.5  # points of 100 more labels: less than the first is expected, and the interval ends below the second
ENOUGH = 40  # random rows, without which nobody is advised to stop: a curve of fewer is often flat by chance
MORE = 50, 100  # labels


class Point(Frozen):
    """The accuracy with so many labels, and its 95 % interval."""

    labels: int
    accuracy: float
    low: float
    high: float


class Expected(Frozen):
    """Points of accuracy that so many more labels bring, and an interval that held them in 81 % of simulated sessions."""

    labels: int
    points: float
    low: float
    high: float


class Status(Frozen):
    file: str
    base: str
    zero_shot: bool
    rows: int  # that can be labelled
    labelled: int
    skipped: int
    random: int  # labelled rows of the random part
    counts: dict[str, int]  # by label
    curve: tuple[Point, ...]
    expected: tuple[Expected, ...]
    stop: bool
    advice: str
    seconds: float  # to fit the classifier and the curve


def advise(counts: dict[str, int], random: int, left: int, gains: Sequence[Gain]) -> tuple[bool, str]:
    """Whether to stop, and a sentence."""
    missing = [label for label, count in counts.items() if not count]
    if not left:
        return True, "Stop: every row is labelled or skipped."
    if len(counts) - len(missing) < 2:
        return False, "Go on: no classifier yet, which needs labels of two classes."
    if not gains:
        return (
            False,
            f"Go on: {counted(random, 'random row', 'is', 'are')} too few to measure the accuracy; {FEWEST} are the fewest.",
        )
    told = ", ".join(_told(gain, first=i == 0) for i, gain in enumerate(gains))
    hundred = gains[-1]
    if hundred.points < STOP[0] and hundred.high < STOP[1] and random >= ENOUGH and not missing:
        return True, f"Stop: {_told(hundred, first=True)}."
    also = f" No row is labelled {missing[0]} yet." if missing else ""
    return False, f"Go on: {told}.{also}"


def _told(gain: Gain, first: bool) -> str:
    low, high = (points(end) for end in (gain.low, gain.high))
    words = " more labels give" if first else " more"
    return f"{gain.labels}{words} {points(gain.points)}{' points' if first else ''} ({low} to {high})"
