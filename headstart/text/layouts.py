"""Files whose layout shows what is predicted for their rows: a row of the table for each. Others are tables and folders (read.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headstart.errors import DataError
from headstart.task import Task
from headstart.text import tagged
from headstart.text.files import PLAIN, Reading


@dataclass(frozen=True)
class Layout:
    """How files of one kind are known and read."""

    task: Task
    holds: str  # in words
    row: str
    endings: tuple[str, ...]  # of the files that are no tables
    known: Callable[[str | Path, str | None, str | None, Reading], bool]
    read: Callable[[Path, str | None, str | None, Reading, bool], list[tuple[str, str]] | None]  # texts and labels


LAYOUTS = (Layout("tag", "tagged words", "sentences", tagged.COLUMNS, tagged.is_tagged, tagged.read_tagged),)
ENDINGS = tuple(ending for layout in LAYOUTS for ending in layout.endings)


def layout_task(
    path: str | Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
) -> Task | None:
    """The task that the layout of a file shows, if it does."""
    return next((each.task for each in LAYOUTS if each.known(path, text_column, label_column, reading)), None)


def shared_task(
    paths: Iterable[str], text_column: str | None, label_column: str | None, reading: Reading = PLAIN
) -> Task | None:
    """The task that the layout of every file shows."""
    shown: Task | None = None
    for path in paths:
        task = layout_task(path, text_column, label_column, reading)
        if task is None or shown not in (None, task):
            return None
        shown = task
    return shown


def read_layout(
    path: Path, text_column: str | None, label_column: str | None, reading: Reading, task: Literal["auto"] | Task
) -> list[tuple[str, str]] | None:
    """Texts and labels of a file with a layout of its own, which files of its task must have; None of another."""
    for layout in LAYOUTS:
        if task in ("auto", layout.task):
            rows = layout.read(path, text_column, label_column, reading, task == layout.task)
            if rows is not None and not rows:
                raise DataError(f"{path}: no {layout.row} in it.", "DATA_EMPTY")
            if rows is not None:
                return rows
    return None
