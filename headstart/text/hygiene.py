"""Checks of data before training: duplicates, leaks, conflicting labels, lengths.

Three kinds of duplicates are looked for: exact, contained and near (duplicates.py). A test row that is a duplicate of a
training row is a leak.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.quantities import counted
from headstart.targets.target import Target
from headstart.task import Task
from headstart.text.classes import not_classes
from headstart.text.duplicates import Found, Rows, contained, exact, near, normal
from headstart.text.files import is_blank
from headstart.text.inputs import lacks_text
from headstart.text.read import Example
from headstart.text.tables import first_few
from headstart.text.tokenizer import Tokenizer

MOST_ROWS, MOST_WORDS = 400_000, 12_000_000  # beyond either, contained and near duplicates are not looked for
NO_CLASSES = "These may be no classes: "  # how the note begins that says why
SHOWN = 20  # examples of each finding
SHOWN_LABELS = 5  # in a warning
UNEVEN = 2.0  # times as many rows of the majority class as of the rarest: macro-F1 leads
LONG_WORDS, LONG_TOKENS = 400, 512  # of a text that most models cut: 512 tokens are about as many as they read
_CUT = ": they are cut there, or read in windows with finetune --long window."

Splits = Mapping[str, Sequence[Example]]  # in the order train, valid, test


Kind = Literal["exact", "contained", "near"]
KINDS: tuple[Kind, ...] = ("exact", "contained", "near")

# A pair of rows that are alike: their splits, and their places in these.
RowPair = TypedDict("RowPair", {"in": list[str], "rows": list[int]})


class DuplicateReport(TypedDict):
    """Duplicates of one kind, by split."""

    within: dict[str, int]  # rows that duplicate an earlier row of their own split
    leaked: dict[str, int]  # rows that duplicate a row of an earlier split
    rows: dict[str, list[int]]  # which these are
    examples: list[RowPair]


class Clash(TypedDict):
    text: str
    labels: dict[str, int]  # how many rows have each


class Conflicts(TypedDict):
    texts: int  # under more than one label
    examples: list[Clash]


class BlankRows(TypedDict):
    """Rows, counted from 1."""

    text: list[int]
    label: list[int]


class TokenFacts(TypedDict):
    tokens: int
    lengths: dict[str, float]  # quantiles
    characters_per_token: float
    unknown: int
    truncated: NotRequired[int]  # rows that the context would cut


class SplitFacts(TypedDict):
    rows: int
    labels: dict[str, int]
    words: dict[str, float]  # quantiles
    long: int  # rows of more than LONG_WORDS words
    # With a tokenizer, its TokenFacts too:
    tokens: NotRequired[int]
    lengths: NotRequired[dict[str, float]]
    characters_per_token: NotRequired[float]
    unknown: NotRequired[int]
    truncated: NotRequired[int]


class HygieneReport(TypedDict):
    splits: dict[str, SplitFacts]
    exact: DuplicateReport | None
    contained: DuplicateReport | None  # None: the data are too large to look for these
    near: DuplicateReport | None
    conflicts: Conflicts
    duplicates: dict[str, int]  # rows of each split that duplicate an earlier one of it, of any kind
    blank: dict[str, BlankRows]
    overlapping_rows: dict[str, list[int]]  # rows of later splits that duplicate a row of an earlier one
    warnings: list[str]
    reading: NotRequired[dict[str, int]]  # these two: of `data check`
    vocabulary: NotRequired[int]


@dataclass(frozen=True)
class _Duplicates:
    """Rows of one kind of duplicates: inside a split by their number in all of them, across splits by that in their own."""

    inside: dict[str, set[int]]
    leaked: dict[str, set[int]]
    examples: list[RowPair]

    def report(self) -> DuplicateReport:
        return {
            "within": {name: len(rows) for name, rows in self.inside.items()},
            "leaked": {name: len(self.leaked[name]) for name in list(self.leaked)[1:]},
            "rows": {name: sorted(rows) for name, rows in self.leaked.items()},
            "examples": self.examples,
        }


def check(splits: Splits, target: Target | None = None) -> HygieneReport:
    """Everything found in `splits`, as plain data; `warnings` has it in sentences. Without a target, labels are classes."""
    task = target.task if target else "classify"
    numeric, blank = bool(target and target.numeric), bool(target and target.may_be_blank)
    rows = [(name, example) for name, examples in splits.items() for example in examples]
    texts = [normal(example.text) for _, example in rows]
    of = [name for name, _ in rows]
    numbers = {name: number for number, name in enumerate(splits)}
    words = Rows.read(texts, [numbers[name] for name in of])
    all_kinds = len(texts) <= MOST_ROWS and len(words.words) <= MOST_WORDS
    found = [_by_split(kind(words), of, splits) for kind in ((exact, contained, near) if all_kinds else (exact,))]
    report: HygieneReport = {
        "splits": {name: _describe(examples, target) for name, examples in splits.items()},
        "exact": found[0].report(),
        "contained": found[1].report() if all_kinds else None,
        "near": found[2].report() if all_kinds else None,
        "conflicts": _conflicts([] if numeric else rows, [] if numeric else texts),
        "duplicates": {name: len(set().union(*(kind.inside[name] for kind in found))) for name in splits},
        "blank": {name: _blank(examples, not blank) for name, examples in splits.items()},
        "overlapping_rows": {
            name: sorted(set().union(*(kind.leaked[name] for kind in found))) for name in list(splits)[1:]
        },
        "warnings": [],
    }
    report["warnings"] = _warnings(report, splits, task)
    return report


def refuse_leaks(report: HygieneReport | None) -> None:
    """For whoever would rather have no score than one on training rows."""
    assert report is not None, "--strict-leakage needs the check of the rows"
    leaked, rows = len(report["overlapping_rows"]["test"]), report["splits"]["test"]["rows"]
    if leaked:
        raise DataError(
            f"{leaked} of the {rows} test rows also stand among the training rows; --strict-leakage refuses them. "
            "Remove them, or leave it out to see the scores with and without them.",
            "DATA_LEAK",
        )


def token_facts(examples: Sequence[Example], tokenizer: Tokenizer, context: int | None) -> TokenFacts:
    """Lengths in tokens, characters per token, unknown tokens, and the rows that a context would cut."""
    rows = tokenizer.encode([e.text for e in examples], boundaries=False)
    characters = sum(len(e.text) for e in examples)
    facts: TokenFacts = {
        "tokens": len(rows.ids),
        "lengths": quantiles(rows.lengths),
        "characters_per_token": characters / max(1, len(rows.ids)),
        "unknown": tokenizer.unknown(rows),
    }
    if context:
        facts["truncated"] = int((rows.lengths + 2 > context).sum())  # a start and an end token are added
    return facts


def _by_split(pairs: Found, of: Sequence[str], splits: Splits) -> _Duplicates:
    """Duplicates inside each split, and rows of later splits that are like a row of an earlier one."""
    names = list(splits)
    first = {name: sum(len(splits[n]) for n in names[:k]) for k, name in enumerate(names)}
    inside: dict[str, set[int]] = {name: set() for name in names}
    leaked: dict[str, set[int]] = {name: set() for name in names}
    shown: list[RowPair] = []
    for i, j in zip(*(side.tolist() for side in pairs), strict=True):
        a, b = of[i], of[j]
        if a == b:
            inside[b].add(j)
        elif (j - first[b]) not in leaked[b]:
            leaked[b].add(j - first[b])
            if len(shown) < SHOWN:
                shown.append({"in": [a, b], "rows": [i - first[a], j - first[b]]})
    return _Duplicates(inside, leaked, shown)


def _conflicts(rows: Sequence[tuple[str, Example]], texts: Sequence[str]) -> Conflicts:
    labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (_, example), text in zip(rows, texts, strict=True):
        if text and not is_blank(example.label):
            labels[text][example.label] += 1
    clashing = [(text, counts) for text, counts in labels.items() if len(counts) > 1]
    clashing.sort(key=lambda clash: -clash[1].total())  # the worst first
    return {"texts": len(clashing), "examples": [{"text": t[:200], "labels": dict(c)} for t, c in clashing[:SHOWN]]}


def _blank(examples: Sequence[Example], labels: bool = True) -> BlankRows:
    """The rows, counted from 1, that have no text, and those that have no label where others have one, if `labels` are needed."""
    labelled = labels and any(not is_blank(e.label) for e in examples)
    return {
        "text": [n for n, e in enumerate(examples, start=1) if lacks_text(e.text)],
        "label": [n for n, e in enumerate(examples, start=1) if labelled and is_blank(e.label)],
    }


def _describe(examples: Sequence[Example], target: Target | None = None) -> SplitFacts:
    labels = [e.label for e in examples]
    counts = target.counts(labels) if target else Counter(labels)
    lengths = [len(e.text.split()) for e in examples]
    return {
        "rows": len(examples),
        "labels": dict(sorted(counts.items())),
        "words": quantiles(lengths),
        "long": sum(length > LONG_WORDS for length in lengths),
    }


def quantiles(values: Sequence[int] | NDArray[np.int64]) -> dict[str, float]:
    if not len(values):
        return {}
    marks = {"min": 0, "median": 50, "p95": 95, "max": 100}
    return {name: float(np.percentile(values, mark)) for name, mark in marks.items()}


def advice(report: HygieneReport, context: int | None = None, task: Task = "classify") -> list[str]:
    """What to know before training, beside what is wrong: classes of uneven size, and texts that would be cut."""
    notes = []
    first = next(iter(report["splits"].values()))
    shares = sorted(((n, label) for label, n in first["labels"].items() if not is_blank(label)), reverse=True)
    classes = task == "classify" and not_classes({label: n for n, label in shares}) is None
    if classes and len(shares) > 1 and shares[0][0] > UNEVEN * shares[-1][0]:
        total = sum(n for n, _ in shares)
        common, rare = (f"{n / total:.0%} are {label!r}" for n, label in (shares[0], shares[-1]))
        notes.append(
            f"The classes are of very different sizes ({common}, {rare}): compare leads with macro-F1 then, and "
            "finetune --class-weights makes rare classes count as much as common ones."
        )
    for name, part in report["splits"].items():
        if part.get("truncated"):
            notes.append(f"{part['truncated']} of {part['rows']} {name} rows have more than {context} tokens{_CUT}")
        elif "tokens" not in part and part["long"]:
            notes.append(
                f"{part['long']} of {part['rows']} {name} rows have more than {LONG_WORDS} words, more than {LONG_TOKENS} "
                f"tokens or so; the smaller sizes read 128 or 256{_CUT}"
            )
    return notes


def _warnings(report: HygieneReport, splits: Splits, task: Task) -> list[str]:
    notes = []
    learned = list(splits)[:1]
    for name in list(splits)[1:]:
        if count := len(report["overlapping_rows"][name]):
            notes.append(
                f"{count} of {len(splits[name])} {name} rows stand in {' or '.join(learned)} "
                f"({_by_kind(report, 'leaked', name)})."
            )
        learned.append(name)
    notes += [
        f"{count} of {len(splits[name])} {name} rows are duplicates of an earlier one ({_by_kind(report, 'within', name)})."
        for name, count in report["duplicates"].items()
        if count
    ]
    notes += [
        f"{counted(len(rows), f'{name} row', 'has', 'have')} no {what} (row {first_few(rows)}); finetune and compare refuse "
        "such rows, unless --skip-blank leaves them out."
        for name, found in report["blank"].items()
        for what, rows in (("text", found["text"]), ("label", found["label"]))
        if rows
    ]
    if report["near"] is None:
        notes.append(
            f"More than {MOST_ROWS:,} rows or {MOST_WORDS:,} words: only exact duplicates were looked for, no contained "
            "or near ones."
        )
    if report["conflicts"]["texts"]:
        notes.append(f"{counted(report['conflicts']['texts'], 'text', 'stands', 'stand')} under more than one label.")
    first = next((part["labels"] for part in report["splits"].values()), {})
    known = {label: count for label, count in first.items() if not is_blank(label)}
    if task == "classify" and (why := not_classes(known)):
        notes.append(f"{NO_CLASSES}{why}")
    labels = sorted({label for part in report["splits"].values() for label in part["labels"] if not is_blank(label)})
    notes += _spelling(labels)
    single = [label for label, count in first.items() if count == 1 and len(labels) > 1 and label in labels]
    if len(single) == 1:
        notes.append(f"The label {single[0]!r} has one training row only.")
    elif single:
        notes.append(f"{len(single)} labels have one training row only ({_few(single)}).")
    for name in list(splits)[1:]:
        missing = [label for label in labels if label not in report["splits"][name]["labels"]]
        if missing and splits[name]:
            notes.append(
                f"There are no {name} rows of {_few(missing)}: how well a model knows them cannot be measured."
            )
    return notes


def _by_kind(report: HygieneReport, where: Literal["within", "leaked"], name: str) -> str:
    kinds = [(found[where][name], kind) for kind in KINDS if (found := report[kind])]
    return ", ".join(f"{count} {kind}" for count, kind in kinds if count)


def _spelling(labels: Sequence[str]) -> list[str]:
    """One warning for all labels that differ only by the way they are written."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        alike[_meant(label)].append(label)
    groups = [" and ".join(map(repr, names)) for names in alike.values() if len(names) > 1]
    if not groups:
        return []
    more = f" (and {len(groups) - SHOWN_LABELS} more such groups)" if len(groups) > SHOWN_LABELS else ""
    return [
        f"The labels {'; '.join(groups[:SHOWN_LABELS])}{more} differ only by case, space or the way a number is written; "
        "they are kept apart. --clean-labels sets case and space right."
    ]


def _few(labels: Sequence[str]) -> str:
    return f"{', '.join(map(repr, labels[:SHOWN_LABELS]))}{' and others' if len(labels) > SHOWN_LABELS else ''}"


def _meant(label: str) -> str:
    """What two ways of writing one label have in common."""
    try:
        return str(float(label))
    except ValueError:
        return normal(label)
