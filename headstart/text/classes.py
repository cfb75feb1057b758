"""Labels as classes: one spelling for each, and columns that hold something else, such as numbers, ids or lists."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headstart.quantities import counted
from headstart.targets.numbers import number_in
from headstart.task import Task

MOST_FRACTIONS = 10  # different labels with decimals that may still be classes: half stars from 0.5 to 5
MOST_NUMBERS = 50  # different whole numbers that may
FEW_NUMBERS = 10  # that always may
FEWEST_ROWS = 5  # of a class on average, if more whole numbers than these are to be classes
SEPARATORS = "|;,"  # of several labels in one cell
SHOWN = 3  # labels in a message
RATINGS = ("rating", "ratings", "stars", "score", "grade", "review_score", "star_rating")  # columns of ordered classes


def spellings(labels: Iterable[str], known: Sequence[str] = ()) -> dict[str, str]:
    """How labels are spelled that are not spelled right: white space, and case where that makes two into one.

    The right spelling is one of the `known`, or else the most frequent.

    >>> spellings(["pos", "Pos ", "pos", "neg", " neutral"])
    {'Pos ': 'pos', ' neutral': 'neutral'}
    >>> spellings(["POS ", "other"], known=["pos", "neg"])
    {'POS ': 'pos'}
    """
    counts = Counter(labels)
    best: dict[str, str] = {}
    squeezed: Counter[str] = Counter()
    for label, count in counts.items():
        squeezed[_squeezed(label)] += count
    for label, _ in sorted(squeezed.items(), key=lambda item: (-item[1], item[0])):
        best.setdefault(label.casefold(), label)
    best |= {_squeezed(label).casefold(): label for label in known}
    right = {label: best[_squeezed(label).casefold()] for label in counts if label not in known}
    return {label: spelled for label, spelled in right.items() if label != spelled}


def _squeezed(label: str) -> str:
    return " ".join(unicodedata.normalize("NFC", label).split())


def not_classes(labels: Mapping[str, int]) -> str | None:
    """Why `labels`, with the rows of each, are no classes, and what to do; None where they are."""
    rows, names = sum(labels.values()), list(labels)
    if not names:
        return None
    numbers = [number for number in map(number_in, names) if number is not None]
    if len(numbers) == len(names):
        if _are_amounts(numbers, rows):
            return (
                f"the labels are {len(names)} different numbers in {counted(rows, 'row')} ({_few(names)}). --task regression "
                "predicts numbers; for classes, put them into a few, such as low and high."
            )
    elif (several := _lists(names)) is not None:
        return (
            f"some labels seem to be several in one ({_few(several[0])}). --task multilabel takes them apart; for classes, "
            "keep one label per row."
        )
    if len(names) > 2 and len(names) > rows / 2:
        return (
            f"there are {len(names)} different labels in {counted(rows, 'row')} ({_few(names)}), so most of them have one "
            "row only: an id, a name or a text, and no class."
        )
    return None


def found_task(labels: Mapping[str, int], column: str | None) -> tuple[Task, str]:
    """What labels with the rows of each are, and the separator where they are several in one cell.

    A column of ratings holds ordered classes, where it has few different whole numbers.

    >>> found_task({"a|b": 3, "b|c": 2, "a": 1, "c|a": 1}, None), found_task({"good": 3, "bad": 2}, "stars")
    (('multilabel', '|'), ('classify', ''))
    >>> found_task({str(n / 7): 1 for n in range(40)}, None)[0], found_task(dict.fromkeys("12345", 9), "stars")[0]
    ('regression', 'ordinal')
    """
    names = list(labels)
    numbers = [number for number in map(number_in, names) if number is not None]
    if names and len(numbers) == len(names):
        whole = all(number == int(number) for number in numbers)
        if _are_amounts(numbers, sum(labels.values())):
            # Numbers of rows are no amounts.
            counted_up = whole and len(names) == sum(labels.values()) == max(numbers) - min(numbers) + 1
            return "classify" if counted_up else "regression", ""
        ordered = whole and 2 < len(names) <= FEW_NUMBERS and (column or "").casefold() in RATINGS
        return ("ordinal", "") if ordered else ("classify", "")
    several = _lists(names)
    return ("multilabel", several[1]) if several else ("classify", "")


def _are_amounts(numbers: Sequence[float], rows: int) -> bool:
    kinds = len(set(numbers))
    if any(number != int(number) for number in numbers):
        return kinds > MOST_FRACTIONS
    counted_up = min(numbers) in (0, 1) and max(numbers) - min(numbers) == kinds - 1  # as numbers of classes are
    sparse = rows < FEWEST_ROWS * kinds
    return (kinds > MOST_NUMBERS and (sparse or not counted_up)) or (kinds > FEW_NUMBERS and sparse and not counted_up)


def _lists(names: Sequence[str]) -> tuple[list[str], str] | None:
    """Labels that are made of others by one separator, and that; two at the least by a comma, which may be part of a name. Or labels written as lists."""
    bracketed = [name for name in names if re.fullmatch(r"\s*[\[{(].*[\])}]\s*", name)]
    if len(bracketed) > 1 and 2 * len(bracketed) >= len(names):
        return bracketed, ""
    for separator in SEPARATORS:
        parts = {name: [part.strip() for part in name.split(separator) if part.strip()] for name in names}
        uses = Counter(part for of_one in parts.values() for part in set(of_one))
        joined = [name for name, of_one in parts.items() if len(of_one) > 1]
        made_of_others = [name for name in joined if all(uses[part] > 1 for part in parts[name])]
        if len(made_of_others) > (separator == ",") and 2 * len(made_of_others) >= len(joined):
            return made_of_others, separator
    return None


def _few(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
