"""Train, validation and test rows: given or made, and what they share.

A made split goes by a hash of the text, so it is the same on every machine, does not depend on the order of
the file, and never puts duplicates of one text on different sides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict, TypeVar

import numpy as np

from headstart.data import CorpusConfig, LabelledConfig
from headstart.errors import ConfigError, DataError, did_you_mean
from headstart.targets.classes import Classes
from headstart.targets.target import Target
from headstart.targets.tasks import TARGETS
from headstart.task import Input, Task
from headstart.text.classes import found_task, not_classes
from headstart.text.corpus_stream import CorpusStream, is_large
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.files import PLAIN, Reading, is_blank
from headstart.text.hygiene import HygieneReport, check
from headstart.text.inputs import in_words, input_of, together
from headstart.text.layouts import LAYOUTS, layout_task
from headstart.text.read import Example, label_column_of, read_corpus, read_labelled, refuse_blank
from headstart.text.stretches import Texts, stretches_of

T = TypeVar("T")
SELECTED_FROM = 200  # labels; of fewer, none are set aside for validation, and nothing is selected on them
MOST_SHOWN = 20  # labels in a message
FEW_DOCUMENTS = 20  # below this many, the end of each document is held out instead of whole documents


@dataclass(frozen=True)
class Corpus:
    train: Texts
    valid: list[str]
    reading: Reading = PLAIN  # what had to be changed in the files


class LabelledFacts(TypedDict):
    """What data.json holds of labelled rows; the inner keys are the names of the parts."""

    rows: dict[str, int]
    labels: dict[str, dict[str, int]]
    reading: dict[str, int]
    hygiene: HygieneReport | None  # None: not looked for
    split_sha256: str


@dataclass(frozen=True)
class Labelled:
    train: list[Example]
    valid: list[Example]
    test: list[Example]
    labels: list[str]  # sorted; the index of a label is its class number
    reading: Reading = PLAIN  # what had to be changed in the files
    kind: Target | None = None  # what is predicted; None: one class

    @cached_property
    def target(self) -> Target:
        return self.kind or Classes(tuple(self.labels))

    @property
    def reads(self) -> Input:
        """What there is to read in a row."""
        return input_of([e.text for e in self.train[:1]])

    def notes(self, facts: LabelledFacts) -> Iterator[str]:
        """What to report of the rows before training."""
        counts = ", ".join(
            f"{label or '(none)'} {count}" for label, count in list(facts["labels"]["train"].items())[:10]
        )
        if self.target.task != "classify":
            yield f"Task: {self.target.task}{self.target.described}. --task names another."
        labels = f"; labels: {counts}" if counts else ""
        yield f"{len(self.train)} training, {len(self.valid)} validation, {len(self.test)} test rows{labels}."
        warnings = facts["hygiene"]["warnings"] if facts["hygiene"] else self.reading.notes()
        yield from (f"Note: {warning}" for warning in warnings)

    def majority_scores(self) -> dict[str, str | float]:
        """The best answer that is the same for all rows, and its score in each part that has rows: accuracy of classes."""
        target, encoded = (
            self.target,
            {n: self.target.encode([e.label for e in rows]) for n, rows in self.parts().items()},
        )
        outputs = target.constant(encoded["train"])[None]
        answer = target.answers(outputs)
        score = "accuracy" if target.task == "classify" else target.leading([e.label for e in self.train])
        scored = {
            name: float(target.scores(truth, np.repeat(answer, len(truth), 0))[score])
            for name, truth in encoded.items()
            if len(truth)
        }
        written = target.written(answer[0])
        shown = f"{written:.4g}" if isinstance(written, float) else target.shown(answer[0])
        return {"label": shown or "(no label)", **scored}

    def parts(self) -> dict[str, list[Example]]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def facts(self, look_for_copies: bool = True) -> LabelledFacts:
        """Sizes, label counts, and what is wrong with the rows, for data.json."""
        parts = self.parts()
        hygiene = check(parts, self.target) if look_for_copies else None
        if hygiene:
            hygiene["warnings"] = [*hygiene["warnings"], *self.reading.notes()]
        return {
            "rows": {name: len(rows) for name, rows in parts.items()},
            "labels": {name: self.target.counts([e.label for e in rows]) for name, rows in parts.items()},
            "reading": self.reading.facts(),
            "hygiene": hygiene,
            "split_sha256": digest(*(f"{name}\t{e.label}\t{e.text}" for name, rows in parts.items() for e in rows)),
        }


def split_corpus(cfg: CorpusConfig) -> Corpus:
    """The corpus of `cfg` with its validation part held out."""
    reading = Reading(cfg)
    if is_large(cfg):
        return _split_stream(cfg, reading)
    texts = read_corpus(cfg.paths, cfg.unit, cfg.text_column, reading)
    if not cfg.valid_fraction:
        return Corpus(texts, [], reading)
    fraction = min(cfg.valid_fraction, cfg.valid_most / sum(map(len, texts)))
    if _ends_held_out(cfg, len(texts), fraction):
        cuts = [int(len(text) * (1 - fraction)) for text in texts]
        heads, tails = (
            [text[:cut] for text, cut in zip(texts, cuts, strict=True)],
            [text[cut:] for text, cut in zip(texts, cuts, strict=True)],
        )
        return Corpus([t for t in heads if t.strip()], [t for t in tails if t.strip()], reading)
    train, valid = hash_split(texts, texts, [""] * len(texts), fraction, seed=0)
    if not train or not valid:
        raise _too_few(cfg, len(texts))
    return Corpus(train, valid, reading)


def _split_stream(cfg: CorpusConfig, reading: Reading) -> Corpus:
    """The same for a corpus that is never in memory as a whole; what is held out is."""
    stream = CorpusStream(cfg, reading)
    found = stream.survey()
    if not cfg.valid_fraction:
        return Corpus(stream.without(set(), found.characters), [], reading)
    fraction = min(cfg.valid_fraction, cfg.valid_most / found.characters)
    if _ends_held_out(cfg, found.texts, fraction):
        heads, tails = stream.tails([int(length * (1 - fraction)) for length in found.lengths])
        return Corpus(heads, tails, reading)
    numbers = stream.held_out(round(fraction * found.texts))
    valid = ["".join(stretches_of(text)) for number, text in enumerate(stream) if number in numbers]
    if not valid or len(numbers) == found.texts:
        raise _too_few(cfg, found.texts)
    return Corpus(stream.without(numbers, found.characters - sum(map(len, valid))), valid, reading)


def _ends_held_out(cfg: CorpusConfig, texts: int, fraction: float) -> bool:
    """Whether the end of each document is held out: where they are few, or so long that one would be too much."""
    return cfg.unit == "document" and (texts < FEW_DOCUMENTS or not round(fraction * texts))


def _too_few(cfg: CorpusConfig, texts: int) -> DataError:
    return DataError(
        f"{', '.join(cfg.paths)}: {texts} texts are too few to hold some out. "
        "Use --set data.valid_fraction=0 to train on all of them.",
        "DATA_SMALL",
    )


def split_labelled(cfg: LabelledConfig) -> Labelled:
    """All the rows of `cfg`, split where a part is not given, and checked against each other."""
    reading = Reading(cfg)

    def read(path: str, known: Sequence[str] = ()) -> list[Example]:
        return read_labelled(path, cfg.text_column, cfg.label_column, reading, keep_blank=True, known=known)

    train = read(cfg.train)
    task, separator = _task_of(cfg, train, reading)
    kind = TARGETS[task]

    def target_of(rows: Sequence[Example]) -> Target:
        return kind.of([e.label for e in rows], separator)

    known = sorted({e.label for e in train})
    valid = read(cfg.valid, known) if cfg.valid else []
    test = read(cfg.test, known) if cfg.test else []
    for path, rows in ((cfg.train, train), (cfg.valid, valid), (cfg.test, test)):
        if path:
            refuse_blank(path, rows, labels=not kind.may_be_blank)
            must_be_readable(path, rows, task, separator)
    must_agree(train, valid, test)
    if not cfg.test and cfg.test_fraction:
        train, test = _stratified(train, cfg.test_fraction, cfg.split_seed, target_of(train))
    if not cfg.valid:
        train, valid = _stratified(train, cfg.valid_fraction, cfg.split_seed + 1, target_of(train))
    made_here = [e for rows, given in ((valid, cfg.valid), (test, cfg.test)) if not given for e in rows]
    target = target_of([*train, *made_here] if kind.of_held_out else train)
    target = target.with_held_out([e.label for e in (*valid, *test)], reading.note)
    labels = list(target.names) if train else []
    if len(labels) < kind.fewest:
        only = f"only the label '{labels[0]}'" if labels else "no rows"
        raise DataError(f"{cfg.train}: {only} to train on; a classifier needs two or more.", "DATA_ONE_CLASS")
    for name, given, rows in (("validation", cfg.valid, valid), ("test", cfg.test, test)):
        strange = target.strange([e.label for e in rows])
        shown = ", ".join(map(repr, strange[:MOST_SHOWN])) + (", ..." if len(strange) > MOST_SHOWN else "")
        if strange and not given:
            raise DataError(
                f"{cfg.train}: all rows of {shown} were held out for {name}, and none is left to learn from. "
                "Give more of them, or hold out less.",
                "DATA_SMALL",
            )
        if strange:
            raise DataError(
                f"The {name} rows have labels that the training rows do not: {shown}."
                f"{did_you_mean(strange[0], labels)} The training labels are {', '.join(labels[:10])}.",
                "DATA_LABEL",
            )
    if not valid:
        raise DataError(f"{cfg.train}: too few rows to hold some out for validation.", "DATA_SMALL")
    return Labelled(train, valid, test, labels, reading, target)


def must_agree(*parts: Sequence[Example]) -> None:
    """The same kind of input in all parts."""
    found = {input_of([e.text for e in rows[:1]]) for rows in parts if rows}
    if len(found) > 1:
        one, other = in_words(found)[:2]
        raise DataError(
            f"The rows of one file are {one}, those of another {other}. Name the columns: --text-column.",
            "DATA_COLUMNS",
        )


def _task_of(cfg: LabelledConfig, rows: Sequence[Example], reading: Reading) -> tuple[Task, str]:
    """The task that the settings name, or that the training labels show; and the separator of several labels."""
    counts = Counter(e.label for e in rows if not is_blank(e.label))
    if cfg.label_separator is not None:
        return "multilabel", _given_separator(cfg, cfg.label_separator, list(counts))
    shown = layout_task(cfg.train, cfg.text_column, cfg.label_column, reading) if cfg.task == "auto" else cfg.task
    if shown in {layout.task for layout in LAYOUTS}:
        return shown, ""
    found, separator = found_task(counts, label_column_of(cfg.train, cfg.label_column, reading))
    if cfg.task == "auto" and not cfg.any_labels and found == "classify" and (why := not_classes(counts)):
        raise DataError(
            f"{cfg.train}: {why} Or name the column of the classes with --label-column. --any-labels takes them for "
            "classes all the same.",
            "DATA_LABEL",
        )
    task: Task = ("classify" if cfg.any_labels else found) if cfg.task == "auto" else cfg.task
    return task, separator


def _given_separator(cfg: LabelledConfig, separator: str, labels: Sequence[str]) -> str:
    """The separator that was given, which stands for several labels; refused where it has no effect."""
    if cfg.task not in ("auto", "multilabel"):
        raise ConfigError(
            f"--label-separator is for several labels in one cell; --task {cfg.task} has one. Leave out one of the two."
        )
    if not any(separator in label for label in labels if not label.lstrip().startswith("[")):
        raise DataError(
            f"{cfg.train}: no label holds the separator '{separator}'. The labels are {', '.join(map(repr, labels[:3]))}"
            f"{', ...' * (len(labels) > 3)}.",
            "DATA_LABEL",
        )
    return separator


def must_be_readable(path: str, rows: Sequence[Example], task: Task, separator: str) -> None:
    """Refuse labels that the task cannot be made of, with the row where the first stands."""
    for row, example in enumerate(rows, start=1):
        if fault := TARGETS[task].fault(example.text, example.label, separator):
            raise DataError(f"{path}, row {row}: {fault}.", "DATA_LABEL")


def draw(data: Labelled, labels: int, seed: int, balanced: bool = False) -> Labelled:
    """`data` with only `labels` of its training and validation rows, four training rows per validation row.

    Classes keep their shares, or have equally many rows if `balanced`, as far as there are rows. With the same seed, what is
    drawn of more labels contains what is drawn of fewer.
    """
    pool = [*data.train, *data.valid]
    if labels > len(pool):
        raise DataError(f"{labels} labels were asked for; there are {len(pool)}.", "DATA_SMALL")
    classes: dict[Hashable, list[Example]] = defaultdict(list)
    strata = data.target.strata([e.label for e in pool])
    order = [digest(str(seed), e.label, e.text) for e in pool]
    for i in sorted(range(len(pool)), key=order.__getitem__):
        classes[strata[i]].append(pool[i])
    # Every class is spread evenly over (0, 1), so that any beginning of the whole has the shares of the whole.
    ranked = sorted(
        ((i if balanced else (i + 0.5) / len(rows), stratum, i, example) for stratum, rows in classes.items() for i, example in enumerate(rows)),
        key=lambda ranked: ranked[:3],
    )[:labels]  # fmt: skip
    held_out = labels >= SELECTED_FROM
    train = [example for _, _, i, example in ranked if not held_out or i % 5 != 4]
    valid = [example for _, _, i, example in ranked if held_out and i % 5 == 4]
    missing = sorted(set(data.labels) - {e.label for e in train})
    if missing and data.target.task == "classify":
        raise DataError(f"{labels} labels are too few: none of them is '{missing[0]}'. Use more.", "DATA_SMALL")
    return replace(data, train=train, valid=valid)


def hash_split(
    items: Sequence[T], texts: Sequence[str], strata: Sequence[Hashable], fraction: float, seed: int
) -> tuple[list[T], list[T]]:
    """(the rest, `fraction` of every stratum), exact duplicates always on one side, order kept."""
    duplicates: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        duplicates[normal(together(text))].append(i)
    groups: dict[Hashable, list[tuple[str, list[int]]]] = defaultdict(list)
    for key, rows in duplicates.items():
        stratum = min((strata[i] for i in rows), key=repr)  # not the first: that would depend on the order
        groups[stratum].append((digest(str(seed), key), rows))
    taken: set[int] = set()
    for members in groups.values():
        room = round(fraction * sum(len(rows) for _, rows in members))
        for _, rows in sorted(members):
            if len(rows) <= room:
                taken.update(rows)
                room -= len(rows)
    return [x for i, x in enumerate(items) if i not in taken], [x for i, x in enumerate(items) if i in taken]


def _stratified(rows: list[Example], fraction: float, seed: int, target: Target) -> tuple[list[Example], list[Example]]:
    return hash_split(rows, [e.text for e in rows], target.strata([e.label for e in rows]), fraction, seed)
