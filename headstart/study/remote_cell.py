"""What a node of a cluster does: a message and parcels in, a cell run in a folder of its own, and bytes out. Jobs load torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack

from headstart.errors import Stopped, UserError
from headstart.study.parcel import Arrived, must_be_our_version, packed, unpack
from headstart.study.run import run_cell


def run_remote_cell(message: bytes, places: bytes, *parcels: bytes) -> bytes:
    """How a cell ended, its files, and the features of frozen bases that it made; `places` are those of the parcels."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder, _cache(Path(folder) / "cache"):
        return _run(Path(folder), message, msgpack.unpackb(places), parcels)


def _run(root: Path, message: bytes, places: list[str], parcels: tuple[bytes, ...]) -> bytes:
    try:
        must_be_our_version(message)
        for place, parcel in zip(places, parcels, strict=True):
            unpack(parcel, root / place)
        arrived = Arrived.of(message, root)
        known = set((arrived.study / "features").glob("*"))
        outcome = run_cell(arrived.cell, arrived.study, arrived.threads)
        arrived.home()
    except Stopped as stop:  # the node is shut down in good order: another one begins the cell anew
        raise SystemExit(stop.exit_code) from None
    except UserError as error:
        return _told(error.exit_code, str(error))
    made = sorted(set((arrived.study / "features").glob("*.safetensors")) - known)
    cell = packed(arrived.folder, checkpoints=True) if arrived.folder.exists() else None
    return _told(outcome.exit, outcome.message, cell=cell, features={file.name: packed(file) for file in made})


def _told(code: int, message: str, **more: Any) -> bytes:
    return bytes(msgpack.packb({"exit": code, "message": message, "cell": None, "features": {}, **more}))


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """Packs are looked for among those that came along."""
    before = os.environ.get("HEADSTART_CACHE")
    os.environ["HEADSTART_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("HEADSTART_CACHE") if before is None else os.environ.update(HEADSTART_CACHE=before)
