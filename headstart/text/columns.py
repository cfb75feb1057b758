"""Every column of a table beside its texts, a part at a time: for what is added to a table, which keeps the rest.

Separated values are kept as text, as they are written; Parquet, Arrow and JSON keep their types. A key of JSON whose values
are not all numbers, or all true or false, becomes text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headstart.errors import DataError
from headstart.strict_json import to_json
from headstart.text.arrow import Types, arrow_columns, plain_types
from headstart.text.files import PLAIN, Reading, is_blank
from headstart.text.read import TEXT_COLUMNS, read_lines
from headstart.text.tables import SEPARATED, as_text, choose_column, header_of, is_table, json_records, read_columns

TEXT = "text"  # the column of a file without columns


@dataclass(frozen=True)
class Part:
    """Some rows of a table."""

    texts: list[str]
    rows: list[list[Any]]  # the values of all columns


@dataclass(frozen=True)
class Table:
    """A table, or a text file of one text per line."""

    path: Path
    text_column: str
    types: Types
    count: int
    blank: int  # rows without a text
    reading: Reading

    @classmethod
    def open(cls, path: str | Path, text_column: str | None = None, reading: Reading = PLAIN) -> Table:
        """A table whose rows are all read once, so that a fault in the last is found before anything is made of the first."""
        path = Path(path)
        if not is_table(path, reading):
            found = cls(path, TEXT, {TEXT: None}, 0, 0, reading)
        else:
            header = header_of(path, reading)
            column = choose_column(path, header, (text_column, TEXT_COLUMNS, "--text-column"), reading)
            found = cls(path, column, _types(path, header.names, reading), 0, 0, reading)
        count = blank = 0
        for text, _ in found._rows():
            count, blank = count + 1, blank + is_blank(text)
        if blank == count:
            raise DataError(f"{path}: no text in it.", "DATA_EMPTY")
        return cls(path, found.text_column, found.types, count, blank, reading)

    def parts(self, size: int) -> Iterator[Part]:
        """The rows in order, `size` at a time."""
        rows = self._rows()
        while some := list(islice(rows, size)):
            yield Part([text for text, _ in some], [values for _, values in some])

    def _rows(self) -> Iterator[tuple[str, list[Any]]]:
        """The text and all values of each row."""
        names = list(self.types)
        place = names.index(self.text_column)
        match self.path.suffix.lower():
            case _ if not is_table(self.path, self.reading):
                return ((text, [text]) for text in read_lines(self.path, reading=self.reading))
            case suffix if suffix in SEPARATED:
                wanted = [(name, (), "--text-column") for name in names]
                return ((row[place], row) for row in read_columns(self.path, wanted, self.reading))
            case ".json" | ".jsonl" | ".ndjson":
                return self._json_rows(names)
            case _:
                return self._arrow_rows(names, place)

    def _json_rows(self, names: list[str]) -> Iterator[tuple[str, list[Any]]]:
        for where, record in json_records(self.path, self.reading):
            if self.text_column not in record:
                raise DataError(
                    f"{where}: no '{self.text_column}' in this object ({', '.join(record)}).", "DATA_COLUMNS"
                )
            yield (
                as_text(where, self.text_column, record[self.text_column], self.reading),
                [_json_value(where, name, record.get(name), self) for name in names],
            )

    def _arrow_rows(self, names: list[str], place: int) -> Iterator[tuple[str, list[Any]]]:
        number = 0
        for columns in arrow_columns(self.path, names, self.reading):
            for values in zip(*columns, strict=True):
                number += 1
                where = f"{self.path}, row {number}"
                yield as_text(where, self.text_column, values[place], self.reading), list(values)


def _types(path: Path, names: list[str], reading: Reading) -> Types:
    match path.suffix.lower():
        case suffix if suffix in SEPARATED:
            return dict.fromkeys(names)
        case ".json" | ".jsonl" | ".ndjson":  # an object may have what the first has not
            return _json_types(path, reading)
    types = plain_types(path, reading)
    if nested := [name for name in names if name not in types]:
        reading.note(f"{path} nested", f"{path}: columns of lists or objects are left out: {', '.join(nested)}.")
    return types


def _json_types(path: Path, reading: Reading) -> Types:
    import pyarrow as pa

    kinds: dict[str, set[type]] = {}
    for _, record in json_records(path, reading):
        for name, value in record.items():
            found = kinds.setdefault(name, set())
            if value is not None:
                found.add(str if isinstance(value, int) and abs(value) >= 2**63 else type(value))
    numbers = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64(), frozenset({float}): pa.float64()}
    numbers[frozenset({int, float})] = pa.float64()
    return {name: numbers.get(frozenset(found)) for name, found in kinds.items()}


def _json_value(where: str, name: str, value: Any, table: Table) -> Any:
    if value is None or table.types[name] is not None:
        return value
    return to_json(value) if isinstance(value, (list, dict)) else as_text(where, name, value, table.reading)
