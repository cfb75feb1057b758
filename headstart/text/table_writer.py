"""Rows as files: .csv, .tsv, .jsonl or .parquet, chunk by chunk, with columns added behind those of the input."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from headstart.errors import DataError, UserError
from headstart.strict_json import to_json
from headstart.text.table_stream import ABSENT, Chunk, Scan
from headstart.text.visible import is_whole

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
LIKE = {".ndjson": ".jsonl", ".json": ".jsonl", ".arrow": ".parquet", ".tab": ".tsv"}  # written as, where not asked for

Added = Mapping[str, type]  # the columns that are added, and what they hold: str, float, or a list of str


def format_of(out: Path, source: Path) -> str:
    """The format that the name of `out` asks for; that of `source` where the name has no ending."""
    suffix = out.suffix.lower()
    if not suffix:
        own = source.suffix.lower()
        return own if own in FORMATS else LIKE.get(own, ".csv")
    if suffix == ".ndjson":
        return ".jsonl"
    if suffix not in FORMATS:
        raise UserError(f"--out {out}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    return suffix


def must_not_clash(source: Path, scan: Scan, added: Added, form: str) -> None:
    """Refuse columns of the same name."""
    if clash := [name for name in added if name in scan.names]:
        raise DataError(
            f"{source} already has a column '{clash[0]}'. Name the added columns otherwise with --prefix: --prefix predicted_ "
            f"makes it 'predicted_{clash[0]}'.",
            "DATA_COLUMNS",
        )
    twice = sorted({name for name in scan.names if scan.names.count(name) > 1})
    if twice and form not in (".csv", ".tsv"):
        raise DataError(f"{source}: two columns are called '{twice[0]}', which {form} cannot hold. Rename one.", "DATA_COLUMNS")  # fmt: skip


def writer_of(form: str, draft: Path, source: Path, scan: Scan, added: Added) -> TableWriter:
    if form == ".parquet":
        return ParquetWriter(draft, scan, added)
    if form == ".jsonl":
        return JsonWriter(draft, scan, added)
    return SeparatedWriter(draft, scan, added, form, scan.separator if source.suffix.lower() == form else None)


class TableWriter(ABC):
    """A file that takes chunks, and for each of their rows the values of the added columns."""

    @abstractmethod
    def write(self, chunk: Chunk, more: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class SeparatedWriter(TableWriter):
    def __init__(self, draft: Path, scan: Scan, added: Added, form: str, separator: str | None) -> None:
        self.file: TextIO = open(draft, "w", encoding="utf-8", newline="")  # noqa: SIM115 (closed by close)
        self.plain = form == ".tsv"  # as it is read: without quotes
        how: dict[str, Any] = {"delimiter": separator or ",", "lineterminator": "\n"}
        self.writer: Any = csv.writer(self.file, **how)
        self.quoting: Any = csv.writer(self.file, quoting=csv.QUOTE_ALL, **how)
        self._put([*scan.names, *added])

    def write(self, chunk: Chunk, more: Sequence[Sequence[Any]]) -> None:
        for row, rest in zip(values_of(chunk), more, strict=True):
            self._put([*map(cell, row), *map(cell, rest)])

    def _put(self, cells: Sequence[str]) -> None:
        if self.plain:
            self.file.write("\t".join(cells) + "\n")
        else:  # a carriage return ends a row for most readers, and is not quoted by itself
            (self.quoting if any("\r" in cell for cell in cells) else self.writer).writerow(cells)

    def close(self) -> None:
        self.file.close()


class JsonWriter(TableWriter):
    def __init__(self, draft: Path, scan: Scan, added: Added) -> None:
        self.file: TextIO = open(draft, "w", encoding="utf-8", newline="")  # noqa: SIM115 (closed by close)
        self.names, self.added = scan.names, list(added)

    def write(self, chunk: Chunk, more: Sequence[Sequence[Any]]) -> None:
        for row, rest in zip(values_of(chunk), more, strict=True):
            kept = {name: value for name, value in zip(self.names, row, strict=False) if value is not ABSENT}
            self.file.write(as_json({**kept, **dict(zip(self.added, rest, strict=True))}) + "\n")

    def close(self) -> None:
        self.file.close()


class ParquetWriter(TableWriter):
    """Columns of a Parquet or Arrow file keep their types; those of JSON have the type of all of their values, or are JSON."""

    def __init__(self, draft: Path, scan: Scan, added: Added) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter as Writer

        own = scan.schema or pyarrow.schema([(name, _arrow_type(scan.kinds.get(name))) for name in scan.names])
        self.own, self.names = own, scan.names
        types = {str: pyarrow.string(), float: pyarrow.float64(), list: pyarrow.list_(pyarrow.string())}
        self.schema = own
        for name, kind in added.items():
            self.schema = self.schema.append(pyarrow.field(name, types[kind]))
        self.writer: Any = Writer(draft, self.schema)

    def write(self, chunk: Chunk, more: Sequence[Sequence[Any]]) -> None:
        import pyarrow

        columns = list(chunk.batch.columns) if chunk.batch is not None else self._columns(chunk)
        new = [*zip(*more, strict=True)]
        columns += [
            pyarrow.array(values, field.type)
            for values, field in zip(new, list(self.schema)[len(self.own) :], strict=True)
        ]
        self.writer.write_batch(pyarrow.record_batch(columns, schema=self.schema))

    def _columns(self, chunk: Chunk) -> list[Any]:
        import pyarrow

        found = []
        for i, field in enumerate(self.own):
            values = [row[i] if i < len(row) else ABSENT for row in chunk.rows]
            text = field.type == pyarrow.string()
            found.append(
                pyarrow.array(
                    [None if v is ABSENT or v is None else cell(v) if text else v for v in values], field.type
                )
            )
        return found

    def close(self) -> None:
        self.writer.close()


def values_of(chunk: Chunk) -> Iterator[Sequence[Any]]:
    """The values of each row."""
    if chunk.batch is None:
        return iter(chunk.rows)
    return zip(*(column.to_pylist() for column in chunk.batch.columns), strict=True)


def must_fit(chunk: Chunk, form: str, path: Path, before: int) -> None:
    """Refuse values that the format cannot hold; `before` rows stand before the chunk."""
    if form == ".jsonl":
        return
    for number, row in enumerate(values_of(chunk) if form == ".tsv" or chunk.batch is None else (), start=before + 1):
        for value in row:
            text = cell(value)
            if form == ".tsv" and any(mark in text for mark in "\t\n\r"):
                raise DataError(
                    f"{path}, row {number}: a value holds a tab or a line break, which .tsv cannot hold. Write a .csv, .jsonl or "
                    ".parquet file.",
                    "DATA_COLUMNS",
                )
            if not is_whole(text):
                raise DataError(f"{path}, row {number}: half a character (a lone surrogate).", "DATA_ENCODING")


def cell(value: Any) -> str:
    """A value as separated values have it.

    >>> cell(0.1), cell(None), cell(True), cell([1, "é"])
    ('0.1', '', 'true', '[1, "é"]')
    """
    if isinstance(value, str):
        return value
    if value is None or value is ABSENT:
        return ""
    if isinstance(value, bool | list | dict | tuple):
        return as_json(value)
    return str(value)


def as_json(value: Any) -> str:
    try:
        text = to_json(value)
    except TypeError:  # a date, bytes or the like, out of Parquet
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if is_whole(text) else json.dumps(value)


def _arrow_type(kinds: set[type] | None) -> Any:
    import pyarrow

    found = (kinds or {str}) - {type(None)}
    if found == {bool}:
        return pyarrow.bool_()
    if found == {int}:
        return pyarrow.int64()
    return pyarrow.float64() if found and found <= {int, float} else pyarrow.string()
