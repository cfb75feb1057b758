"""Compressed text files, .gz and .zst, read in a stream. A few kilobytes can stand for gigabytes: there is a limit."""

from __future__ import annotations

import zlib
from gzip import GzipFile
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol

from headstart.errors import DataError

SUFFIXES = (".gz", ".zst")
MANY_BYTES = 256 * 2**20  # allowed in any file; a larger one may unpack to RATIO times its own bytes
RATIO = 100


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def plain_name(path: Path) -> Path:
    """The name of a file without that of its compression.

    >>> str(plain_name(Path("a.jsonl.gz"))), str(plain_name(Path("a.txt")))
    ('a.jsonl', 'a.txt')
    """
    return path.with_suffix("") if is_compressed(path) else path


def decompressed(path: Path, file: BinaryIO) -> BinaryIO:
    """The bytes that a compressed file stands for; a DataError, as they are read, where it is damaged or stands for far too many."""
    if path.suffix.lower() == ".gz":
        source: _Readable = GzipFile(fileobj=file)
    else:
        from pyarrow import CompressedInputStream

        source = CompressedInputStream(file, "zstd")
    return BufferedReader(_Unpacked(path, file, source))


class _Unpacked(RawIOBase):
    def __init__(self, path: Path, file: BinaryIO, source: _Readable) -> None:
        self.path, self.file, self.source, self.size = path, file, source, 0
        self.most = max(MANY_BYTES, RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        assert isinstance(
            buffer, (memoryview, bytearray)
        )  # of BufferedReader, and of RawIOBase when all is read at once
        try:
            data = self.source.read(len(buffer))
        except (OSError, EOFError, zlib.error) as error:  # what gzip and pyarrow raise of damaged files
            raise DataError(f"{self.path}: not a readable {self.path.suffix} file ({error}).", "DATA_FORMAT") from None
        self.size += len(data)
        if self.size > self.most:
            raise DataError(
                f"{self.path}: unpacks to more than {self.most >> 20} MB, {RATIO} times its size or more. Unpack it yourself "
                "if that is right.",
                "DATA_FORMAT",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.file.close()
        super().close()
