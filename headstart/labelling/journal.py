"""labels.csv of a labelling session: a journal that only grows, one line for each answer, forced to disk before it is acknowledged.

    event,row,label,by,at
    label,17,sports,tab-3f2a,2026-11-18T08:01:12Z
    skip,40,,tab-3f2a,...
    undo,17,,tab-3f2a,...       takes back the last answer of the same author to the same row

Writers take turns by a lock of the kernel and append whole lines, so that nothing of two tabs or processes is lost. A line
that a power failure cut short was never acknowledged: readers leave it out, and the next writer removes it.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import DataError, ModelError
from headstart.runs.disk import attempt

COLUMNS = ("event", "row", "label", "by", "at")
HEADER = ",".join(COLUMNS) + "\n"
EVENTS = ("label", "skip", "undo")
SKIPPED = None


def line_of(event: str, row: int, label: str, by: str) -> str:
    line = io.StringIO()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    csv.writer(line, lineterminator="\n").writerow((event, row, label, by, now))
    return line.getvalue()


@dataclass(frozen=True)
class Answer:
    """What was said of a row."""

    row: int
    label: str | None  # None: skipped
    by: str
    line: int  # of the journal, which orders all answers


@dataclass
class Journal:
    path: Path
    answers: dict[int, list[Answer]] = field(default_factory=dict)  # of each row, the last one counts
    read: int = 0  # bytes
    lines: int = 0

    def refresh(self) -> Journal:
        """The same with what others have written meanwhile."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.read:  # not ours any more: read anew
                    self.read, self.lines, self.answers = 0, 0, {}
                file.seek(self.read)
                data = file.read()
        except FileNotFoundError:
            raise ModelError(f"{self.path.parent}: {self.path.name} is missing.", "LABELLING_DAMAGED") from None
        whole = data[: data.rfind(b"\n") + 1]
        try:
            for line in whole.splitlines():  # of bytes: U+0085 and U+2028 are part of a label
                self._take(line.decode())
            if not self.lines:
                raise ValueError("no header")
        except (UnicodeDecodeError, ValueError, csv.Error):
            raise ModelError(f"{self.path}, line {self.lines + 1}: damaged.", "LABELLING_DAMAGED") from None
        self.read += len(whole)
        return self

    def labelled(self) -> list[Answer]:
        """The labels that count, in the order in which they were given."""
        last = [given[-1] for given in self.answers.values() if given]
        return sorted((answer for answer in last if answer.label is not SKIPPED), key=lambda answer: answer.line)

    def skipped(self) -> set[int]:
        return {row for row, given in self.answers.items() if given and given[-1].label is SKIPPED}

    def answered(self) -> set[int]:
        return {row for row, given in self.answers.items() if given}

    def label(self, row: int, label: str, by: str) -> None:
        """Add a label; the same one again, of the same author, changes nothing."""
        with self._writing() as append:
            if self._last(row) != (label, by):
                append("label", row, label, by)

    def skip(self, row: int, by: str) -> None:
        with self._writing() as append:
            if self._last(row) != (SKIPPED, by):
                append("skip", row, "", by)

    def undo(self, row: int, by: str) -> None:
        """Take back the last answer of this author to this row."""
        with self._writing() as append:
            if not any(answer.by == by for answer in self.answers.get(row, [])):
                raise DataError(f"Row {row} has no answer by {by} to take back.", "LABEL_MISSING")
            append("undo", row, "", by)

    def _last(self, row: int) -> tuple[str | None, str] | None:
        """The answer that counts, and its author."""
        given = self.answers.get(row)
        return (given[-1].label, given[-1].by) if given else None

    def _take(self, line: str) -> None:
        number = self.lines + 1
        if number == 1:
            if line != HEADER.rstrip("\n"):
                raise ValueError(line)
        else:
            event, row, label, by, _ = next(csv.reader([line]))
            given = self.answers.setdefault(int(row), [])
            if event not in EVENTS or (event == "label") != bool(label):
                raise ValueError(line)
            if event == "undo":
                own = [i for i, answer in enumerate(given) if answer.by == by]
                if own:
                    del given[own[-1]]
            else:
                given.append(Answer(int(row), label or SKIPPED, by, number))
        self.lines = number

    @contextmanager
    def _writing(self) -> Iterator[_Append]:
        """The turn of one writer, who has read what all others wrote."""
        try:
            descriptor = attempt(self.path, lambda: os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        except FileNotFoundError:
            raise ModelError(f"{self.path.parent}: {self.path.name} is missing.", "LABELLING_DAMAGED") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.refresh()
            if os.fstat(descriptor).st_size > self.read:  # a line cut short
                attempt(self.path, lambda: os.ftruncate(descriptor, self.read))
            yield _Append(self, descriptor)
            self.refresh()
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class _Append:
    journal: Journal
    descriptor: int

    def __call__(self, event: str, row: int, label: str, by: str) -> None:
        """A line at the end of the file, on the disk when this returns; none of it, if the disk refuses."""
        data, end = line_of(event, row, label, by).encode(), self.journal.read

        def write() -> None:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(self.descriptor, left) :]
                os.fsync(self.descriptor)
            except OSError:
                os.ftruncate(self.descriptor, end)
                raise

        attempt(self.journal.path, write, len(data))
