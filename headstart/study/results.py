"""results.json of a study of classifiers, as objects, and what all kinds of studies share: gathered from cells, put into a verdict, shown on a page. No torch.

Scores, differences and their intervals are fractions of 1. What is null or left out takes the default written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from headstart.errors import DataError, ModelError
from headstart.hub.packs import name_of
from headstart.runs.disk import write_file
from headstart.runs.record_shapes import Shape
from headstart.runs.records import read_json
from headstart.strict_json import to_json
from headstart.study.parts import Hygiene, Number, Part
from headstart.targets.tags import stretches
from headstart.targets.tasks import TARGETS
from headstart.task import Task
from headstart.text.visible import all_shown

Interval = tuple[float, float]


class Found(Part):
    """All that a study found: results.json."""

    verdict: str

    @classmethod
    def read(cls, file: Path) -> Self:
        """The results in a file that a study wrote."""
        if not os.path.lexists(file):
            raise DataError(
                f"{file.parent}: there is no {file.name} here. Is this the folder of a study?", "STUDY_MISSING"
            )
        try:
            return cls.of(read_json(file, Shape))
        except (ModelError, DataError) as error:
            raise DataError(f"{file}: damaged ({error}). Run the study again; cells that are finished are kept.", "STUDY_DAMAGED") from None  # fmt: skip

    @classmethod
    def of(cls, results: Any) -> Self:
        """Results from plain data."""
        try:
            return cls.model_validate(results)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(f"{where}: {first['msg']}", "STUDY_DAMAGED") from None

    def plain(self) -> dict[str, Any]:
        """As JSON has them."""
        return self.model_dump(mode="json", by_alias=True)

    def shown(self) -> Self:
        """A copy in which everything that a user wrote is fit to be shown."""
        return type(self).of(all_shown(self.plain()))

    def write(self, folder: Path) -> None:
        write_file(folder / "results.json", to_json(self.plain(), indent=1).encode())


class Score(Part):
    """Over seeds; without a mean no seed came to its end."""

    mean: float | None = None
    interval: Interval | None = None


class Summary(Score):
    sd: float | None = None


class Calibration(Part):
    ece: float | None = None
    brier: float | None = None
    ece_before: float | None = None  # temperature scaling


class Abstention(Part):
    """The accuracy on the rows that an arm is surest of, and their share of all test rows."""

    coverage: list[float] = []
    accuracy: list[float] = []


class Cost(Part):
    """What one seed of an arm cost."""

    seconds: float | None = None
    tokens: Number | None = None
    trained_parameters: Number | None = None
    trials: Number | None = None  # on the validation rows, to choose `rate`
    trial_seconds: float | None = None  # of all of them


class ArmResult(Summary):
    """An arm at one label count."""

    name: str
    kind: str = ""
    base: str | None = None
    labels: int  # 0: it uses none
    over: str = ""  # "seeds and rows" or "rows only"
    seeds: int = 1
    scores: list[float] = []  # of each seed
    accuracy: Summary | None = None
    macro_f1: Summary | None = None
    measures: dict[str, Summary] = {}  # further scores, of tasks that have others
    calibration: Calibration = Calibration()
    abstention: Abstention = Abstention()
    overlapping_test_rows: int | None = None  # with training rows
    clean: Score | None = None  # without those
    rate: float | None = None  # learning rate (of a logistic regression: C), where it was chosen
    confusion: list[list[Number]] = []  # summed over seeds; rows true, columns predicted
    points: list[tuple[float, float]] = []  # of numbers: true and predicted, the latter a mean over seeds
    types: dict[str, float | None] = {}  # F1 of each type of entity, or of each tag
    cost: Cost = Cost()

    def measure(self, score: str) -> Summary | None:
        """Any of its scores."""
        return self.measures.get(score) or {"accuracy": self.accuracy, "macro_f1": self.macro_f1}.get(score)


class Needed(Part):
    """How many would make a difference clear, were it as seen."""

    seeds: int | None = None
    rows: int | None = None


class Difference(Part):
    """The score of `a` minus that of `b`, on the same test rows."""

    a: str
    b: str
    labels: int
    difference: float
    interval: Interval
    p: float | None = None
    level: float = 0.95
    adjusted: bool = False  # one of the family that the verdict speaks of
    clear: bool = False
    over: str = ""
    seeds: int | None = None
    needed: Needed | None = None  # of one that is not clear

    @property
    def would_tell(self) -> Needed:
        return self.needed or Needed()


class LabelsNeeded(Part):
    """How many labels `arm` needs for the score that `reference` has with all of them; null: not reached."""

    arm: str
    reference: str
    score: float
    labels: Number | None = None
    interval: tuple[Number | None, Number | None] = (None, None)
    at_most: bool = False  # reached with the fewest labels that were tried
    saved: Number | None = None


class Curves(Part):
    """What was measured while an arm learned: one list per seed."""

    labels: int | None = None
    step: list[int] = []
    epoch: list[float] = []
    train_loss: list[list[float | None]] = []
    valid_loss: list[list[float | None]] = []
    valid_accuracy: list[list[float | None]] = []  # of tasks other than classify: the leading score


class Mistake(Part):
    row: int
    text: str
    label: str
    prediction: str
    probability: float
    seeds: int = 1


class Disagreement(Part):
    row: int
    text: str
    label: str
    said: dict[str, dict[str, int]]  # arm -> label -> seeds


class TaggedRow(Part):
    row: int
    words: list[str]
    tags: list[str]
    said: dict[str, list[str]]  # by the first seed of each arm

    def stretches(self, tags: list[str]) -> list[tuple[str, str]]:
        """The words in stretches, with the type or the tag of each by these tags."""
        return stretches(self.words, tags)


class Receipt(Part):
    """What an arm took over from its base, in tensors."""

    arm: str
    base: str | None = None
    pool: str | None = None
    objective: str | None = None
    copied: int = 0
    new: int = 0
    frozen: int = 0
    frozen_moved: int = 0
    base_sha256_before: str = ""
    base_sha256_after: str = ""


class Pretraining(Part):
    name: str
    run: str = ""
    objective: str | None = None
    vectors: str | None = None  # pretrained word vectors
    parameters: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    preparing_seconds: float | None = None  # reading, cutting into tokens, counting
    valid_loss: float | None = None

    @property
    def minutes(self) -> float:
        return ((self.seconds or 0) + (self.preparing_seconds or 0)) / 60


class Failure(Part):
    cell: str
    exit: int | None = None
    message: str = ""


class File(Part):
    file: str
    bytes: int | None = None
    sha256: str = ""


class Data(Part):
    name: str = ""
    rows: dict[str, int] = {}
    labels: dict[str, dict[str, int]] = {}  # part -> label -> rows
    files: list[File] = []
    split_sha256: str = ""
    overlapping_test_rows: int | None = None

    @property
    def test_rows(self) -> int | None:
        return self.rows.get("test")


class StudyCost(Part):
    seconds: float | None = None
    cells: int | None = None
    pretraining_seconds: float | None = None


class Repeat(Part):
    command: str = ""
    settings: str = ""  # the text of study.toml
    versions: dict[str, str] = {}
    started: str = ""
    platform: str = ""
    threads: int | None = None


class Results(Found):
    """A study of classifiers."""

    title: str
    notices: list[str] = []
    task: Task = "classify"
    score: str = "accuracy"  # the leading one
    data: Data = Data()
    labels: list[int] = []  # label counts that were asked for
    seeds: int = 1
    label_names: list[str] = []
    arms: list[ArmResult] = Field(min_length=1)
    differences: list[Difference] = []
    labels_needed: list[LabelsNeeded] = []
    curves: dict[str, Curves] = {}
    mistakes: dict[str, list[Mistake]] = {}
    disagreements: list[Disagreement] = []
    tagged: list[TaggedRow] = []
    receipts: list[Receipt] = []
    pretraining: list[Pretraining] = []
    failures: list[Failure] = []
    missing_cells: int = 0
    hygiene: Hygiene = Hygiene()
    cost: StudyCost = StudyCost()
    repeat: Repeat = Repeat()

    @property
    def numeric(self) -> bool:
        """Whether a number is predicted."""
        return TARGETS[self.task].numeric

    @property
    def label_counts(self) -> list[int]:
        """Those at which arms were trained; 0 where none was."""
        return sorted({arm.labels for arm in self.arms if arm.labels}) or [0]

    @property
    def all_labels(self) -> int:
        return self.label_counts[-1]

    @property
    def most_labels(self) -> str:
        """The largest label count in words: not all of them where the study was not given all."""
        fewer = self.all_labels < self.data.rows.get("train", 0) + self.data.rows.get("valid", 0)
        return f"{'' if fewer else 'all '}{self.all_labels:,} labels"

    @property
    def arm_names(self) -> list[str]:
        return list(dict.fromkeys(arm.name for arm in self.arms))

    @property
    def score_name(self) -> str:
        return self.titles.get(self.score, self.score)

    @property
    def titles(self) -> Mapping[str, str]:
        """Of all scores of the task, by key."""
        return TARGETS[self.task].titles

    @property
    def leading_differences(self) -> list[Difference]:
        """The family that the verdict speaks of, or what there is at all labels."""
        family = [d for d in self.differences if d.adjusted]
        return family or [d for d in self.differences if d.labels == self.all_labels]

    @property
    def other_differences(self) -> dict[int, list[Difference]]:
        """The rest by label count, the most labels first."""
        leading = self.leading_differences
        rest = [d for d in self.differences if d not in leading]
        return {n: [d for d in rest if d.labels == n] for n in sorted({d.labels for d in rest}, reverse=True)}

    def base_name(self, path: str | None) -> str:
        """What a base is called here; its path is long, and stands with its pretraining."""
        return {p.run: p.name for p in self.pretraining}.get(path or "", name_of(path) if path else "")

    def at(self, labels: int) -> list[ArmResult]:
        """The arms at one label count; those that use no labels are the same at each."""
        return [arm for arm in self.arms if arm.labels in (labels, 0)]
