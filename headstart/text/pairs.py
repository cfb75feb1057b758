"""Pairs of texts, a source and its translation: read from a table, from two files, and split.

    pairs.tsv, .csv, .jsonl, .parquet   columns source and target, or the first two of a .tsv that has no header
    pairs.txt                           a tab between the two, or one word and its translation a line
    a.en a.fr                           two files, line by line

All translations of one source stand on the same side of a split, so nothing that is asked was learned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from headstart.data import PairsConfig
from headstart.errors import DataError
from headstart.quantities import counted
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.files import PLAIN, Reading, is_blank, lines, read_text
from headstart.text.read import squeezed
from headstart.text.split import hash_split
from headstart.text.tables import first_few, is_table, read_columns

SOURCE_COLUMNS = ("source", "src", "input", "text", "en", "eng", "english", "word")
TARGET_COLUMNS = ("target", "tgt", "output", "translation", "label")
SWAPPED = 0.1  # how much better the wrong sides must fit before a file is taken for swapped


@dataclass(frozen=True)
class Pair:
    source: str
    target: str


class PairFacts(TypedDict):
    """What data.json holds of pairs; the inner keys are the names of the parts."""

    rows: dict[str, int]
    sources: dict[str, int]
    blank_pairs: int
    held_out: int
    overlapping: dict[str, int]
    reading: dict[str, int]
    split_sha256: str


@dataclass(frozen=True)
class Pairs:
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    blank: int  # pairs with an empty side, left out
    held_out: int  # pairs that the settings keep away from training
    not_there: tuple[str, ...] = ()  # sources that were to be kept away and that no pair has
    reading: Reading = PLAIN

    def notes(self) -> Iterator[str]:
        """What to report of the pairs that were read."""
        yield from (f"Note: {note}" for note in self.reading.notes())
        if self.blank:
            yield f"Note: left out {counted(self.blank, 'pair')} with an empty side."
        yield from (f"Note: no pair has the source '{text}', which was to be held out." for text in self.not_there)

    def parts(self) -> dict[str, list[Pair]]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @cached_property
    def overlapping(self) -> dict[str, int]:
        """The number of pairs in each other split whose source is also in the training rows."""
        known, others = {normal(p.source) for p in self.train}, {"valid": self.valid, "test": self.test}
        return {name: sum(normal(p.source) in known for p in rows) for name, rows in others.items()}

    def facts(self) -> PairFacts:
        """Sizes and what is the matter with the rows, for data.json."""
        parts = self.parts()
        return {
            "rows": {name: len(rows) for name, rows in parts.items()},
            "sources": {name: len({normal(p.source) for p in rows}) for name, rows in parts.items()},
            "blank_pairs": self.blank,
            "held_out": self.held_out,
            "overlapping": self.overlapping,
            "reading": self.reading.facts(),
            "split_sha256": digest(*(f"{n}\t{p.source}\t{p.target}" for n, rows in parts.items() for p in rows)),
        }


def read_pairs(
    paths: Sequence[str | Path], source_column: str | None = None, target_column: str | None = None,
    reading: Reading = PLAIN,
) -> tuple[list[Pair], int]:  # fmt: skip
    """The pairs of one table or of two parallel files, and how many were left out because a side is blank."""
    files = [Path(path) for path in paths]
    named = source_column is not None or target_column is not None
    if named and (len(files) == 2 or not is_table(files[0])):
        raise DataError(
            f"{', '.join(map(str, paths))}: only a table has columns to name with --source-column and --target-column.",
            "DATA_COLUMNS",
        )
    if len(files) == 2:
        found = _parallel(files[0], files[1], reading)
    elif is_table(files[0]) and (
        files[0].suffix.lower() not in (".tsv", ".tab") or named or _has_header(files[0], reading)
    ):
        columns = [
            (source_column, SOURCE_COLUMNS, "--source-column"),
            (target_column, TARGET_COLUMNS, "--target-column"),
        ]
        found = [(source, target) for source, target in read_columns(files[0], columns, reading)]
    else:
        found = _lines_of_two(files[0], reading)
    pairs = [Pair(squeezed(source), squeezed(target)) for source, target in found]
    kept = [pair for pair in pairs if pair.source and pair.target]
    if not kept:
        raise DataError(f"{', '.join(map(str, paths))}: no pair with a text on both sides.", "DATA_EMPTY")
    return kept, len(pairs) - len(kept)


def split_pairs(cfg: PairsConfig) -> Pairs:
    """All the pairs of `cfg`, split where a part is not given."""
    reading, blank = Reading(cfg), 0

    def read(paths: Sequence[str]) -> list[Pair]:
        nonlocal blank
        pairs, dropped = read_pairs(paths, cfg.source_column, cfg.target_column, reading)
        blank += dropped
        return pairs

    everything = read(cfg.pairs)
    kept_out = {normal(text) for text in cfg.hold_out}
    train = [pair for pair in everything if normal(pair.source) not in kept_out]
    held_out = len(everything) - len(train)
    valid, test = (read(part) if part else [] for part in (cfg.valid, cfg.test))
    if not cfg.test and cfg.test_fraction:
        train, test = _by_source(train, cfg.test_fraction, cfg.split_seed)
    if not cfg.valid:
        train, valid = _by_source(train, cfg.valid_fraction, cfg.split_seed + 1)
    for given, rows in ((cfg.valid, valid), (cfg.test, test)):
        if given:
            _refuse_swapped(given, rows, everything)
    if not train or not valid:
        raise DataError(
            f"{', '.join(cfg.pairs)}: {len(everything)} pairs are too few for a training and a held-out split.",
            "DATA_SMALL",
        )
    there = {normal(pair.source) for pair in everything}
    not_there = tuple(text for text in cfg.hold_out if normal(text) not in there)
    return Pairs(train, valid, test, blank, held_out, not_there, reading)


def references(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    """Every source once, with all its translations, in the order of the rows."""
    found: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        if pair.target not in found[pair.source]:
            found[pair.source].append(pair.target)
    return dict(found)


def _by_source(pairs: list[Pair], fraction: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    return hash_split(pairs, [pair.source for pair in pairs], [""] * len(pairs), fraction, seed)


def _refuse_swapped(given: Sequence[str], rows: Sequence[Pair], train: Sequence[Pair]) -> None:
    """Sources that look like the targets of the training pairs, and targets that look like their sources."""
    asked, learned = ([_triples(p.source for p in part), _triples(p.target for p in part)] for part in (rows, train))
    straight, crossed = (
        [len(a & b) / max(1, len(a)) for a, b in zip(asked, sides, strict=True)] for sides in (learned, learned[::-1])
    )
    if sum(crossed) > sum(straight) + 2 * SWAPPED:
        raise DataError(
            f"{', '.join(given)}: source and target seem swapped: {crossed[0]:.0%} of what its sources are spelled with "
            f"stands in the targets of the training pairs, {straight[0]:.0%} in their sources.",
            "DATA_SWAPPED",
        )


def _triples(texts: Iterable[str]) -> set[str]:
    """Every three letters that follow each other, the edges of the text among them."""
    return {padded[i : i + 3] for text in texts for padded in [f" {text} "] for i in range(len(padded) - 2)}


def _parallel(source: Path, target: Path, reading: Reading) -> list[tuple[str, str]]:
    if is_table(source) and is_table(target):
        raise DataError(
            f"{source} and {target} are two tables. Give one table, or two text files that go line by line.",
            "DATA_FORMAT",
        )
    sides = [[line.rstrip("\n") for line in lines(read_text(path, reading))] for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{source} has {len(sides[0])} lines and {target} has {len(sides[1])}. Line n of one must translate line n "
            "of the other.",
            "DATA_PARALLEL",
        )
    return list(zip(*sides, strict=True))


def _has_header(path: Path, reading: Reading) -> bool:
    """Whether a .tsv says what its columns are; many files of pairs do not."""
    first = next(lines(read_text(path, reading))).rstrip("\n").split("\t")
    names = [name.strip().lower() for name in first]
    return any(name in SOURCE_COLUMNS for name in names) and any(name in TARGET_COLUMNS for name in names)


def _lines_of_two(path: Path, reading: Reading) -> list[tuple[str, str]]:
    """A tab between source and target (what follows a second tab is not read), or two words a line."""
    rows = [(n, line.rstrip("\n")) for n, line in enumerate(lines(read_text(path, reading)), start=1)]
    rows = [(n, line) for n, line in rows if not is_blank(line)]
    tabs = any("\t" in line for _, line in rows)
    found = [(n, line.split("\t")[:2] if tabs else line.split()) for n, line in rows]
    odd = [n for n, sides in found if len(sides) != 2]
    if odd:
        wanted = "a tab between source and target" if tabs else "a tab between source and target, or just two words"
        raise DataError(f"{path}, line {first_few(odd)}: not a pair. A line needs {wanted}.", "DATA_COLUMNS")
    return [(sides[0], sides[1]) for _, sides in found]
