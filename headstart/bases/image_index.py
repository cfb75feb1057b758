"""What an image tower makes of the images in a folder, computed once for each file and kept in the cache directory.

The file is named by the tower and by the folder. An image is known by its name, size and times of change, or, where
one of these is new, by its SHA-256: what was added or changed is looked at, what is gone is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from headstart.errors import DataError
from headstart.hub.cache import private_folder
from headstart.images.pixels import pixels_of
from headstart.images.read import check_image, read_image
from headstart.runs.disk import write_file
from headstart.runs.watch import Watch
from headstart.shapes import PixelsConfig

AT_ONCE = 4  # images; more at once take fresh memory for each layer, which costs more than they save
See = Callable[[Tensor], Tensor]  # (B, 3, S, S) -> (B, D)
Facts = tuple[int, ...]  # size, and when content and state of the file were changed, in nanoseconds


@dataclass(frozen=True)
class Checked:
    """Which images can be used."""

    contents: dict[str, str]  # SHA-256 of each that can
    bad: dict[str, str]  # and why each other cannot


@dataclass(frozen=True)
class Seen(Checked):
    """And what the tower made of them."""

    vectors: Tensor  # (M, D)
    new: int  # images that had to be looked at

    @property
    def files(self) -> list[str]:
        return list(self.contents)


@dataclass(frozen=True)
class Entry:
    """What is kept of one image: its vector, or why it has none."""

    facts: Facts
    sha256: str
    vector: Tensor | None  # (D,)
    bad: str = ""


@dataclass(frozen=True)
class ImageIndex:
    see: See
    pixels: PixelsConfig
    key: str  # of the tower: another one makes other vectors
    device: str = "cpu"

    def __call__(self, folder: str | Path, files: Sequence[str], watch: Watch | None = None) -> Seen:
        """The vectors of `files`, which are paths from `folder`."""
        folder = Path(os.path.abspath(folder))
        kept = private_folder("images") / f"{self.key[:16]}-{_sha256(str(folder).encode())[:16]}.safetensors"
        before = _read(kept)
        known = _still_there(folder, before)
        unchanged = len(known) == len(before)
        bad: dict[str, str] = {}
        fresh: list[tuple[str, Facts, str]] = []
        contents = {entry.sha256: entry for entry in before.values()}
        for name in files:
            try:
                facts = _facts(folder, name)
                old = known.get(name)
                if old is None or old.facts != facts:
                    unchanged = False
                    known.pop(name, None)
                    content = _content(folder / name)
                    if content in contents:
                        known[name] = replace(contents[content], facts=facts)
                    else:
                        fresh.append((name, facts, content))
            except DataError as error:
                bad[name] = _cause(error, folder / name)
        try:
            for name, entry in self._look(folder, fresh, watch or Watch()):  # one at a time: it may be stopped
                known[name] = entry
        finally:  # whatever stops it, what was looked at is kept, beside what another process has kept meanwhile
            if not unchanged:
                _write(kept, {**_still_there(folder, _read(kept)), **known})
        bad |= {name: known[name].bad for name in files if name not in bad and known[name].bad}
        good = {name: known[name] for name in files if name not in bad}
        return Seen({name: entry.sha256 for name, entry in good.items()}, bad, _stacked(good), len(fresh))

    def _look(self, folder: Path, fresh: Sequence[tuple[str, Facts, str]], watch: Watch) -> Iterator[tuple[str, Entry]]:
        if not fresh:
            return
        with watch.bar("images", len(fresh)):
            for start in range(0, len(fresh), AT_ONCE):
                part, pixels = [], []
                for name, facts, content in fresh[start : start + AT_ONCE]:
                    try:
                        pixels.append(torch.from_numpy(pixels_of(read_image(folder / name), self.pixels)))
                        part.append((name, facts, content))
                    except DataError as error:
                        yield name, Entry(facts, content, None, _cause(error, folder / name))
                if part:
                    with torch.inference_mode():
                        vectors = self.see(torch.stack(pixels).to(self.device)).float().cpu().clone()
                    for (name, facts, content), vector in zip(part, vectors, strict=True):
                        yield name, Entry(facts, content, vector)
                watch.reach(min(start + AT_ONCE, len(fresh)), "looked at")


def check_images(folder: Path, files: Sequence[str], watch: Watch) -> Checked:
    """Which files can be used, without looking at them; every one is decoded."""
    found = Checked({}, {})
    with watch.bar("images", len(files)):
        for i, name in enumerate(files, start=1):
            try:
                _facts(folder, name)
                content = _content(folder / name)
                read_image(folder / name)
                found.contents[name] = content
            except DataError as error:
                found.bad[name] = _cause(error, folder / name)
            watch.reach(i, "checked")
    return found


def _facts(folder: Path, name: str) -> Facts:
    """What identifies a file in the folder as unchanged, without reading it."""
    if os.path.isabs(name) or name.split(os.sep)[0] == "..":
        raise DataError(f"{folder / name}: not in the folder of the images.", "DATA_PATH")
    found = check_image(folder / name)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _content(path: Path) -> str:
    try:
        return _sha256(path.read_bytes())
    except OSError as error:  # somebody has just taken it away
        raise DataError(f"{path}: cannot be read ({error.strerror}).", "DATA_PATH") from None


def _still_there(folder: Path, entries: dict[str, Entry]) -> dict[str, Entry]:
    return {name: entry for name, entry in entries.items() if os.path.exists(folder / name)}


def _cause(error: DataError, path: Path) -> str:
    """What is wrong, without the path and the full stop."""
    return str(error).removeprefix(f"{path}: ").removesuffix(".")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(file: Path) -> dict[str, Entry]:
    """What is kept, by name; nothing if it is not there or damaged: it is made again."""
    try:
        with safe_open(file, "pt") as kept:
            entries, vectors = json.loads(kept.metadata()["entries"]), iter(kept.get_tensor("vectors"))
        return {
            name: Entry(tuple(facts), content, None if bad else next(vectors), bad)
            for name, (facts, content, bad) in entries.items()
        }
    except (FileNotFoundError, SafetensorError, KeyError, ValueError, TypeError, StopIteration):
        return {}


def _write(file: Path, known: dict[str, Entry]) -> None:
    entries = {name: (entry.facts, entry.sha256, entry.bad) for name, entry in known.items()}
    write_file(file, save({"vectors": _stacked(known)}, {"entries": json.dumps(entries)}))


def _stacked(entries: dict[str, Entry]) -> Tensor:
    vectors = [entry.vector for entry in entries.values() if entry.vector is not None]
    return torch.stack(vectors) if vectors else torch.empty(0, 0)
