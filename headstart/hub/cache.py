"""The user's cache directory: what was fetched or computed once. It is made for its owner alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_dir

from headstart.errors import ResourceError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_folder() -> Path:
    return Path(os.environ.get("HEADSTART_CACHE") or user_cache_dir("headstart"))


@contextmanager
def writing_in(name: str) -> Iterator[Path]:
    """The folder `name` of the cache, made if it is not there; a disk that refuses is told in one sentence."""
    folder = cache_folder() / name
    try:
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        yield folder
    except OSError as error:
        full = error.errno in FULL
        raise ResourceError(
            f"{folder} cannot be written ({error.strerror or error}). "
            f"{'Free some space, or choose' if full else 'Choose'} another folder with HEADSTART_CACHE.",
            "DISK_FULL" if full else "DISK_DENIED",
        ) from None


def private_folder(name: str) -> Path:
    """The folder `name` of the cache, made if it is not there."""
    with writing_in(name) as folder:
        return folder
