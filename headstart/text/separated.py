"""Tables of separated values: which separator they have, their quotes, and the headers that Orange writes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headstart.errors import DataError
from headstart.text.files import Reading, lines, read_text, stream_lines

LONGEST_FIELD = 10_000_000  # characters; the csv module stops at 131,072 unless told
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLE_ROWS, SAMPLE = 200, 200_000  # rows and characters in which a separator shows
CONSISTENT = 0.9  # of the rows that have as many columns as the header, if it is to be another than the usual one
ORANGE_TYPES = {"continuous", "c", "numeric", "n", "discrete", "d", "string", "s", "time", "t"}
ORANGE_FLAGS = {"", "class", "c", "meta", "m", "ignore", "i", "weight", "w"}

_DECLARED = re.compile(r"sep=([,;\t|])\n", re.IGNORECASE)  # as Excel writes it
Row = tuple[int, list[str]]  # the line where it begins, and its fields


@dataclass(frozen=True)
class Header:
    names: list[str]
    marked: dict[str, str] = field(default_factory=dict)  # columns that the file itself names, by the flag for them


def separated(path: Path, text: str, reading: Reading) -> tuple[Header, Iterator[Row]]:
    """The header of a table of separated values, and its rows."""
    rows = _rows(path, text, reading)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    return _orange(names, rows) if path.suffix.lower() == ".tab" else (Header(names), rows)


def stream_separated(path: Path, reading: Reading) -> tuple[Header, Iterator[Row], str]:
    """The header of such a table, its rows, read as they are asked for, and the separator."""
    separator = _declared(path, begin := _beginning(path, reading), reading)[0]
    rows = _streamed(path, separator, 2 if _DECLARED.match(begin) else 1, reading)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    header, rows = _orange(names, rows) if path.suffix.lower() == ".tab" else (Header(names), rows)
    return header, rows, separator


def _beginning(path: Path, reading: Reading) -> str:
    """So much of a file that its separator shows."""
    begin = ""
    for line in stream_lines(path, reading):
        begin += line
        if len(begin) > SAMPLE:
            break
    return begin


def _streamed(path: Path, separator: str, first: int, reading: Reading) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    reader = _reader(islice(stream_lines(path, reading), first - 1, None), separator, _usual(path))
    before = first - 1
    try:
        for row in reader:
            if row:
                yield first, row
            first = before + reader.line_num + 1
    except csv.Error as error:
        for _ in _rows(path, read_text(path, reading), reading):  # which finds the line of the fault
            pass
        raise DataError(f"{path}, line {first}: {error}.", "DATA_QUOTE") from None


def _usual(path: Path) -> str:
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def _declared(path: Path, text: str, reading: Reading) -> tuple[str, int]:
    """The separator of a table, and the length of the line that declares it."""
    declared = _DECLARED.match(text)
    separator = declared[1] if declared else _separator(text, _usual(path))
    if separator != _usual(path):
        reading.note(str(path), f"{path}: the columns are separated by {SEPARATORS[separator]}.")
    return separator, declared.end() if declared else 0


def _rows(path: Path, text: str, reading: Reading) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    separator, skipped = _declared(path, text, reading)
    first, text = 2 if skipped else 1, text[skipped:]  # the line on which the row in hand begins
    reader, before = _reader(lines(text), separator, _usual(path)), first - 1
    try:
        for row in reader:
            if row:  # a blank line has none
                yield first, row
            first = before + reader.line_num + 1
    except csv.Error as error:
        if "field larger" in str(error):
            cause = f"a field of more than {LONGEST_FIELD:,} characters. Is every quote closed?"
        elif "unexpected end of data" in str(error):
            cause = "a quote is opened here and never closed. A quote inside a quoted field is written twice."
        else:
            cause = f"{error}. Is a quote not closed? A quote inside a quoted field is written twice."
        unquoted = reader.dialect.quoting == csv.QUOTE_NONE
        line = first if unquoted else before + _line_of_fault(text, first - before, separator)
        raise DataError(f"{path}, line {line}: {cause}", "DATA_QUOTE") from None


def _reader(rows: Iterator[str], separator: str, usual: str, strict: bool = True) -> Any:
    if usual == separator == "\t":  # tabs need no quoting, and quotes in such files are part of the text
        return csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(rows, delimiter=separator, strict=strict)


def _separator(text: str, usual: str) -> str:
    """The separator that gives nearly all of the first rows as many columns as the header; the usual one in doubt."""
    sample = text[:SAMPLE]
    if len(sample) < len(text):
        sample = sample[: sample.rfind("\n") + 1]
    fits = {mark: _consistency(sample, mark, usual) for mark in SEPARATORS}
    best = max(SEPARATORS, key=lambda mark: (fits[mark], mark == usual))
    return best if fits[best] >= CONSISTENT and fits[best] > fits[usual] else usual


def _consistency(sample: str, separator: str, usual: str) -> float:
    """The share of rows that have as many columns as the header has; 0 where it has only one."""
    try:
        rows = (len(row) for row in _reader(lines(sample), separator, usual, strict=False) if row)
        header, *rest = islice(rows, SAMPLE_ROWS)
    except (csv.Error, ValueError):  # a field that is too long; no rows
        return 0.0
    return sum(count == header for count in rest) / len(rest) if header > 1 and rest else 0.0


def _line_of_fault(text: str, first: int, separator: str) -> int:
    """The line of the first field that is not whole, in the row that begins on line `first`."""
    mark = re.escape(separator)
    whole_field = re.compile(rf'(?:"(?:[^"]++|"")*+"|[^"{mark}\n]*+){mark}')
    row = text.split("\n", first - 1)[-1]
    place = 0
    while field := whole_field.match(row, place):
        place = field.end()
    return first + row.count("\n", 0, place)


def _orange(names: list[str], rows: Iterator[Row]) -> tuple[Header, Iterator[Row]]:
    """Orange's headers: lines of types and flags below the names, or both before each name, as in mS#text."""
    begin = list(islice(rows, 2))
    types, flags = ([cell.strip().lower() for cell in row] for _, row in (*begin, (0, [""]), (0, [""]))[:2])
    if (
        len(begin) == 2
        and len(types) == len(flags) == len(names)
        and any(kind in ORANGE_TYPES for kind in types)
        and all(word in ORANGE_FLAGS or "=" in word for flag in flags for word in flag.split(" "))
    ):
        return Header(names, _marked(names, [kind[:1] for kind in types], [flag[:1] for flag in flags])), rows
    prefixed = [re.fullmatch(r"([mciw]?)([CDST]?)#(.*)", name) for name in names]
    if any(prefixed):
        flags = [match[1] if match else "" for match in prefixed]
        types = [match[2].lower() if match else "" for match in prefixed]
        names = [match[3].strip() if match else name for name, match in zip(names, prefixed, strict=True)]
        return Header(names, _marked(names, types, flags)), chain(begin, rows)
    return Header(names), chain(begin, rows)


def _marked(names: list[str], types: list[str], flags: list[str]) -> dict[str, str]:
    classes = [name for name, flag in zip(names, flags, strict=True) if flag == "c"]
    strings = [name for name, kind in zip(names, types, strict=True) if kind == "s"]
    found = {"--label-column": classes, "--text-column": strings}
    return {flag: columns[0] for flag, columns in found.items() if len(columns) == 1}
