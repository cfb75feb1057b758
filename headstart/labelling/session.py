"""A labelling session is a folder: the texts, their features, computed once, and the journal of labels. start.py makes it.

labelling.json           what it was started with
texts.jsonl            the rows that can be labelled: {"row": number in the file, "text": ...}; each text once, none blank
features.safetensors   vectors, and zero-shot probabilities where there are any
labels.csv             the journal of answers (journal.py), the only file that changes
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headstart.errors import ConfigError, DataError, ModelError, did_you_mean
from headstart.labelling import curve, query
from headstart.labelling.advice import MORE, Expected, Point, Status, advise
from headstart.labelling.classifier import Classifier
from headstart.labelling.features import Features
from headstart.labelling.journal import Answer, Journal
from headstart.regular_file import read_regular
from headstart.runs.record_shapes import Shape
from headstart.runs.records import read_json

REFIT = 10  # labels, after which the classifier is fitted again
AUTHOR = re.compile(r"[a-z0-9-]{1,32}")
FILE = "file"  # the author of labels that the file had
FORMAT = 1
RECORD = "labelling.json"


class Record(Shape):
    """labelling.json"""

    format: int
    file: str
    text_column: str
    labels: list[str]
    base: str
    rows: int
    seed: int


@dataclass(frozen=True)
class Item:
    """A row to label."""

    row: int  # in the file
    text: str
    random: bool  # of the part that the accuracy is measured on


@dataclass(frozen=True)
class Now:
    """A state of the journal."""

    lines: int
    labelled: list[Answer]  # in the order in which they were given
    skipped: set[int]
    answered: set[int]


def sessions_in(folder: str | Path) -> list[Path]:
    """The folders of the sessions below a folder."""
    return sorted(path.parent for path in Path(folder).rglob(RECORD) if (path.parent / "labels.csv").is_file())


class Session:
    """One folder. Threads of one process may share it; other processes may write to it at the same time."""

    def __init__(self, path: Path, record: Record) -> None:
        self.path, self.record = path, record
        self.journal = Journal(path / "labels.csv")
        self.turn = threading.Lock()  # of the journal, for a moment
        self.work = threading.Lock()  # of fits, which may take a second; answers do not wait for them
        self._fitted: tuple[tuple[int, ...], list[int], query.Floats | None] | None = None
        self._status: tuple[int, Status] | None = None

    @classmethod
    def open(cls, path: str | Path) -> Session:
        path = Path(path)
        if not (path / RECORD).is_file():
            raise ModelError(f"{path} holds no labelling session. Start one: headstart label start FILE --out {path}.", "LABELLING_MISSING")  # fmt: skip
        found = read_json(path / RECORD, Record, "LABELLING_DAMAGED")
        if found["format"] != FORMAT:
            raise ModelError(f"{path} was made by another release of headstart (format {found['format']}).", "LABELLING_DAMAGED")  # fmt: skip
        return cls(path, Record.model_validate(found))

    @cached_property
    def items(self) -> dict[int, str]:
        """The text of each row, by its number in the file; in the order of the features."""
        try:
            lines = read_regular(
                self.path / "texts.jsonl"
            ).splitlines()  # of bytes: U+0085 and U+2028 are part of a text
            found = {int(each["row"]): str(each["text"]) for each in map(json.loads, lines)}
        except (OSError, ValueError, KeyError, TypeError):
            raise ModelError(f"{self.path / 'texts.jsonl'} is missing or damaged.", "LABELLING_DAMAGED") from None
        if len(found) != self.record.rows:
            raise ModelError(f"{self.path / 'texts.jsonl'} is damaged: {len(found)} of {self.record.rows} rows.", "LABELLING_DAMAGED")  # fmt: skip
        return found

    @cached_property
    def numbers(self) -> list[int]:
        """The number in the file of each place."""
        return list(self.items)

    @cached_property
    def places(self) -> dict[int, int]:
        return {row: place for place, row in enumerate(self.numbers)}

    @cached_property
    def classifier(self) -> Classifier:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        file = self.path / "features.safetensors"
        try:
            found = load(read_regular(file))
            features = Features(found["vectors"], found["words"])
        except (OSError, SafetensorError, KeyError):
            raise ModelError(f"{file} is missing or damaged.", "LABELLING_DAMAGED") from None
        if len(features.vectors) != self.record.rows:
            raise ModelError(f"{file} is not of these texts.", "LABELLING_DAMAGED")
        return Classifier(features, len(self.record.labels))

    @cached_property
    def order(self) -> query.Ints:
        return query.random_order(self.record.rows, self.record.seed)

    def next(self, count: int = 1, held: Sequence[int] = ()) -> list[Item]:
        """The rows to label next; not those that others `held` before them, by their numbers."""
        now = self._now()
        with self.work:
            answered = {self.places[row] for row in now.answered if row in self.places}
            places, probabilities = self._chosen(now.labelled)

            def choose(taken: set[int], wanted: int) -> list[int]:
                start = 0 if self.classifier.words.size else query.START
                return query.choose(self.classifier.inputs, probabilities, places, taken, wanted, start)

            taken = {self.places[row] for row in held if row in self.places}
            found = query.interleaved(self._own(now.labelled), count, self.order, answered, taken, choose)
            return [Item(self.numbers[place], self.items[self.numbers[place]], random) for place, random in found]

    def add(self, row: int, label: str, by: str) -> None:
        """A label, on the disk when this returns."""
        self._must_be_known(row, by)
        if label not in self.record.labels:
            names = ", ".join(self.record.labels)
            raise DataError(f"There is no label '{label}' here.{did_you_mean(label, self.record.labels)} The labels are {names}.", "LABEL_UNKNOWN")  # fmt: skip
        with self.turn:
            self.journal.label(row, label, by)

    def skip(self, row: int, by: str) -> None:
        self._must_be_known(row, by)
        with self.turn:
            self.journal.skip(row, by)

    def undo(self, row: int, by: str) -> None:
        self._must_be_known(row, by)
        with self.turn:
            self.journal.undo(row, by)

    def counts(self) -> tuple[int, int]:
        """Labelled rows, and skipped ones."""
        now = self._now()
        return len(now.labelled), len(now.skipped)

    def status(self) -> Status:
        """How good the classifier is and what more labels bring; computed once for each state of the journal."""
        now = self._now()
        with self.work:
            if self._status is None or self._status[0] != now.lines:
                self._status = now.lines, self._measured(now)
            return self._status[1]

    def labelled(self) -> list[tuple[int, str, str, bool]]:
        """Row, text, label, and whether it is of the random part; in the order of the file."""
        answers = self._now().labelled
        random, known = self._random(answers), {answer.row: str(answer.label) for answer in answers}
        return [(row, self.items[row], known[row], self.places[row] in random) for row in self.numbers if row in known]

    def _now(self) -> Now:
        with self.turn:
            journal = self.journal.refresh()
            return Now(journal.lines, journal.labelled(), journal.skipped(), journal.answered())

    def _measured(self, now: Now) -> Status:
        began, answers, names = time.perf_counter(), now.labelled, list(self.record.labels)
        rows = [self.places[answer.row] for answer in answers]
        targets = [names.index(str(answer.label)) for answer in answers]
        random = self._random(answers)
        test = [i for i, row in enumerate(rows) if row in random]
        at = curve.marks(len(rows)) if len(test) >= curve.FEWEST and len(set(targets)) > 1 else []
        hits = curve.hits_of(self.classifier, rows, targets, test, at)
        found = curve.gains(hits, at, MORE)
        counts = {name: Counter(targets)[i] for i, name in enumerate(names)}
        stop, advice = advise(counts, len(test), self.record.rows - len(now.answered), found)
        points = [Point(labels=n, accuracy=float(part.mean()), low=low, high=high)
                  for n, part in zip(at, hits, strict=True) for low, high in [curve.wilson(int(part.sum()), len(test))]]  # fmt: skip
        return Status(
            file=self.record.file, base=self.record.base, zero_shot=bool(self.classifier.words.size), rows=self.record.rows,
            labelled=len(rows), skipped=len(now.skipped), random=len(test), counts=counts, curve=tuple(points),
            expected=tuple(Expected(labels=g.labels, points=g.points, low=g.low, high=g.high) for g in found),
            stop=stop, advice=advice, seconds=time.perf_counter() - began,
        )  # fmt: skip

    def _chosen(self, labelled: Sequence[Answer]) -> tuple[list[int], query.Floats | None]:
        """The labelled places outside of the random part, and the probabilities of all rows by them; as of the last REFIT * k labels."""
        counted = labelled[: len(labelled) - len(labelled) % REFIT]
        key = tuple(answer.line for answer in counted)
        if self._fitted is None or self._fitted[0] != key:
            random, names = self._random(counted), self.record.labels
            known = {self.places[a.row]: names.index(str(a.label)) for a in counted if self.places[a.row] not in random}
            model = self.classifier.fit(list(known), list(known.values()))
            self._fitted = key, list(known), self.classifier.probabilities(model)
        return self._fitted[1:]

    def _own(self, labelled: Sequence[Answer]) -> int:
        """Labels that were given here; those of the file are no reason to ask for random rows."""
        return sum(answer.by != FILE for answer in labelled)

    def _random(self, labelled: Sequence[Answer]) -> set[int]:
        """The places of the random part."""
        return set(query.random_part(self.order, self._own(labelled)).tolist())

    def _must_be_known(self, row: int, by: str) -> None:
        if row not in self.items:
            raise DataError(f"There is no row {row} to label. headstart label next lists rows.", "LABEL_ROW")
        if not AUTHOR.fullmatch(by):
            raise ConfigError(f"'{by}' is no author: small letters, digits and -, 32 at most.")
