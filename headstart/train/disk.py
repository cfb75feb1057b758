"""Files that are there whole or not at all, and one sentence when the disk refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

from headstart.errors import ResourceError


class disk_errors:
    """Turn a full disk or a forbidden folder into one sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(value, OSError) and value.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ResourceError(f"Disk full writing {self.path}. Free some space and go on with --resume.", "DISK_FULL")
        if isinstance(value, OSError) and value.errno in (
            errno.EACCES,
            errno.EROFS,
            errno.EPERM,
            errno.ENAMETOOLONG,
            errno.ENOTDIR,
        ):
            raise ResourceError(f"{self.path} cannot be written ({value.strerror}).", "DISK_DENIED")


def write_file(path: Path, data: bytes) -> None:
    """`data` at `path`, all of it or none, on disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to disk: without it a rename can be lost with the power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
