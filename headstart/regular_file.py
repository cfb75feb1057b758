"""Files opened only if they are regular: a pipe would keep the reader waiting, a device such as /dev/zero has no end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: str | Path) -> BufferedReader:
    """The file at `path`, open for reading bytes; an OSError for a folder, pipe, socket or device, as for a missing file."""
    _must_be_regular(path, os.stat(path).st_mode)  # before it is opened: opening a device can do something to it
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _must_be_regular(path, os.fstat(descriptor).st_mode)  # and after: it may have been replaced in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """All bytes of a regular file; an OSError where there are more than `most`."""
    with open_regular(path) as file:
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
        return file.read() if most is None else file.read(most)


def _must_be_regular(path: str | Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file but a pipe, socket or device", str(path))
