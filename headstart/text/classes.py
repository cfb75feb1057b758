"""Labels as classes: one spelling for each, and columns that hold something else, such as numbers, ids or lists."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headstart.quantities import counted

MOST_FRACTIONS = 10  # different labels with decimals that may still be classes: half stars from 0.5 to 5
MOST_NUMBERS = 50  # different whole numbers that may
FEW_NUMBERS = 10  # that always may
FEWEST_ROWS = 5  # of a class on average, if more whole numbers than these are to be classes
SEPARATORS = "|;,"  # of several labels in one cell
SHOWN = 3  # labels in a message


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
    numbers = [number for number in map(_number, names) if number is not None]
    if len(numbers) == len(names):
        if _are_amounts(numbers, rows):
            return (
                f"the labels are {len(names)} different numbers in {counted(rows, 'row')} ({_few(names)}). Predicting a "
                "number (regression) is not supported: put the numbers into a few classes, such as low and high."
            )
    elif (several := _lists(names)) is not None:
        return (
            f"some labels seem to be several in one ({_few(several)}). Rows with more than one label are not supported: "
            "keep one label per row."
        )
    if len(names) > 2 and len(names) > rows / 2:
        return (
            f"there are {len(names)} different labels in {counted(rows, 'row')} ({_few(names)}), so most of them have one "
            "row only: an id, a name or a text, and no class."
        )
    return None


def _are_amounts(numbers: Sequence[float], rows: int) -> bool:
    kinds = len(set(numbers))
    if any(number != int(number) for number in numbers):
        return kinds > MOST_FRACTIONS
    counted_up = min(numbers) in (0, 1) and max(numbers) - min(numbers) == kinds - 1  # as numbers of classes are
    sparse = rows < FEWEST_ROWS * kinds
    return (kinds > MOST_NUMBERS and (sparse or not counted_up)) or (kinds > FEW_NUMBERS and sparse and not counted_up)


def _lists(names: Sequence[str]) -> list[str] | None:
    """Labels that are made of others, two at the least, by one separator; or written as lists."""
    bracketed = [name for name in names if re.fullmatch(r"\s*[\[{(].*[\])}]\s*", name)]
    if len(bracketed) > 1 and 2 * len(bracketed) >= len(names):
        return bracketed
    for separator in SEPARATORS:
        parts = {name: [part.strip() for part in name.split(separator) if part.strip()] for name in names}
        uses = Counter(part for of_one in parts.values() for part in set(of_one))
        joined = [name for name, of_one in parts.items() if len(of_one) > 1]
        made_of_others = [name for name in joined if all(uses[part] > 1 for part in parts[name])]
        if len(made_of_others) > 1 and 2 * len(made_of_others) >= len(joined):
            return made_of_others
    return None


def _number(label: str) -> float | None:
    try:
        number = float(label.strip().replace(",", ".", 1))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _few(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
