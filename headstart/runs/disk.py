"""Files and folders that are there whole or not at all, and one sentence when the disk refuses.

Whatever is written here is forced to disk before the call returns. A fault that may pass is tried again; a full or
forbidden disk is not.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from headstart.errors import ResourceError
from headstart.quantities import data_size

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)
LASTING = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR)
WAITS = (0.1, 0.4)  # seconds before the second and the third try of what may pass
DRAFT = ".*.tmp"  # what a kill may leave behind
T = TypeVar("T")


def attempt(path: Path, action: Callable[[], T], size: int = 0, waits: tuple[float, ...] = WAITS) -> T:
    """What `action` gives, which writes `size` bytes at `path` and can be done again from its beginning."""
    try:
        return action()
    except OSError as error:
        if not waits or error.errno in LASTING:
            raise _refusal(path, error, size) from None
    time.sleep(waits[0])
    return attempt(path, action, size, waits[1:])


def write_file(path: Path, data: bytes) -> None:
    """`data` at `path`, all of it or none."""
    draft = _draft(path)

    def write() -> None:
        try:
            _make_folder(path.parent)
            _write(draft, data)
            os.replace(draft, path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    attempt(path, write, len(data))


@contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to be written in the block: it becomes `path` at the end of it, or is removed."""
    draft = _draft(path)
    try:
        make_folder(path.parent)
        yield draft
        descriptor = os.open(draft, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        raise _refusal(path, error, draft.stat().st_size if draft.exists() else 0) from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def drafted(path: Path) -> Iterator[BinaryIO]:
    """A file to write to bit by bit, which is at `path` when the block ends, and nowhere if it fails."""
    with draft_file(path) as draft, open(draft, "xb") as file:
        yield file


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """A folder of `files` at `path`, all of them or none; a folder that is there is replaced."""
    draft = _draft(path)

    def write() -> None:
        try:
            _make_folder(path.parent)
            os.mkdir(draft)
            for name, data in files.items():
                _write(draft / name, data)
            sync_folder(draft)
            if os.path.exists(path):
                remove_folder(path)
            os.rename(draft, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    attempt(path, write, sum(map(len, files.values())))


def remove_folder(path: Path) -> None:
    """Gone at once, as far as its name goes: a removal cut short leaves no half of it under that name."""
    draft = path
    if not path.match(DRAFT):  # one that was cut short
        draft = _draft(path)
        os.rename(path, draft)
    shutil.rmtree(draft)


def make_folder(path: Path) -> None:
    attempt(path, lambda: _make_folder(path))


def sync_folder(path: Path) -> None:
    """Force the names in a folder to disk: without it a rename can be lost with the power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_space(path: Path) -> int:
    """Bytes left on the volume where `path` is, or will be."""
    whole = path.absolute()
    return shutil.disk_usage(next(p for p in (whole, *whole.parents) if os.path.exists(p))).free


def _make_folder(path: Path) -> None:
    if path.is_dir():
        return
    _make_folder(path.parent)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not path.is_dir():  # else another process was faster
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    sync_folder(path.parent)


def _draft(path: Path) -> Path:
    """A name beside `path` that nobody else uses, even where locks are not kept."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(path: Path, error: OSError, size: int) -> ResourceError:
    if error.errno in FULL:
        return ResourceError(
            f"Disk full writing {path} ({error.strerror}): needs {data_size(size)}, {data_size(free_space(path))} free. "
            "Free some space.",
            "DISK_FULL",
        )
    return ResourceError(f"{path} cannot be written ({error.strerror or error}).", "DISK_DENIED")
