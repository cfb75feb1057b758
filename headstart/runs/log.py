"""A file that grows by a line at a time and outlives a full disk. No torch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headstart.runs.disk import attempt, sync_folder

KEPT = 1 << 20  # bytes that may wait to be forced to disk


class Log:
    """What is not yet safely on disk is kept in memory too, so that a failed write can be done again in its place."""

    def __init__(self, path: Path, length: int) -> None:
        """At `path`, which is made or cut to `length`."""
        self.path, self._safe = path, length
        self._tail, self._written = bytearray(), 0  # what follows the safe bytes, and how much of it is in the file
        self._file = attempt(path, self._open)

    def add(self, line: bytes) -> None:
        self._tail += line
        with suppress(OSError):  # only late: `sync` writes it again, and speaks when it cannot
            self._write()
            if len(self._tail) > KEPT:
                self._force()

    def sync(self) -> int:
        """The length of the file, all of it safely on disk."""
        attempt(self.path, self._force, len(self._tail))
        return self._safe

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> int:
        new = not self.path.exists()
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.ftruncate(file, self._safe)
            if new:
                sync_folder(self.path.parent)
        except BaseException:
            os.close(file)
            raise
        return file

    def _write(self) -> None:
        while self._written < len(self._tail):
            self._written += os.pwrite(self._file, self._tail[self._written :], self._safe + self._written)

    def _force(self) -> None:
        try:
            self._write()
            os.fsync(self._file)
        except OSError:
            self._written = 0  # after a failed fsync nobody knows what the disk holds
            raise
        self._safe += len(self._tail)
        self._tail.clear()
        self._written = 0
