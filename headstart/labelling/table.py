"""The labels of a session as a table, which every other verb reads."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from headstart.errors import DataError
from headstart.labelling.session import Session

COLUMNS = ("row", "text", "label", "part")


@dataclass(frozen=True)
class LabelledTable:
    csv: str
    rows: int


def labelled_csv(session: Session, random: bool | None = None) -> LabelledTable:
    """All labelled rows, or those of the random part, or the others; `part` says which it is."""
    rows = [row for row in session.labelled() if random is None or row[3] == random]
    if not rows:
        if random is None:
            raise DataError(f"{session.path}: no row is labelled yet.", "DATA_EMPTY")
        part = "random" if random else "chosen"
        raise DataError(f"{session.path}: no {part} row is labelled yet. Label some {part} rows first.", "DATA_EMPTY")
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((row, text, label, "random" if by_chance else "chosen") for row, text, label, by_chance in rows)
    return LabelledTable(written.getvalue(), len(rows))
