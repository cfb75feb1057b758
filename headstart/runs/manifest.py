"""MANIFEST.json: size and SHA-256 of the files of a folder as they were written, held against them when it is opened.

Checkpoints have one, and so has every model/. The model card is left out: it is the user's to edit. No torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from headstart.errors import ModelError

NAME = "MANIFEST.json"
MOST_BYTES = 1 << 20  # of the manifest itself, which names a handful of files
_verifying = ContextVar("verifying", default=True)


@dataclass(frozen=True)
class Entry:
    """One file."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    bytes: int
    sha256: str


_MANIFEST = TypeAdapter(dict[str, Entry])


@contextmanager
def unverified() -> Iterator[None]:
    """Models are opened without a look at their manifests, as with --no-verify."""
    before = _verifying.set(False)
    try:
        yield
    finally:
        _verifying.reset(before)


def verifying() -> bool:
    return _verifying.get()


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """MANIFEST.json of these files."""
    entries = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    return json.dumps(entries, indent=1).encode()


def read_manifest(folder: Path) -> dict[str, Entry]:
    """The files that should be in a folder; a ValueError says why that cannot be known."""
    try:
        if _regular_size(folder / NAME) > MOST_BYTES:
            raise ValueError("its manifest is damaged")
        entries = _MANIFEST.validate_json((folder / NAME).read_bytes())
    except OSError as error:
        raise ValueError(f"its manifest cannot be read ({error.strerror})") from None
    except ValueError:
        raise ValueError("its manifest is damaged") from None
    if not all(re.fullmatch(r"[\w-][\w.-]*", name) for name in entries):  # nothing outside the folder
        raise ValueError("its manifest is damaged")
    return entries


def verified(folder: Path, entries: Mapping[str, Entry]) -> Iterator[tuple[str, bytes]]:
    """The files by name, as long as they are those that were written; a ValueError says which is not."""
    for name, entry in entries.items():
        try:
            if _regular_size(folder / name) != entry.bytes:
                raise ValueError(f"{name} has not the size that was written")
            data = (folder / name).read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{name} is missing") from None
        except OSError as error:
            raise ValueError(f"{name} cannot be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ValueError(f"{name} is not what was written")
        yield name, data


def must_be_whole(folder: Path) -> None:
    """Refuse a model/ with a file that is not as it was written; one without a manifest is older than these."""
    if not _verifying.get() or not os.path.lexists(folder / NAME):
        return
    try:
        for _ in verified(folder, read_manifest(folder)):
            pass
    except ValueError as error:
        raise ModelError(
            f"{folder} is damaged, or was changed by hand: {error}. Copy it again from where it came, or train it again; "
            "--no-verify takes it as it is."
        ) from None


def _regular_size(path: Path) -> int:
    """Bytes of a file; a pipe or a device, which may never end, is none."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is not a file")
    return found.st_size
