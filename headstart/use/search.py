"""Find images by captions, and see what each word of a caption did."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from torch import Tensor

from headstart.bases.matcher import SavedMatcher, open_matcher
from headstart.config import MatchConfig
from headstart.data import CaptionsConfig
from headstart.errors import DataError, did_you_mean
from headstart.hub.packs import located
from headstart.images.captions import Captions, read_captions
from headstart.images.read import ended, find_images, read_image, refuse_bad
from headstart.runs.kinds import must_be
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.show.contact_sheet import Asked, CaptionEdits, ContactSheet, Found, Word

THUMBNAIL = 160  # pixels of the longer side


def check_captions(captions: Sequence[str]) -> None:
    if any(not caption.strip() for caption in captions):
        raise DataError("A caption to search for is blank.", "DATA_BLANK")


@dataclass(frozen=True)
class ImageFolder:
    """What can be known of a folder of images before a model looks at it."""

    path: Path
    files: list[str]  # by their path from the folder
    captions: Captions  # of those that pairs.csv names, if it is there

    @classmethod
    def open(cls, folder: str | Path, watch: Watch | None = None) -> ImageFolder:
        path = Path(located(str(folder)))
        files = find_images(path)
        try:
            return cls(path, files, _captions_of(path))
        except DataError as error:  # an image can be found without it
            (watch or Watch()).note(f"Note: captions of the images are not shown. {error}")
            return cls(path, files, {})

    def file(self, target: str) -> str:
        """The file that is meant: by its path; or by its name or a caption, if only one image has it."""
        named = Path(target).name
        by_path = [file for file in self.files if target in (file, str(self.path / file))]
        by_name = [file for file in self.files if Path(file).name == named]
        by_caption = [
            file for file in self.files if target.casefold() in map(str.casefold, self.captions.get(file, ()))
        ]
        found = by_path or by_name or by_caption
        if len(found) == 1:
            return found[0]
        if found:
            what = "this name" if by_name else "this caption"
            raise DataError(
                f"{target}: {len(found)} images have {what} ({', '.join(found[:3])}{', ...' * (len(found) > 3)}). Give "
                f"its path from {self.path}.",
                "DATA_PATH",
            )
        near = did_you_mean(target, [*self.files, *(text for texts in self.captions.values() for text in texts)])
        raise DataError(f"{target}: no such image in {self.path}.{near}", "DATA_PATH")


@dataclass(frozen=True)
class ImageSearch:
    """The images of a folder in the space that they share with captions."""

    matcher: SavedMatcher
    folder: ImageFolder
    contents: dict[str, str]  # SHA-256 of each file that can be used
    images: Tensor  # (M, E)
    bad: dict[str, str]  # files that cannot be used, and why
    new: int  # files that had to be looked at

    @classmethod
    def open(cls, folder: str | Path, model: str, strict: bool = False, watch: Watch | None = None) -> ImageSearch:
        return cls.within(ImageFolder.open(folder, watch), model, strict, watch)

    @classmethod
    def load(cls, run: str | Path) -> ImageSearch:
        """The images that the matcher of a finished run was trained with, all of its splits."""
        data = must_be(Run.open(run).config, MatchConfig, run).data
        found = read_captions(data)
        return cls.within(ImageFolder(found.folder, list(found.captions), found.captions), str(run))

    @classmethod
    def within(cls, folder: ImageFolder, model: str, strict: bool = False, watch: Watch | None = None) -> ImageSearch:
        matcher = open_matcher(model)
        seen = matcher.index(folder.path, folder.files, watch)
        refuse_bad(seen.bad, strict, len(seen.files), str(folder.path))
        return cls(matcher, folder, seen.contents, matcher.embed_seen(seen.vectors), seen.bad, seen.new)

    @cached_property
    def files(self) -> list[str]:
        """Those that can be used."""
        return list(self.contents)

    def scores(self, captions: Sequence[str]) -> Tensor:
        """The cosine of every caption with every image, (N, M)."""
        check_captions(captions)
        return self._scores(captions)

    def find(
        self, captions: Sequence[str], top: int = 10, thumbnails: bool = False, target: str = ""
    ) -> list[ContactSheet]:
        """The `top` best images for each caption, and the wanted one; with thumbnails if they are to be drawn."""
        own = self.place(target) if target else None
        return [
            ContactSheet(
                caption,
                tuple(
                    self._found(i, float(row[i]), rank, thumbnails)
                    for rank, i in enumerate(_order(row), start=1)
                    if rank <= top or i == own
                ),
                len(self.files),
                "" if own is None else self.files[own],
            )
            for caption, row in zip(captions, self.scores(captions), strict=True)
        ]

    def edits(self, target: str, captions: Sequence[str]) -> CaptionEdits:
        """Where the wanted image comes out for each caption, and what each word of it did."""
        own = self.place(target)
        asked = []
        for caption, row, before in zip(captions, self.scores(captions), [None, *captions], strict=False):
            words = caption.split()
            without = [" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))]
            added = _added(before.split() if before is not None else words, words)
            effects = tuple(
                Word(word, new, float(row[own] - other[own]), _rank(other, own))
                for word, new, other in zip(words, added, self._scores(without), strict=True)
            )
            asked.append(Asked(caption, _rank(row, own), float(row[own]), self.files[_order(row)[0]], effects))
        return CaptionEdits(self.files[own], len(self.files), tuple(asked))

    def place(self, target: str) -> int:
        """The number of the image that is meant."""
        file = self.folder.file(target)
        if file in self.bad:
            raise DataError(ended(f"{file} cannot be used: {self.bad[file]}"), "DATA_IMAGE")
        return self.files.index(file)

    def _scores(self, captions: Sequence[str]) -> Tensor:
        return self.matcher.embed_texts(captions) @ self.images.T

    def _found(self, i: int, score: float, rank: int, thumbnail: bool) -> Found:
        caption = self.folder.captions.get(self.files[i], [""])[0]
        return Found(self.files[i], score, rank, caption, self._thumbnail(i) if thumbnail else b"")

    def _thumbnail(self, i: int) -> bytes:
        small, file = read_image(self.folder.path / self.files[i]), io.BytesIO()
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        small.save(file, "PNG")
        return file.getvalue()


def _captions_of(folder: Path) -> Captions:
    """What pairs.csv, in the folder or beside one that is called images, says of the files in the folder."""
    folder = Path(os.path.abspath(folder))
    places = [folder, *([folder.parent] if folder.name == "images" else [])]
    tables = [place / "pairs.csv" for place in places if (place / "pairs.csv").is_file()]
    if not tables:
        return {}
    found = read_captions(CaptionsConfig(pairs=str(tables[0])))
    return {os.path.relpath(found.folder / file, folder): texts for file, texts in found.captions.items()}


def _order(scores: Tensor) -> list[int]:
    """The numbers of the images, best first; of equal ones, the first comes first."""
    return scores.argsort(descending=True, stable=True).tolist()


def _rank(scores: Tensor, own: int) -> int:
    return 1 + _order(scores).index(own)


def _added(before: Sequence[str], words: Sequence[str]) -> list[bool]:
    """Which words an edit brought in.

    >>> _added("a dog".split(), "a brown dog".split())
    [False, True, False]
    """
    kept = {
        i
        for block in SequenceMatcher(None, before, words, autojunk=False).get_matching_blocks()
        for i in range(block.b, block.b + block.size)
    }
    return [i not in kept for i in range(len(words))]
