"""A table with all of its columns, a chunk of rows at a time, for files larger than the memory.

The file is read twice. `scan` goes through it once, so that a fault in its last row is reported before any work begins;
`chunks` reads it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headstart.errors import DataError
from headstart.text.arrow import arrow_batches, arrow_schema
from headstart.text.files import Reading, stream_lines
from headstart.text.inputs import lacks_text, text_of, wanted_texts
from headstart.text.read import TEXT_COLUMNS
from headstart.text.separated import Header, stream_separated
from headstart.text.tables import (
    SEPARATED,
    as_text,
    choose_column,
    first_few,
    is_table,
    json_object,
    json_records,
    whole_rows,
)

AT_ONCE = 4096  # rows of a chunk: what reads them sorts them by length, and pads the less the more there are
KEPT = 1000  # numbers of blank rows that are kept for a message
ABSENT = object()  # in place of a value that a JSON object does not have

Record = tuple[str, list[Any]]  # where a row stands, and its values


@dataclass(frozen=True)
class Chunk:
    """Some rows: the text of each, all of its values, and the same rows as pyarrow has them, if they come from it."""

    texts: list[str]
    rows: list[list[Any]]
    batch: Any = None


@dataclass(frozen=True)
class Scan:
    """What a first pass through a table found."""

    names: list[str]  # of all columns
    texts: list[str]  # the column of the texts, or the two of pairs
    rows: int
    blank: list[int]  # numbers of rows without a text; the first ones, where they are many
    blanks: int
    kinds: dict[str, set[type]]  # of the values of each column of JSON objects
    separator: str = ","
    schema: Any = None  # of Parquet and Arrow


class TableStream:
    """The rows of `path`: a table, or a text of which each line is a row with the one column `text`."""

    def __init__(self, path: Path, column: str | None, reading: Reading) -> None:
        self.path, self.column, self.reading = path, column, reading
        suffix = path.suffix.lower()
        self.kind = "lines" if not is_table(path, reading) else "separated" if suffix in SEPARATED else "json"
        if suffix in (".parquet", ".arrow"):
            self.kind = "arrow"

    def scan(self, check: Callable[[Chunk, int], None]) -> Scan:
        """Refuse what cannot be read, or what `check` refuses, given a chunk and the number of rows before it."""
        names, texts, separator, schema = self._columns()
        found = Scan(list(names), texts, 0, [], 0, {}, separator, schema)
        rows = blanks = 0
        for chunk in self.chunks(found):
            check(chunk, rows)
            for blank in map(lacks_text, chunk.texts):
                rows += 1
                blanks += blank
                if blank and len(found.blank) < KEPT:
                    found.blank.append(rows)
        if not rows:
            raise DataError(f"{self.path}: no rows below the header.", "DATA_EMPTY")
        return Scan(found.names, texts, rows, found.blank, blanks, found.kinds, separator, schema)

    def chunks(self, scan: Scan) -> Iterator[Chunk]:
        """All rows, `AT_ONCE` of them at a time. Names of keys that come up first in later objects join `scan.names`."""
        if self.kind == "arrow":
            yield from self._batches(scan)
            return
        records = self._records(scan)
        while part := list(islice(records, AT_ONCE)):
            places = [scan.names.index(name) for name in scan.texts]
            texts = [self._text(scan, where, [values[place] for place in places]) for where, values in part]
            yield Chunk(texts, [values for _, values in part])

    def _text(self, scan: Scan, where: str, values: Sequence[Any]) -> str:
        return text_of(
            [as_text(where, name, value, self.reading) for name, value in zip(scan.texts, values, strict=True)]
        )

    def _columns(self) -> tuple[list[str], list[str], str, Any]:
        separator, schema = ",", None
        match self.kind:
            case "lines":
                return ["text"], ["text"], separator, schema
            case "separated":
                header, _, separator = stream_separated(self.path, self.reading)
            case "json":
                header = Header(list(next(self._objects(), ("", {}))[1]))
            case _:
                schema = arrow_schema(self.path, self.reading)
                header = Header(list(schema.names))
        wanted = wanted_texts(header, self.column, TEXT_COLUMNS)
        texts = [choose_column(self.path, header, column, self.reading) for column in wanted]
        return header.names, texts, separator, schema

    def _records(self, scan: Scan) -> Iterator[Record]:
        match self.kind:
            case "lines":
                for number, line in enumerate(stream_lines(self.path, self.reading), start=1):
                    yield f"{self.path}, line {number}", [line.removesuffix("\n")]
            case "separated":
                _, rows, _ = stream_separated(self.path, self.reading)
                for number, row in whole_rows(self.path, scan.names, rows):
                    yield f"{self.path}, line {number}", list(row)
            case _:
                yield from self._values(scan)

    def _values(self, scan: Scan) -> Iterator[Record]:
        for where, record in self._objects():
            if missing := [name for name in scan.texts if name not in record]:
                raise DataError(f"{where}: no '{missing[0]}' in this object ({', '.join(record)}).", "DATA_COLUMNS")
            for name, value in record.items():
                if name not in scan.kinds:
                    scan.kinds[name] = set()
                    if name not in scan.names:
                        scan.names.append(name)
                scan.kinds[name].add(type(value) if not _is_long(value) else list)
            yield where, [record.get(name, ABSENT) for name in scan.names]

    def _objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.path.suffix.lower() == ".json":  # may be one list, which is read as a whole
            yield from json_records(self.path, self.reading)
            return
        for number, line in enumerate(stream_lines(self.path, self.reading), start=1):
            if line.strip():
                where = f"{self.path}, line {number}"
                yield where, json_object(where, line)

    def _batches(self, scan: Scan) -> Iterator[Chunk]:
        row = 0
        places = [scan.names.index(name) for name in scan.texts]
        for batch in arrow_batches(self.path, self.reading, AT_ONCE):
            texts = []
            for values in zip(*(batch.column(place).to_pylist() for place in places), strict=True):
                row += 1
                texts.append(self._text(scan, f"{self.path}, row {row}", values))
            yield Chunk(texts, [], batch)


def must_not_be_blank(scan: Scan, path: Path) -> None:
    if scan.blanks:
        more = f" and {scan.blanks - len(scan.blank)} more" if scan.blanks > len(scan.blank) else ""
        raise DataError(
            f"{path}, row {first_few(scan.blank)}{more}: the text is blank. Fill it in; --skip-blank leaves the label of such "
            "rows empty.",
            "DATA_BLANK",
        )


def _is_long(value: Any) -> bool:
    """Whether a number has more than the 64 bits that a column of numbers has."""
    return type(value) is int and not -(2**63) <= value < 2**63
