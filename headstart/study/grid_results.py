"""results.json of a grid of translators and of a grid of matchers, as objects. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headstart.quantities import counted
from headstart.study.parts import Part
from headstart.study.results import Failure, Found, Interval


class GridFound(Found):
    """A grid of translators or matchers."""

    failed: dict[str, str] = Field(default_factory=dict)  # cell -> message
    failures: list[Failure] = Field(default_factory=list)
    missing_cells: int = 0  # neither finished nor failed

    @property
    def notices(self) -> list[str]:
        if not self.missing_cells:
            return []
        missing = counted(self.missing_cells, "cell", "is", "are")
        return [f"This study is not finished: {missing} missing. The command that began it goes on with it."]


class TranslatorRow(Part):
    """A model of one hidden size on one data set: means over seeds."""

    data: str
    rows: int  # training pairs
    model: str
    hidden: int
    parameters: int
    seeds: int
    loss: float  # on the validation pairs, in nats per target token
    losses: list[float]  # of each seed
    loss_sd: float | None = None
    exact_match: float
    seconds: float


class TranslatorCurve(Part):
    data: str
    model: str
    hidden: int
    seed: int
    train: list[tuple[int, float]]  # step, loss
    valid: list[tuple[int, float]]


class TranslatorResults(GridFound):
    table: list[TranslatorRow] = Field(min_length=1)
    curves: list[TranslatorCurve] = Field(default_factory=list)


Recalls = dict[str, float]  # "recall@5" -> share of queries


class MatcherRow(Part):
    """A pair of towers, and what was trained of it: means over splits."""

    text: str
    image: str
    trained: Literal["head", "full"]
    splits: int
    at_1: float = Field(alias="recall@1")  # text to image, as the next two
    at_5: float = Field(alias="recall@5")
    at_10: float = Field(alias="recall@10")
    intervals: dict[str, Interval | None]
    back: Recalls  # image to text
    chance: dict[str, Recalls]  # direction -> recall by guessing
    trained_parameters: int
    seconds: float

    @property
    def recalls(self) -> Recalls:
        return {"recall@1": self.at_1, "recall@5": self.at_5, "recall@10": self.at_10}


class MatcherDifference(Part):
    """The recall of `a` minus that of `b`, on the splits that both have."""

    a: str
    b: str
    score: str
    splits: int
    difference: float | None = None
    interval: Interval | None = None
    clear: bool = False


class MatcherResults(GridFound):
    table: list[MatcherRow] = Field(min_length=1)
    differences: list[MatcherDifference] = Field(default_factory=list)

    @property
    def notices(self) -> list[str]:
        """Recall that guessing reaches says nothing of a model."""
        sure = [at for at, by_chance in self.table[0].chance["text_to_image"].items() if by_chance == 1]
        few = f"Too few images to judge by: {' and '.join(sure)} would be 1 by guessing."
        return [*super().notices, *([few] if sure else [])]
