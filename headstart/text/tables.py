"""Rows and columns: separated values, JSON, JSON lines, Parquet and Arrow, all read as named columns of text.

A fault is reported with the line (or row) where it stands. Numbers and truth values become text as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import DataError, did_you_mean
from headstart.text.arrow import arrow_columns, arrow_names
from headstart.text.files import PLAIN, Reading, lines, read_text
from headstart.text.separated import SEPARATORS, Header, Row, separated
from headstart.text.visible import is_whole

LONGEST_NUMBER = 4000  # digits; Python refuses longer ones with an error of its own
SEPARATED = (".csv", ".tsv", ".tab", ".txt")
TABLES = (".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
PEEK = 100_000  # bytes of a .json file that show whether it holds rows

Wanted = tuple[str | None, Sequence[str], str]  # a column: its name if given, its usual names, the flag that names it


def is_table(path: Path, reading: Reading = PLAIN) -> bool:
    """Whether a file holds rows, by its name; of a .json file, by how it begins."""
    suffix = path.suffix.lower()
    return suffix in TABLES and (suffix != ".json" or _begins_with_rows(path, reading))


def read_columns(path: Path, wanted: Sequence[Wanted], reading: Reading = PLAIN) -> Iterator[list[str]]:
    """The wanted columns of every row; a .txt that is known to be a table has commas, unless they are others."""
    match path.suffix.lower():
        case suffix if suffix in SEPARATED:
            return _separated(path, wanted, reading)
        case ".json" | ".jsonl" | ".ndjson":
            return _json(path, wanted, reading)
        case _:
            return _arrow(path, wanted, reading)


def header_of(path: Path, reading: Reading = PLAIN) -> Header:
    """The names in the header, or in the first row where every row has them."""
    match path.suffix.lower():
        case suffix if suffix in SEPARATED:
            return separated(path, read_text(path, reading), reading)[0]
        case ".json" | ".jsonl" | ".ndjson":
            return Header(list(next(json_records(path, reading), ("", {}))[1]))
        case _:
            return Header(arrow_names(path, reading))


def column_names(path: Path, reading: Reading = PLAIN) -> list[str]:
    return header_of(path, reading).names


def find_column(header: Header, wanted: Wanted) -> list[str]:
    """The columns that a wanted one may be, the best first; names are the same but for case, spaces and underscores."""
    name, usual, flag = wanted
    if name is not None and name in header.names:
        return [name]
    if name is None and flag in header.marked:
        return [header.marked[flag]]
    keys = [_key(column) for column in header.names]
    sought = [name] if name is not None else usual
    return [column for word in sought for column, key in zip(header.names, keys, strict=True) if key == _key(word)]


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def _separated(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    header, rows = separated(path, read_text(path, reading), reading)
    names = header.names
    places = [names.index(choose_column(path, header, column, reading)) for column in wanted]
    for _, row in whole_rows(path, names, rows):
        yield [row[place] for place in places]


def whole_rows(path: Path, names: Sequence[str], rows: Iterator[Row]) -> Iterator[Row]:
    """The rows of a table of separated values, each of which must have as many columns as the header."""
    for line, row in rows:
        if len(row) != len(names):
            odd = [(line, row), *((n, r) for n, r in rows if len(r) != len(names))]
            found = f"{len(row)} columns where the header has {len(names)} ({', '.join(names)})"
            others = f", and so on lines {first_few([n for n, _ in odd[1:]])}" if len(odd) > 1 else ""
            raise DataError(
                f"{path}, line {line}: {found}{others}. Is the separator right, is a text that holds it in quotes, and is every quote closed?",
                "DATA_COLUMNS",
            )
        yield line, row


def _json(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    names: list[str] | None = None
    for where, record in json_records(path, reading):
        if names is None:
            names = [choose_column(path, Header(list(record)), column, reading) for column in wanted]
        missing = [name for name in names if name not in record]
        if missing:
            raise DataError(f"{where}: no '{missing[0]}' in this object ({', '.join(record)}).", "DATA_COLUMNS")
        yield [
            as_text(where, name, _as_list(record[name]) if flag == "--label-column" else record[name], reading)
            for name, (_, _, flag) in zip(names, wanted, strict=True)
        ]


def _begins_with_rows(path: Path, reading: Reading) -> bool:
    """Whether a .json file is a list of objects, or one object a line; other JSON is text like any other."""
    try:
        file = reading.opened(path)
    except DataError:
        return False
    with file:
        begin = file.read(PEEK).decode("utf-8-sig", "replace")
    return bool(re.match(r"\s*(\[\s*\{|\{.*\}\s*\n\s*\{)", begin))


def json_records(path: Path, reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a file, and where each of them stands: one a line, or all of them in one list."""
    text = read_text(path, reading)
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        yield from _listed(path, text)
        return
    for number, line in enumerate(lines(text), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, json_object(where, line)


def _listed(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    place, line, mark = text.index("["), 1, "["
    while mark != "]":
        begin = _after_space(text, place + 1)
        line += text.count("\n", place, begin)
        where = f"{path}, line {line}"
        if mark == "[" and text[begin : begin + 1] == "]":
            place = begin
            break
        record, end = _decoded(where, text, begin)
        yield where, _object(where, record)
        place = _after_space(text, end)
        line += text.count("\n", begin, place)
        mark = text[place : place + 1]
        if mark not in (",", "]") or not mark:
            raise DataError(f"{path}, line {line}: not valid JSON (a comma or ] must follow an object).", "DATA_JSON")
    if text[place + 1 :].strip():
        raise DataError(f"{path}: not valid JSON (there is more behind the end of the list).", "DATA_JSON")


def _after_space(text: str, place: int) -> int:
    found = _NOT_SPACE.search(text, place)
    return found.start() if found else len(text)


def json_object(where: str, line: str) -> dict[str, Any]:
    record, end = _decoded(where, line, _after_space(line, 0))
    if line[end:].strip():
        raise DataError(f"{where}, column {end + 1}: not valid JSON (Extra data).", "DATA_JSON")
    return _object(where, record)


def _decoded(where: str, text: str, place: int) -> tuple[Any, int]:
    """The JSON value that begins at a place, and where it ends."""
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        line = where.rpartition(" line ")
        inside = text.count("\n", place, error.pos)
        where = f"{line[0]} line {int(line[2]) + inside}"
        raise DataError(f"{where}, column {error.colno}: not valid JSON ({error.msg}).", "DATA_JSON") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}.", "DATA_JSON") from None
    except RecursionError:
        raise DataError(f"{where}: nested too deeply.", "DATA_JSON") from None


def _object(where: str, record: Any) -> dict[str, Any]:
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


_NOT_SPACE = re.compile(r"[^ \t\n\r]")
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_such_number, parse_int=_short, parse_float=_finite
)


def _arrow(path: Path, wanted: Sequence[Wanted], reading: Reading) -> Iterator[list[str]]:
    header = Header(arrow_names(path, reading))
    names = [choose_column(path, header, column, reading) for column in wanted]
    row = 0
    lists = [name for name, (_, _, flag) in zip(names, wanted, strict=True) if flag == "--label-column"]
    for columns in arrow_columns(path, names, reading, lists):
        for values in zip(*columns, strict=True):
            row += 1
            where = f"{path}, row {row}"
            yield [
                as_text(where, name, _as_list(value) if name in lists else value, reading)
                for name, value in zip(names, values, strict=True)
            ]


def first_few(numbers: Sequence[int]) -> str:
    """The first five of `numbers`, and how many there are besides.

    >>> first_few([2, 3, 5, 7, 11, 13, 17])
    '2, 3, 5, 7, 11 and 2 more'
    """
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def _as_list(value: Any) -> Any:
    """A list of labels as JSON; anything else as it is."""
    if isinstance(value, list) and all(isinstance(x, (str, int, float)) for x in value):
        return json.dumps([str(x) for x in value], ensure_ascii=False)
    return value


def as_text(where: str, name: str, value: Any, reading: Reading) -> str:
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


def choose_column(path: Path, header: Header, wanted: Wanted, reading: Reading) -> str:
    """The wanted column of a table. If several could be meant, the first is, and a note says so."""
    name, usual, flag = wanted
    names, found = header.names, find_column(header, wanted)
    if found and (names.count(found[0]) > 1 or (name is not None and len(found) > 1)):
        raise DataError(f"{path}: two columns are called '{found[0]}'. Rename one.", "DATA_COLUMNS")
    if found:
        if others := ", ".join(f"'{other}'" for other in found[1:]):
            reading.note(
                f"{path} {flag}", f"{path}: the column '{found[0]}' is read, not {others}; {flag} names another."
            )
        return found[0]
    if len(names) == 1 and (mark := next((m for m in SEPARATORS if m in names[0]), None)):
        raise DataError(
            f"{path}: the columns seem to be separated by {SEPARATORS[mark]}, but not in all rows. Save it with commas "
            "as .csv, or with tabs as .tsv.",
            "DATA_COLUMNS",
        )
    missing = f"no column '{name}'" if name is not None else f"no column called {', '.join(usual[:6])} or the like"
    hint = did_you_mean(name, names) if name else ""
    raise DataError(
        f"{path}: {missing}; the header has {', '.join(name or '(no name)' for name in names)}.{hint} Name the column with {flag}, or add a header line if "
        "there is none.",
        "DATA_COLUMNS",
    )
