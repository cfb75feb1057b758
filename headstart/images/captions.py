"""Images and their captions: read from a table, and split by image.

    pairs.csv, .tsv, .jsonl, .parquet   columns file and caption, and group if some images belong together
    captions.txt                        the same, with commas
    a folder                            with pairs.csv and images/ in it

All captions of an image, all its duplicates, and all images of a group, stand on the same side of a split.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from headstart.data import CaptionsConfig
from headstart.errors import DataError
from headstart.quantities import counted
from headstart.text.digests import digest
from headstart.text.files import PLAIN, Reading, check_file
from headstart.text.read import squeezed
from headstart.text.split import hash_split
from headstart.text.tables import Wanted, column_names, is_table, read_columns

FILE_COLUMNS = ("file", "image", "filename", "file_name", "path")
CAPTION_COLUMNS = ("caption", "text", "sentence", "title", "description")

Captions = dict[str, list[str]]  # of each file, in the order of the table


@dataclass(frozen=True)
class Captioned:
    """A table as it was read."""

    captions: Captions
    groups: Mapping[str, str]  # what each file belongs to; itself, where nothing else is said
    folder: Path  # of the files
    blank: int = 0  # rows without a file or a caption, left out
    reading: Reading = PLAIN


class CaptionFacts(TypedDict):
    """What data.json holds of captions; the inner keys are the names of the parts."""

    images: dict[str, int]
    captions: dict[str, int]
    split_sha256: str


@dataclass(frozen=True)
class CaptionParts:
    train: Captions
    valid: Captions
    test: Captions

    def parts(self) -> dict[str, Captions]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def note(self) -> str:
        """What to report before training."""
        images, captions = self.facts()["images"], self.facts()["captions"]
        return (
            f"{images['train']:,} training, {images['valid']:,} validation, {images['test']:,} test images with "
            f"{captions['train']:,}, {captions['valid']:,} and {captions['test']:,} captions."
        )

    def facts(self) -> CaptionFacts:
        """Sizes, for data.json."""
        parts = self.parts()
        lines = (f"{n}\t{file}\t{text}" for n, part in parts.items() for file, texts in part.items() for text in texts)
        return {
            "images": {name: len(part) for name, part in parts.items()},
            "captions": {name: sum(map(len, part.values())) for name, part in parts.items()},
            "split_sha256": digest(*lines),
        }


def blank_notes(blank: int) -> list[str]:
    """What to report of rows that were left out."""
    return [f"left out {counted(blank, 'row')} without a file or a caption."] if blank else []


def table_of(pairs: str | Path) -> Path:
    """The table that a path stands for: itself, or pairs.csv of a folder."""
    if not os.path.isdir(pairs):
        check_file(Path(pairs))
        return Path(pairs)
    table = Path(pairs) / "pairs.csv"
    if not table.is_file():
        raise DataError(f"{pairs}: this folder needs a pairs.csv, with the columns file and caption.", "DATA_PATH")
    return table


def read_captions(cfg: CaptionsConfig) -> Captioned:
    """Every image that the table names, with its captions."""
    path, reading = table_of(cfg.pairs), Reading(cfg)
    if not is_table(path) and path.suffix.lower() != ".txt":  # captions.txt, as Flickr8k has it
        raise DataError(
            f"{path}: captions are read from a .csv, .tsv, .jsonl or .parquet file with the columns file and caption.",
            "DATA_FORMAT",
        )
    columns: list[Wanted] = [
        (cfg.file_column, FILE_COLUMNS, "--file-column"),
        (cfg.caption_column, CAPTION_COLUMNS, "--caption-column"),
    ]
    group = cfg.group_column or ("group" if "group" in column_names(path, reading) else None)
    if group:
        columns.append((group, (), "--group-column"))
    captions: Captions = {}
    groups: dict[str, str] = {}
    blank, folder = 0, _folder(cfg, path)
    for file, text, *rest in read_columns(path, columns, reading):
        name, caption = _inside(folder, file.strip()), squeezed(text)
        if not name or not caption:
            blank += 1
            continue
        captions.setdefault(name, [])
        if caption not in captions[name]:
            captions[name].append(caption)
        belongs = rest[0].strip() if rest else ""
        if belongs and groups.setdefault(name, belongs) != belongs:
            raise DataError(f"{path}: {name} stands in two groups, '{groups[name]}' and '{belongs}'.", "DATA_FORMAT")
    if not captions:
        raise DataError(f"{path}: no row with a file and a caption.", "DATA_EMPTY")
    return Captioned(captions, {name: groups.get(name, name) for name in captions}, folder, blank, reading)


def split_captions(found: Captioned, contents: Mapping[str, str], cfg: CaptionsConfig) -> CaptionParts:
    """The images that can be used, split by image; `contents` are theirs, as hashes."""
    files = [file for file in found.captions if file in contents]
    groups = _with_copies({file: found.groups[file] for file in files}, contents)
    test: list[str] = []
    if cfg.test_fraction:
        files, test = _by_group(files, groups, cfg.test_fraction, cfg.split_seed)
    train, valid = _by_group(files, groups, cfg.valid_fraction, cfg.split_seed + 1)
    if len(train) < 2 or len(valid) < 2 or (cfg.test_fraction and len(test) < 2):
        largest, size = Counter(groups.values()).most_common(1)[0]
        raise DataError(
            f"{cfg.pairs}: {counted(len(groups), 'image', 'is', 'are')} too few to learn from some and to hold some out: "
            f"{len(train)} would be learned from, {len(valid)} validated on, {len(test)} tested on, and each part needs "
            "two or more." + (f" Images of a group stay together, and '{largest}' has {size}." if size > 1 else ""),
            "DATA_SMALL",
        )
    return CaptionParts(*({file: found.captions[file] for file in part} for part in (train, valid, test)))


def _with_copies(groups: Mapping[str, str], contents: Mapping[str, str]) -> dict[str, str]:
    """Groups that have an image in common, by its content, become one: called by the first of their names.

    >>> _with_copies({"1.png": "b", "2.png": "a", "3.png": "c"}, {"1.png": "same", "2.png": "same", "3.png": "other"})
    {'1.png': 'a', '2.png': 'a', '3.png': 'c'}
    """
    joined: dict[str, str] = {}  # each group with one that it was joined to, whose name comes before its own

    def first(group: str) -> str:
        while group in joined:
            group = joined[group]
        return group

    owners: dict[str, str] = {}
    for file, group in groups.items():
        one, other = sorted((first(group), first(owners.setdefault(contents[file], group))))
        if one != other:
            joined[other] = one
    return {file: first(group) for file, group in groups.items()}


def _by_group(files: list[str], groups: Mapping[str, str], fraction: float, seed: int) -> tuple[list[str], list[str]]:
    return hash_split(files, [groups[file] for file in files], [""] * len(files), fraction, seed)


def _inside(folder: Path, file: str) -> str:
    """A file's path from the folder of the images, as far as it lies there."""
    if os.path.isabs(file) and Path(os.path.normpath(file)).is_relative_to(folder.absolute()):
        return os.path.relpath(file, folder)
    return os.path.normpath(file) if file else ""


def _folder(cfg: CaptionsConfig, table: Path) -> Path:
    if cfg.images:
        if not os.path.isdir(cfg.images):
            raise DataError(f"{cfg.images}: no such folder of images.", "DATA_PATH")
        inside = Path(cfg.images) / "images"  # a pack
        return inside if (Path(cfg.images) / "pairs.csv").exists() and inside.is_dir() else Path(cfg.images)
    beside = table.parent / "images"
    return beside if beside.is_dir() else table.parent
