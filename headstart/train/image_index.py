"""What an image tower makes of the pictures in a folder, computed once for each file and kept in the cache directory.

The file is named by the tower and by the folder. A picture is known by its name, size and time of change, or, where
one of these is new, by its SHA-256: what was added or changed is looked at, what is gone is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from headstart.errors import DataError
from headstart.images.pixels import pixels_of
from headstart.images.read import read_image
from headstart.shapes import PixelsConfig
from headstart.text.files import check_file
from headstart.text.packs import cache_folder
from headstart.train.disk import write_file
from headstart.train.watch import Watch

AT_ONCE = 4  # pictures; more at once take fresh memory for each layer, which costs more than they save
See = Callable[[Tensor], Tensor]  # (B, 3, S, S) -> (B, D)


@dataclass(frozen=True)
class Seen:
    """The pictures that could be used, what the tower made of them, and why the others could not."""

    files: list[str]
    vectors: Tensor  # (M, D)
    bad: dict[str, str]
    new: int  # pictures that had to be looked at


@dataclass(frozen=True)
class Entry:
    """What is kept of one picture."""

    size: int
    changed: int  # nanoseconds
    sha256: str
    vector: Tensor  # (D,)


@dataclass(frozen=True)
class ImageIndex:
    see: See
    pixels: PixelsConfig
    key: str  # of the tower: another one makes other vectors
    device: str = "cpu"

    def __call__(self, folder: str | Path, files: Sequence[str], watch: Watch | None = None) -> Seen:
        """The vectors of `files`, which are paths from `folder`."""
        folder = Path(os.path.abspath(folder))
        kept = cache_folder() / "images" / f"{self.key[:16]}-{_sha256(str(folder).encode())[:16]}.safetensors"
        before = _read(kept)
        known = {name: entry for name, entry in before.items() if os.path.exists(folder / name)}
        unchanged = len(known) == len(before)
        bad: dict[str, str] = {}
        fresh: list[tuple[str, int, int, str]] = []
        contents = {entry.sha256: entry.vector for entry in before.values()}
        for name in files:
            try:
                size, changed = _facts(folder, name)
            except DataError as error:
                bad[name] = _cause(error, folder / name)
                continue
            old = known.get(name)
            if old is None or (old.size, old.changed) != (size, changed):
                unchanged = False
                content = _sha256((folder / name).read_bytes())
                if content in contents:
                    known[name] = Entry(size, changed, content, contents[content])
                else:
                    known.pop(name, None)
                    fresh.append((name, size, changed, content))
        try:
            for name, entry in self._look(folder, fresh, bad, watch or Watch()):
                known[name] = entry  # noqa: PERF403 (one at a time: it may be stopped)
        finally:  # whatever stops it, what was looked at is kept
            if not unchanged:
                _write(kept, known)
        good = [name for name in files if name in known and name not in bad]
        vectors = torch.stack([known[name].vector for name in good]) if good else torch.empty(0, 0)
        return Seen(good, vectors, bad, len(fresh))

    def _look(
        self, folder: Path, fresh: Sequence[tuple[str, int, int, str]], bad: dict[str, str], watch: Watch
    ) -> Iterator[tuple[str, Entry]]:
        if not fresh:
            return
        with watch.bar("images", len(fresh)):
            for start in range(0, len(fresh), AT_ONCE):
                part, pixels = [], []
                for each in fresh[start : start + AT_ONCE]:
                    try:
                        pixels.append(torch.from_numpy(pixels_of(read_image(folder / each[0]), self.pixels)))
                        part.append(each)
                    except DataError as error:
                        bad[each[0]] = _cause(error, folder / each[0])
                if part:
                    with torch.inference_mode():
                        vectors = self.see(torch.stack(pixels).to(self.device)).float().cpu().clone()
                    for (name, size, changed, content), vector in zip(part, vectors, strict=True):
                        yield name, Entry(size, changed, content, vector)
                watch.reach(min(start + AT_ONCE, len(fresh)), "looked at")


def unusable(folder: Path, files: Sequence[str], watch: Watch) -> dict[str, str]:
    """What is wrong with each file that cannot be used; every one is decoded."""
    bad = {}
    with watch.bar("images", len(files)):
        for i, name in enumerate(files, start=1):
            try:
                _facts(folder, name)
                read_image(folder / name)
            except DataError as error:
                bad[name] = _cause(error, folder / name)
            watch.reach(i, "checked")
    return bad


def _facts(folder: Path, name: str) -> tuple[int, int]:
    """Size and time of change of a file in the folder."""
    if os.path.isabs(name) or name.startswith(".."):
        raise DataError(f"{folder / name}: not in the folder of the images.", "DATA_PATH")
    check_file(folder / name)
    found = (folder / name).stat()
    return found.st_size, found.st_mtime_ns


def _cause(error: DataError, path: Path) -> str:
    """What is wrong, without the path and the full stop."""
    return str(error).removeprefix(f"{path}: ").removesuffix(".")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(file: Path) -> dict[str, Entry]:
    """What is kept, by name; nothing if it is not there or damaged: it is made again."""
    try:
        with safe_open(file, "pt") as kept:
            entries, vectors = json.loads(kept.metadata()["entries"]), kept.get_tensor("vectors")
        return {
            name: Entry(size, changed, content, vector)
            for (name, (size, changed, content)), vector in zip(entries.items(), vectors, strict=True)
        }
    except (FileNotFoundError, SafetensorError, KeyError, ValueError, TypeError):
        return {}


def _write(file: Path, known: dict[str, Entry]) -> None:
    entries = {name: (entry.size, entry.changed, entry.sha256) for name, entry in known.items()}
    vectors = torch.stack([entry.vector for entry in known.values()]) if known else torch.empty(0, 0)
    write_file(file, save({"vectors": vectors}, {"entries": json.dumps(entries)}))
