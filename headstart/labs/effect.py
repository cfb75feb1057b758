"""The one effect that a lab is about: a difference with its interval, told as the numbers have it. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from headstart.quantities import counted, signed
from headstart.schema import Frozen

Place = Annotated[str, Field(max_length=300)]  # `step: path`
FEWEST = 2  # seeds on each side of a difference


class Effect(Frozen):
    """What a lab expects to see: `of` is higher than `minus` by more than chance, or `fewer` says lower.

    Either `of` is a difference or a score that comes with an `interval`, and `minus` at most a constant, such as chance;
    or both are places whose numbers are of one seed each, and the interval is Welch's.
    """

    claim: str = Field(max_length=1000)
    of: tuple[Place, ...] = Field(min_length=1, max_length=100)
    interval: Place = ""
    minus: tuple[Place, ...] = Field((), max_length=100)
    lower: bool = False  # the claim is that `of` is the lower of the two
    unit: Literal["points", "nats"] = "points"

    def places(self) -> list[Place]:
        return [*self.of, *self.minus, *([self.interval] if self.interval else [])]

    @model_validator(mode="after")
    def sides_can_be_compared(self) -> Self:
        if self.interval and (len(self.of) > 1 or len(self.minus) > 1):
            raise ValueError("an effect with an interval has one place in `of`, and at most one in `minus`")
        if not self.interval and not self.minus:
            raise ValueError("an effect has the interval of `of`, or several seeds in `of` and in `minus`")
        return self


class EffectResult(TypedDict):
    claim: str
    difference: float  # in nats, or as a share
    interval: list[float]
    unit: str
    shown: bool  # the interval lies wholly on the side of the claim
    sentence: str


def measured(effect: Effect, find: Callable[[Place], Any]) -> EffectResult:
    """The difference, its 95 % interval, and a sentence that says no more than these."""
    here, there = numbers(effect.of, find), numbers(effect.minus, find)
    if effect.interval:
        constant = there[0] if there else 0.0
        low, high = (end - constant for end in numbers((effect.interval,), find))
        difference, over = here[0] - constant, "as in its step"
    else:
        difference, (low, high) = welch(here, there)
        over = f"over {len(here)} and {counted(len(there), 'seed')}"
    seen = high < 0 if effect.lower else low > 0
    in_points = effect.unit == "points"
    told = [signed(100 * each) if in_points else f"{each:+.3f}" for each in (difference, low, high)]
    answer = "Yes" if seen else "Not shown by this run"
    return {
        "claim": effect.claim,
        "difference": difference,
        "interval": [low, high],
        "unit": effect.unit,
        "shown": seen,
        "sentence": f"{effect.claim}? {answer}: {told[0]} {effect.unit} ({told[1]} to {told[2]}; 95 % interval, {over}).",
    }


def numbers(places: Sequence[Place], find: Callable[[Place], Any]) -> list[float]:
    """The numbers at several places, lists joined; a TypeError where something else stands."""
    found = [find(place) for place in places]
    joined = [each for value in found for each in (value if isinstance(value, list) else [value])]
    if not all(isinstance(each, (int, float)) for each in joined):
        raise TypeError("not a number")
    return [float(each) for each in joined]


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, list[float]]:
    """The mean of `a` minus that of `b`, with Welch's 95 % interval.

    >>> difference, (low, high) = welch([3.0, 3.2, 3.4], [1.0, 1.1, 1.2])
    >>> round(difference, 2), round(low, 2), round(high, 2)
    (2.1, 1.68, 2.52)
    """
    from scipy.stats import ttest_ind

    if min(len(a), len(b)) < FEWEST:
        raise ValueError(f"a difference over seeds needs {FEWEST} of each, and here are {len(a)} and {len(b)}")
    result = ttest_ind(a, b, equal_var=False)
    low, high = result.confidence_interval(0.95)
    return mean(a) - mean(b), [float(low), float(high)]
