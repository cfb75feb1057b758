"""Rows for a table, out of the layouts in which data sets come: a label file beside a text file, pieces, archives."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from headstart.errors import DataError
from headstart.text.archive import ARCHIVES, read_archive
from headstart.text.digests import digest
from headstart.text.files import PLAIN, Reading
from headstart.text.read import Example, read_examples, read_lines


def read_rows(
    texts: Path,
    labels: Path | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    reading: Reading = PLAIN,
) -> list[Example]:
    """The rows of a table, the lines of a text or the files of an archive; with the lines of `labels` as labels."""
    if texts.name.lower().endswith(ARCHIVES):
        rows = [Example(text, "") for text in read_archive(texts, reading)]
    elif labels is None:
        rows = read_examples(texts, "line", text_column, label_column, reading)
    else:
        rows = [Example(text, "") for text in read_lines(texts, text_column, reading)]
    if labels is not None:
        names = read_lines(labels, reading=reading)
        if len(names) != len(rows):
            raise DataError(
                f"{texts} has {len(rows)} lines and {labels} {len(names)}: there must be one label for each text.",
                "DATA_LABEL",
            )
        rows = [Example(row.text, name.strip()) for row, name in zip(rows, names, strict=True)]
    return rows


def drawn(rows: list[Example], count: int) -> list[Example]:
    """`count` of the rows by chance, the same ones each time, in the order they have."""
    by_chance = sorted(range(len(rows)), key=lambda i: digest(rows[i].text, str(i)))
    return [rows[i] for i in sorted(by_chance[:count])]


def joined(text: str) -> str:
    """The text that SentencePiece cut into pieces.

    >>> joined("▁Je ▁l ' aime .")
    "Je l'aime."
    """
    return text.replace(" ", "").replace("▁", " ").strip()


def escaped(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: the quote that it shows as text stands before it.

    >>> escaped("=1+2"), escaped("1+2")
    ("'=1+2", '1+2')
    """
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell


def as_csv(rows: list[Example]) -> str:
    """A table of text and label; of text alone where no row has a label."""
    table = io.StringIO()
    labelled = any(row.label for row in rows)
    header, cells = ("text", "label"), ((row.text, row.label) for row in rows)
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows(line if labelled else line[:1] for line in (header, *cells))
    return table.getvalue()
