"""Embeddings as files: Parquet and JSON lines with every column of the input, or a NumPy array. Written as they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
from numpy.lib import format as npy

from headstart.errors import DataError, UserError
from headstart.runs.disk import drafted
from headstart.runs.watch import Watch
from headstart.strict_json import to_json
from headstart.text.columns import Part, Table
from headstart.use.encode import AT_ONCE, LoadedEncoder, Vectors

ENDS = (".parquet", ".npy", ".jsonl")
COLUMN = "embedding"

Write = Callable[[Part, Vectors], None]


class Embedded(TypedDict):
    """What was written."""

    file: str
    rows: int
    width: int
    pool: str
    normalized: bool
    truncated: int  # texts that were longer than the context
    blank: int


def write_vectors(out: Path, table: Table, encoder: LoadedEncoder, watch: Watch | None = None) -> Embedded:
    """The embeddings of the texts of `table` in the file `out`, all of them or none."""
    watch = watch or Watch()
    writers = {".parquet": _parquet, ".npy": _npy, ".jsonl": _json_lines}
    writer = writers.get(out.suffix.lower())
    if writer is None:
        raise UserError(f"--out takes a file that ends with {', '.join(ENDS)}, not '{out}'.")
    if COLUMN in table.types and writer is not _npy:
        raise DataError(f"{table.path} has a column '{COLUMN}' already. Rename it, or write .npy.", "DATA_COLUMNS")
    done, cut = 0, encoder.truncated
    with drafted(out) as file, writer(file, table, encoder.width) as write, watch.bar("Embedding", table.count):
        for part in table.parts(AT_ONCE):
            write(part, encoder.encode(part.texts))
            done += len(part.texts)
            watch.reach(done, "")
    return {
        "file": str(out),
        "rows": done,
        "width": encoder.width,
        "pool": encoder.pool,
        "normalized": encoder.normalized,
        "truncated": encoder.truncated - cut,
        "blank": table.blank,
    }


@contextmanager
def _parquet(file: BinaryIO, table: Table, width: int) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    fields = [(name, kind or pa.string()) for name, kind in table.types.items()]
    schema = pa.schema([*fields, (COLUMN, pa.list_(pa.float32(), width))])
    with ParquetWriter(file, schema) as writer:

        def write(part: Part, vectors: Vectors) -> None:
            columns = [
                pa.array(column, kind) for column, (_, kind) in zip(zip(*part.rows, strict=True), fields, strict=True)
            ]
            numbers = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), width)
            writer.write_table(pa.Table.from_arrays([*columns, numbers], schema=schema))

        yield write


@contextmanager
def _npy(file: BinaryIO, table: Table, width: int) -> Iterator[Write]:
    """The shape stands before the numbers; NumPy leaves room in it for a first axis that grows."""
    rows = 0

    def header() -> None:
        npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})

    def write(part: Part, vectors: Vectors) -> None:
        nonlocal rows
        rows += len(vectors)
        file.write(np.ascontiguousarray(vectors, "<f4").tobytes())

    header()
    yield write
    file.seek(0)
    header()


@contextmanager
def _json_lines(file: BinaryIO, table: Table, width: int) -> Iterator[Write]:
    names = list(table.types)

    def write(part: Part, vectors: Vectors) -> None:
        for row, vector in zip(part.rows, vectors.tolist(), strict=True):
            record = {name: _plain(value) for name, value in zip(names, row, strict=True)}
            file.write(f"{to_json({**record, COLUMN: vector})}\n".encode())

    yield write


def _plain(value: Any) -> Any:
    """A value as JSON has it; dates and the like as text."""
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
