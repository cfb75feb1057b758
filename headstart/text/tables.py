"""Rows and columns: CSV, TSV, JSON lines, Parquet and Arrow, all read as named columns of text.

A fault is told with the line (or row) where it stands. Numbers and truth values become text as they are written.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import DataError, did_you_mean
from headstart.text.files import PLAIN, Reading, check_file, lines, read_text
from headstart.text.visible import is_whole

LONGEST_FIELD = 10_000_000  # characters; the csv module stops at 131,072 unless told
LONGEST_NUMBER = 4000  # digits; Python refuses longer ones with an error of its own
_WHOLE_FIELD = re.compile(r'(?:"(?:[^"]++|"")*+"|[^",\n]*+),')
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow")

Wanted = tuple[str | None, Sequence[str], str]  # a column: its name if given, its usual names, the flag that names it
Row = tuple[int, list[str]]  # where it begins, and its fields


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def read_columns(path: Path, wanted: Sequence[Wanted], reading: Reading = PLAIN) -> Iterator[list[str]]:
    """The wanted columns of every row; a .txt that is known to be a table has commas."""
    match path.suffix.lower():
        case ".csv" | ".tsv" | ".txt":
            return _separated(path, wanted, reading)
        case ".jsonl" | ".ndjson":
            return _json_lines(path, wanted, reading)
        case _:
            return _arrow(path, wanted, reading)


def column_names(path: Path, reading: Reading = PLAIN) -> list[str]:
    """The names in the header, or in the first row where every row has them."""
    match path.suffix.lower():
        case ".csv" | ".tsv" | ".txt":
            return [name.strip() for name in next(_csv_rows(path, read_text(path, reading)), (1, []))[1]]
        case ".jsonl" | ".ndjson":
            first = next((n, line) for n, line in enumerate(lines(read_text(path, reading)), 1) if line.strip())
            return list(_json_object(f"{path}, line {first[0]}", first[1]))
        case _:
            return list(_arrow_table(path).column_names)


def _separated(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    rows = _csv_rows(path, read_text(path, reading))
    _, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    places = [header.index(_column(path, header, *column)) for column in wanted]
    for line, row in rows:
        if len(row) != len(header):
            odd = [(line, row), *((n, r) for n, r in rows if len(r) != len(header))]
            found = f"{len(row)} columns where the header has {len(header)} ({', '.join(header)})"
            others = f", and so on lines {first_few([n for n, _ in odd[1:]])}" if len(odd) > 1 else ""
            raise DataError(
                f"{path}, line {line}: {found}{others}. Is the separator right, and is every quote closed?",
                "DATA_COLUMNS",
            )
        yield [row[place] for place in places]


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    if path.suffix.lower() == ".tsv":  # tabs need no quoting, and quotes in such files are part of the text
        reader = csv.reader(lines(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines(text), strict=True)
    first = 1  # the line on which the row in hand begins
    try:
        for row in reader:
            if row:  # a blank line has none
                yield first, row
            first = reader.line_num + 1
    except csv.Error as error:
        if "field larger" in str(error):
            cause = f"a field of more than {LONGEST_FIELD:,} characters. Is every quote closed?"
        elif "unexpected end of data" in str(error):
            cause = "a quote is opened here and never closed. A quote inside a quoted field is written twice."
        else:
            cause = f"{error}. Is a quote not closed? A quote inside a quoted field is written twice."
        line = first if reader.dialect.quoting == csv.QUOTE_NONE else _line_of_fault(text, first)
        raise DataError(f"{path}, line {line}: {cause}", "DATA_QUOTE") from None


def _line_of_fault(text: str, first: int) -> int:
    """The line of the first field that is not whole, in the row that begins on line `first`."""
    row = text.split("\n", first - 1)[-1]
    place = 0
    while field := _WHOLE_FIELD.match(row, place):
        place = field.end()
    return first + row.count("\n", 0, place)


def _json_lines(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    names: list[str] | None = None
    for number, line in enumerate(lines(read_text(path, reading)), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _json_object(where, line)
        if names is None:
            names = [_column(path, list(record), *column) for column in wanted]
        missing = [name for name in names if name not in record]
        if missing:
            raise DataError(f"{where}: no '{missing[0]}' in this object ({', '.join(record)}).", "DATA_COLUMNS")
        yield [_as_text(where, name, record[name], reading) for name in names]


def _json_object(where: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(
            line, object_pairs_hook=_unique, parse_constant=_no_such_number, parse_int=_short, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise DataError(f"{where}, column {error.colno}: not valid JSON ({error.msg}).", "DATA_JSON") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}.", "DATA_JSON") from None
    except RecursionError:
        raise DataError(f"{where}: nested too deeply.", "DATA_JSON") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: a {type(record).__name__} where an object such as {{...}} is needed.", "DATA_JSON")
    return record


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise ValueError(f"the key '{key}' stands twice")
        record[key] = value
    return record


def _no_such_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _short(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _arrow_table(path: Path) -> Any:
    check_file(path)
    import pyarrow
    from pyarrow import ipc, parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            with pyarrow.memory_map(str(path)) as source:
                table = ipc.open_stream(source).read_all()  # as the datasets library saves it
        table.validate(full=True)  # a damaged one can otherwise take the whole process down
        list(table.column_names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is no UTF-8
        raise DataError(f"{path}: not a readable {path.suffix[1:]} file ({error}).", "DATA_FORMAT") from None
    if not table.num_rows:
        raise DataError(f"{path}: the file has no rows.", "DATA_EMPTY")
    return table


def _arrow(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    table = _arrow_table(path)
    header = list(table.column_names)
    names = [_column(path, header, *column) for column in wanted]
    first = 0
    for batch in table.select(names).to_batches():
        columns = [batch.column(i).to_pylist() for i in range(len(names))]
        for i, values in enumerate(zip(*columns, strict=True)):
            where = f"{path}, row {first + i + 1}"
            yield [_as_text(where, name, value, reading) for name, value in zip(names, values, strict=True)]
        first += batch.num_rows


def first_few(numbers: Sequence[int]) -> str:
    """The first five of `numbers`, and how many there are besides.

    >>> first_few([2, 3, 5, 7, 11, 13, 17])
    '2, 3, 5, 7, 11 and 2 more'
    """
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def _as_text(where: str, name: str, value: Any, reading: Reading) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if not isinstance(value, (str, int, float)):
        raise DataError(f"{where}: '{name}' holds a {type(value).__name__}, not text.", "DATA_COLUMNS")
    text = reading.stripped(str(value), f"{where}, {name}")
    if not is_whole(text):
        raise DataError(f"{where}: '{name}' holds half a character (a lone surrogate).", "DATA_ENCODING")
    if "\x00" in text:
        raise DataError(f"{where}: '{name}' holds a NUL character. --strip-nul leaves it out.", "DATA_BINARY")
    return text


def _column(path: Path, header: list[str], name: str | None, usual: Sequence[str], flag: str) -> str:
    found = name if name is not None else next((u for u in usual if u in header), None)
    if found is not None and header.count(found) == 1:
        return found
    if found is not None and header.count(found) > 1:
        raise DataError(f"{path}: two columns are called '{found}'. Rename one.", "DATA_COLUMNS")
    if len(header) == 1 and (mark := next((m for m in ";\t|," if m in header[0]), None)):
        shown = {"\t": "a tab", ",": "a comma"}.get(mark, f"'{mark}'")
        raise DataError(
            f"{path}: the columns seem to be separated by {shown}. Save it with commas as .csv, or with tabs as .tsv.",
            "DATA_COLUMNS",
        )
    missing = f"no column '{name}'" if name is not None else f"no column called {', '.join(usual)}"
    hint = did_you_mean(name, header) if name else ""
    raise DataError(
        f"{path}: {missing}; the header has {', '.join(header)}.{hint} Name the column with {flag}, or add a header line if "
        "there is none.",
        "DATA_COLUMNS",
    )
