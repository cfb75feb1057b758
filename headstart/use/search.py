"""Find pictures by what is said of them, and see what each word of a caption did."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from torch import Tensor

from headstart.config import MatchConfig
from headstart.errors import DataError
from headstart.images.read import find_images, read_image, refuse_bad
from headstart.schema import parse
from headstart.show.contact_sheet import Asked, CaptionEdits, ContactSheet, Found, Word
from headstart.text.packs import get_pack, located, pack_folder
from headstart.train.match import match
from headstart.train.matcher import SavedMatcher, open_matcher
from headstart.train.run import Run, runs_in
from headstart.train.watch import Watch

THUMBNAIL = 160  # pixels of the longer side
EMOJI_SIZE = 96  # pixels that the tower reads of an emoji, which has 72: more would take longer and show no more


def usual_model(watch: Watch) -> str:
    """The newest run of `match train` in runs/; where there is none, one trained on emoji, once."""
    found = [run for run in runs_in("runs") if run.finished] if os.path.isdir("runs") else []
    ours = [run.path for run in found if run.read_json("env.json").get("asked", {}).get("job") == "match"]
    if ours:
        newest = max(ours, key=lambda path: (path / "result.json").stat().st_mtime_ns)
        watch.note(f"Model: {newest}")
        return str(newest)
    run = Run(pack_folder("emoji").parent.parent / "runs" / pack_folder("emoji").name)
    if not run.finished:
        watch.note(
            "There is no run of match train in runs/. One is trained on emoji and their names, once (about a minute); "
            "it knows little of photos. Give another with --model."
        )
        settings = {"data": {"pairs": str(get_pack("emoji"))}, "image_size": EMOJI_SIZE}
        match(parse(MatchConfig, settings), run.path, run.there, watch)
    watch.note(f"Model: trained on emoji, {run.path}")
    return str(run.path)


@dataclass(frozen=True)
class ImageSearch:
    """The pictures of a folder in the space that they share with captions."""

    matcher: SavedMatcher
    folder: Path
    files: list[str]
    images: Tensor  # (M, E)
    bad: dict[str, str]  # files that cannot be used, and why
    new: int  # files that had to be looked at

    @classmethod
    def open(cls, folder: str | Path, model: str, strict: bool = False, watch: Watch | None = None) -> ImageSearch:
        place = Path(located(str(folder)))
        files = find_images(place)
        matcher = open_matcher(model)
        seen = matcher.index(place, files, watch)
        refuse_bad(seen.bad, strict, len(seen.files), str(folder))
        return cls(matcher, place, seen.files, matcher.embed_seen(seen.vectors), seen.bad, seen.new)

    def scores(self, captions: Sequence[str]) -> Tensor:
        """The cosine of every caption with every picture, (N, M)."""
        if any(not caption.strip() for caption in captions):
            raise DataError("A caption to search for is blank.", "DATA_BLANK")
        return self._scores(captions)

    def find(
        self, captions: Sequence[str], top: int = 10, thumbnails: bool = False, target: str = ""
    ) -> list[ContactSheet]:
        """The `top` best pictures for each caption; with small pictures of them if they are to be drawn."""
        return [
            ContactSheet(
                caption,
                tuple(
                    Found(self.files[i], float(row[i]), rank, self._thumbnail(i) if thumbnails else b"")
                    for rank, i in enumerate(row.argsort(descending=True, stable=True)[:top].tolist(), start=1)
                ),
                len(self.files),
                target,
            )
            for caption, row in zip(captions, self.scores(captions), strict=True)
        ]

    def edits(self, target: str, captions: Sequence[str]) -> CaptionEdits:
        """Where the wanted picture comes out for each caption, and what each word of it did."""
        own = self.place(target)
        asked = []
        for caption, row, before in zip(captions, self.scores(captions), [None, *captions], strict=False):
            words = caption.split()
            without = [" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))]
            added = _added(before.split() if before is not None else words, words)
            told = tuple(
                Word(word, new, float(row[own] - other[own]), _rank(other, own))
                for word, new, other in zip(words, added, self._scores(without), strict=True)
            )
            asked.append(Asked(caption, _rank(row, own), float(row[own]), self.files[int(row.argmax())], told))
        return CaptionEdits(self.files[own], len(self.files), tuple(asked))

    def place(self, target: str) -> int:
        """The number of a file: by its path from the folder, or its name if there is only one of that name."""
        if target in self.bad:
            raise DataError(f"{target} cannot be used: {self.bad[target]}.", "DATA_IMAGE")
        same = [i for i, file in enumerate(self.files) if target in (file, str(self.folder / file))]
        same = same or [i for i, file in enumerate(self.files) if Path(file).name == Path(target).name]
        if len(same) == 1:
            return same[0]
        if same:
            raise DataError(
                f"{target}: {len(same)} images have this name. Give its path from {self.folder}.", "DATA_PATH"
            )
        near = get_close_matches(target, self.files, n=1)
        raise DataError(
            f"{target}: no such image in {self.folder}.{f' Did you mean {near[0]!r}?' if near else ''}", "DATA_PATH"
        )

    def _scores(self, captions: Sequence[str]) -> Tensor:
        return self.matcher.embed_texts(captions) @ self.images.T

    def _thumbnail(self, i: int) -> bytes:
        small, file = read_image(self.folder / self.files[i]), io.BytesIO()
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        small.save(file, "PNG")
        return file.getvalue()


def _rank(scores: Tensor, own: int) -> int:
    return 1 + int((scores > scores[own]).sum())


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
