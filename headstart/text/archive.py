"""The texts in a .tar, read where they are: nothing of an archive is ever written to disk.

Only regular files are read. Links and devices are left out and reported; a name that leads out of the archive is
refused. A few kilobytes can unpack to gigabytes, so everything is read up to a limit.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from headstart.errors import DataError, ResourceError, first_line, shortened
from headstart.text.files import STRETCH, Reading, is_blank, read_text
from headstart.text.read import TEXT_COLUMNS
from headstart.text.tables import TABLES, is_table, read_columns

READABLE = (".txt", *TABLES)
ARCHIVES = (".tar.gz", ".tgz", ".tar")
MOST_TEXT = 256 * 2**20  # bytes in all the files that are read
MOST_UNPACKED = 2**31  # bytes in a compressed archive, with all that is passed over
MOST_MEMBERS = 200_000
MOST_HEADER = 2**20  # bytes that describe one member; tarfile would read as many as a header asks for
_PACKED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
# tarfile raises all of these for damaged archives; RecursionError for headers that announce headers
_DAMAGED = (
    *(tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, TypeError, OverflowError, IndexError, KeyError, RecursionError),
)


def read_archive(path: Path, reading: Reading) -> list[str]:
    """The texts in an archive, by the names of their files: a row of a table is one, and so is any other file."""
    with reading.opened(path) as packed:
        found = dict(_members(path, packed, reading))  # of two files of one name, the later counts
    if not found:
        raise DataError(f"{path}: no {', '.join(READABLE)} file in this archive.", "DATA_EMPTY")
    texts: list[str] = []
    for name in sorted(found):
        file = path / name
        inside = reading.inside({file: found.pop(name)})
        if is_table(file, inside):
            texts += (row[0] for row in read_columns(file, [(None, TEXT_COLUMNS, "--text-column")], inside))
        elif file.suffix.lower() == ".txt":  # a .json file without rows is something else
            texts.append(read_text(file, inside))
    if all(map(is_blank, texts)):
        raise DataError(f"{path}: no text in it.", "DATA_EMPTY")
    return texts


def _members(path: Path, file: BinaryIO, reading: Reading) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and contents of each file that can be read, in the order of the archive."""
    others: list[str] = []
    size = 0
    try:
        stream = _Stream(path, file)
        with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload]
            for number, entry in enumerate(_entries(archive, stream)):
                if number == MOST_MEMBERS:
                    raise _too_large(path, f"{MOST_MEMBERS:,} files")
                if not entry.isreg():
                    others += [] if entry.isdir() else [entry.name]
                    continue
                name = posixpath.normpath(entry.name)
                if name.startswith(("/", "../")):
                    raise DataError(
                        f"{path}: the name of its file {shortened(entry.name)} leads out of the archive. Nothing was read.",
                        "DATA_FORMAT",
                    )
                if PurePosixPath(name).suffix.lower() in READABLE:
                    size += entry.size
                    if size > MOST_TEXT:
                        raise _too_large(path, f"{MOST_TEXT:,} bytes of text")
                    yield PurePosixPath(name), _contents(archive, entry, stream)
    except _DAMAGED as error:
        raise DataError(f"{path}: not a readable archive ({first_line(error)}).", "DATA_FORMAT") from None
    if others:
        names = ", ".join(map(shortened, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        what = "1 link or device was" if len(others) == 1 else f"{len(others)} links and devices were"
        reading.note(str(path), f"{path}: {what} not read: {names}.")


def _entries(archive: tarfile.TarFile, stream: _Stream) -> Iterator[tarfile.TarInfo]:
    while (entry := archive.next()) is not None:
        yield entry
        archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
        stream.left = MOST_HEADER


def _contents(archive: tarfile.TarFile, entry: tarfile.TarInfo, stream: _Stream) -> bytes:
    stream.left = entry.size + STRETCH  # it reads in stretches
    file = archive.extractfile(entry)
    assert file is not None, "it is a regular file"
    with file:
        return b"".join(iter(lambda: file.read(STRETCH), b""))


class _Stream:
    """The unpacked bytes of an archive for tarfile, which reads and skips whatever lengths the archive names."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        beginning = file.read(6)
        file.seek(0)
        packed = next((kind for magic, kind in _PACKED.items() if beginning.startswith(magic)), None)
        self.path, self.most = path, MOST_UNPACKED if packed else None
        self.file: IO[bytes] = packed(file) if packed else file
        self.left = MOST_HEADER  # bytes that may be read until more is allowed

    def read(self, size: int) -> bytes:
        if size > self.left:
            raise _too_large(self.path, f"{MOST_HEADER:,} bytes about one file")
        self.left -= size
        return self.file.read(size)

    def seek(self, place: int) -> int:
        if self.most is not None and place > self.most:
            raise _too_large(self.path, f"{self.most:,} bytes when unpacked")
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()


def _too_large(path: Path, what: str) -> ResourceError:
    return ResourceError(f"{path}: more than {what} in this archive. Unpack it, and give its folder.", "ARCHIVE_LARGE")
