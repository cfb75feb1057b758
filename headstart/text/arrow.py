"""Columns of Parquet and Arrow files: only those that are asked for, a group of rows at a time.

A few kilobytes of such a file can stand for gigabytes, because a repeated value is written once. A file that unpacks
to far more than it holds is refused before it is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.errors import DataError, ResourceError
from headstart.text.files import Reading

MANY_ROWS = 1_000_000  # allowed in any file; a larger one may have as many as it has bytes
MANY_BYTES = 256 * 2**20  # likewise; a larger one may unpack to RATIO times its own bytes
RATIO = 100

Types = dict[str, Any]  # of each column the pyarrow type; None for text


def arrow_names(path: Path, reading: Reading) -> list[str]:
    """The names of all columns."""
    with _complaints(path):
        return list(_schema(path, reading.mapped(path)).names)


def plain_types(path: Path, reading: Reading) -> Types:
    """The types of the columns that hold neither lists nor objects; of a dictionary, that of its values."""
    from pyarrow import types

    with _complaints(path):
        fields = list(_schema(path, reading.mapped(path)))
        found = {
            field.name: field.type.value_type if types.is_dictionary(field.type) else field.type for field in fields
        }
        return {name: kind for name, kind in found.items() if not _is_nested(kind)}


def arrow_columns(
    path: Path, names: Sequence[str], reading: Reading, lists: Sequence[str] = ()
) -> Iterator[list[list[Any]]]:
    """The values of the columns `names`, for one group of rows after another; those in `lists` may hold lists of plain values."""
    data = reading.mapped(path)
    rows = size = 0
    with _complaints(path):
        for name in names:
            _must_be_plain(path, name, _schema(path, data).field(name).type, name in lists)
        for group in (_parquet if _is_parquet(path) else _stream)(path, data, names):
            rows += group.num_rows
            _must_not_swell(path, data, rows, size)
            group.validate(full=True)  # a damaged one can otherwise take the whole process down
            size += sum(map(_text_bytes, group.columns))
            _must_not_swell(path, data, rows, size)
            yield [_values(column) for column in group.columns]
    if not rows:
        raise DataError(f"{path}: the file has no rows.", "DATA_EMPTY")


def arrow_schema(path: Path, reading: Reading) -> Any:
    """The names and types of all columns, as pyarrow has them."""
    with _complaints(path):
        return _schema(path, reading.mapped(path))


def arrow_batches(path: Path, reading: Reading, rows: int) -> Iterator[Any]:
    """Batches of at most `rows` rows with all columns, as pyarrow has them."""
    from pyarrow import BufferReader, Table, ipc
    from pyarrow.parquet import ParquetFile

    data = reading.mapped(path)
    with _complaints(path):
        if _is_parquet(path):
            file = ParquetFile(BufferReader(data))
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            _must_not_swell(path, data, file.metadata.num_rows, sum(group.total_byte_size for group in groups))
            batches = file.iter_batches(batch_size=rows)
        else:
            batches = ipc.open_stream(BufferReader(data))
        for batch in batches:
            batch.validate(full=True)  # a damaged one can otherwise take the whole process down
            yield from Table.from_batches([batch]).to_batches(max_chunksize=rows)


@contextmanager
def _complaints(path: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, struct.error) as error:  # ValueError: a name that is no UTF-8
        raise DataError(f"{path}: not a readable {path.suffix[1:]} file ({error}).", "DATA_FORMAT") from None


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _schema(path: Path, data: Any) -> Any:
    from pyarrow import BufferReader, ipc, parquet

    source = BufferReader(data)
    return parquet.read_schema(source) if _is_parquet(path) else ipc.open_stream(source).schema


def _parquet(path: Path, data: Any, names: Sequence[str]) -> Iterator[Any]:
    """The row groups, in which a repeated text is kept once."""
    from pyarrow import BufferReader
    from pyarrow.parquet import ParquetFile

    schema = _schema(path, data)
    texts = [name for name in names if not _is_nested(schema.field(name).type)]
    file = ParquetFile(BufferReader(data), read_dictionary=texts)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    rows, unpacked = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if (
        unpacked > MANY_BYTES
    ):  # then without columns that nobody asks for; pyarrow aborts when it is asked of damaged ones
        places = [i for i in range(file.metadata.num_columns) if file.schema.column(i).path.split(".")[0] in names]
        unpacked = sum(group.column(i).total_uncompressed_size for group in groups for i in places)
    _must_not_swell(path, data, rows, unpacked)
    for number in range(len(groups)):
        yield from file.read_row_group(number, columns=list(names)).select(names).to_batches()


def _stream(path: Path, data: Any, names: Sequence[str]) -> Iterator[Any]:
    """The batches of an Arrow stream, as the datasets library saves it."""
    from pyarrow import BufferReader, ipc

    unpacked = 0
    for message in ipc.MessageReader.open_stream(BufferReader(data)):
        unpacked += _unpacked(message)
        _must_not_swell(path, data, 0, unpacked)
    all_names = _schema(path, data).names
    only = ipc.IpcReadOptions(included_fields=[all_names.index(name) for name in names])
    for batch in ipc.open_stream(BufferReader(data), options=only):
        yield batch.select(names)


def _unpacked(message: Any) -> int:
    """Bytes of the buffers of an Arrow message; each says so itself before it is decompressed.

    The layout is that of Message.fbs: a table begins with the way back to the list of where its fields are.
    """
    facts = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int | None:
        offsets = table - int.from_bytes(facts[table : table + 4], "little", signed=True)
        (size,) = struct.unpack_from("<H", facts, offsets)
        (place,) = struct.unpack_from("<H", facts, offsets + 4 + 2 * number) if 4 + 2 * number < size else (0,)
        return table + place if place else None

    def follow(place: int) -> int:
        return place + struct.unpack_from("<I", facts, place)[0]

    kind, header = message.type, field(follow(0), 2)
    if header is None or kind not in ("record batch", "dictionary"):
        return 0
    batch: int | None = follow(header)
    if kind == "dictionary":
        inner = field(follow(header), 1)
        batch = follow(inner) if inner else None
    if batch is None or not field(batch, 3):  # not compressed: it is as large as it is
        return 0
    buffers = field(batch, 2)
    if buffers is None:
        return 0
    start = follow(buffers)
    (count,) = struct.unpack_from("<I", facts, start)
    total = 0
    for place, size in struct.iter_unpack("<qq", facts[start + 4 : start + 4 + 16 * count]):
        total += max(0, struct.unpack_from("<q", message.body, place)[0]) if size >= 8 else 0
    return total


def _must_be_plain(path: Path, name: str, kind: Any, may_be_list: bool) -> None:
    from pyarrow import types

    if may_be_list and (types.is_list(kind) or types.is_large_list(kind)):
        kind = kind.value_type
    if _is_nested(kind.value_type if types.is_dictionary(kind) else kind):
        raise DataError(f"{path}: '{name}' holds {kind}, not text.", "DATA_COLUMNS")


def _is_nested(kind: Any) -> bool:
    from pyarrow import types

    return types.is_nested(kind) or types.is_run_end_encoded(kind) or str(kind).endswith("view")


def _must_not_swell(path: Path, data: Any, rows: int, size: int) -> None:
    most_rows, most_bytes = max(MANY_ROWS, len(data)), max(MANY_BYTES, RATIO * len(data))
    if rows > most_rows or size > most_bytes:
        found = f"{most_rows:,} rows" if rows > most_rows else f"{most_bytes:,} bytes"
        raise ResourceError(
            f"{path}: more than {found} would come out of a file of {len(data):,} bytes, as if it were made to fill the "
            "memory. If it is not, save it as .csv.",
            "TABLE_LARGE",
        )


def _text_bytes(column: Any) -> int:
    """Bytes of all its texts, one by one."""
    from pyarrow import compute, types

    if not types.is_dictionary(column.type):
        return int(column.nbytes)
    if not (types.is_string(column.type.value_type) or types.is_large_string(column.type.value_type)):
        return 8 * len(column)
    return int(compute.sum(compute.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _values(column: Any) -> list[Any]:
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return list(column.to_pylist())
    values = column.dictionary.to_pylist()
    return [None if i is None else values[i] for i in column.indices.to_pylist()]
