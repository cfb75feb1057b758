"""The images that were found for a caption, side by side; and what each word of a caption did."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from headstart.show.picture import COLORS, brief
from headstart.show.table import table
from headstart.show.view import View
from headstart.text.visible import shown

COLUMNS = 5  # images beside each other
LABEL = 26  # characters of a line below an image


class FoundData(TypedDict):
    file: str
    score: float
    rank: int
    own_caption: str


class SheetData(TypedDict):
    caption: str
    images: int
    found: list[FoundData]


class WordData(TypedDict):
    word: str
    added: bool
    helps: float
    rank_without: int


class AskedData(TypedDict):
    caption: str
    rank: int
    score: float
    best: str
    words: list[WordData]
    found: NotRequired[list[FoundData]]  # the images of this caption, which the command line adds


class EditsData(TypedDict):
    target: str
    images: int
    captions: list[AskedData]


@dataclass(frozen=True)
class Found:
    """One image and how well it fits the caption."""

    file: str
    score: float  # cosine
    rank: int
    own_caption: str  # from pairs.csv, if there is one
    thumbnail: bytes  # a small PNG

    def data(self) -> FoundData:
        return {"file": self.file, "score": self.score, "rank": self.rank, "own_caption": self.own_caption}

    @property
    def source(self) -> str:
        """The thumbnail as an address that holds it."""
        return f"data:image/png;base64,{base64.b64encode(self.thumbnail).decode()}"


@dataclass(frozen=True, repr=False)
class ContactSheet(View):
    name = "contact_sheet"

    caption: str
    found: tuple[Found, ...]  # best first
    of: int  # images that were looked through
    target: str = ""  # a file that is marked

    def data(self) -> SheetData:
        return {"caption": self.caption, "images": self.of, "found": [each.data() for each in self.found]}

    @property
    def captioned(self) -> bool:
        return any(each.own_caption for each in self.found)

    def __str__(self) -> str:
        header = ["rank", "score", "file", *["caption"] * self.captioned]
        rows = [
            [
                f"{each.rank:,}",
                f"{each.score:.4f}",
                each.file + " (wanted)" * (each.file == self.target),
                each.own_caption,
            ]
            for each in self.found
        ]
        return f"{self.caption}\n{table(header, [row[: len(header)] for row in rows], right=(0, 1))}"

    @property
    def alt(self) -> str:
        best = ", ".join(f"{each.own_caption or each.file} {each.score:.2f}" for each in self.found)
        return f"The best of {self.of:,} images for '{self.caption}': {best}."

    @property
    def size(self) -> tuple[float, float]:
        return 7.2, 0.35 + (1.7 if self.captioned else 1.6) * -(-len(self.found) // COLUMNS)

    def draw(self, figure: Any) -> None:
        from PIL import Image

        figure.suptitle(brief(shown(self.caption), 90), x=0.01, ha="left", fontsize=9, fontweight="bold")
        rows = -(-len(self.found) // COLUMNS)
        grid = figure.subplots(rows, COLUMNS, squeeze=False)
        for axis in grid.flat:
            axis.set_axis_off()
        for axis, each in zip(grid.flat, self.found, strict=False):
            axis.imshow(Image.open(io.BytesIO(each.thumbnail), formats=("PNG",)))
            wanted = each.file == self.target
            lines = [f"{each.rank:,}. {each.score:.3f}{', wanted' * wanted}"]
            lines += [brief(shown(each.own_caption), LABEL)] * self.captioned
            lines += [_end(shown(each.file), LABEL)]
            mark = {"color": COLORS[1], "fontweight": "bold"} if wanted else {"fontweight": "normal"}
            axis.set_title("\n".join(lines), fontsize=6.5, loc="center", **mark)


def _end(name: str, most: int) -> str:
    """The end of a path, which tells more than its beginning.

    >>> _end("images/of/dogs/7.png", 13)
    '…f/dogs/7.png'
    """
    return name if len(name) <= most else "…" + name[1 - most :]


@dataclass(frozen=True)
class Word:
    """One word of a caption: the caption is asked again without it."""

    word: str
    added: bool  # whether the caption before had it not
    helps: float  # how much lower the score of the wanted image is without it
    rank_without: int


@dataclass(frozen=True)
class Asked:
    """A caption and where the wanted image came out."""

    caption: str
    rank: int
    score: float
    best: str  # the file that came first
    words: tuple[Word, ...]


@dataclass(frozen=True, repr=False)
class CaptionEdits(View):
    name = "caption_edits"

    target: str
    of: int  # images
    asked: tuple[Asked, ...]

    def data(self) -> EditsData:
        return {
            "target": self.target,
            "images": self.of,
            "captions": [
                {
                    "caption": a.caption,
                    "rank": a.rank,
                    "score": a.score,
                    "best": a.best,
                    "words": [
                        {"word": w.word, "added": w.added, "helps": w.helps, "rank_without": w.rank_without}
                        for w in a.words
                    ],
                }
                for a in self.asked
            ],
        }

    @property
    def summary(self) -> str:
        """How the edits moved the wanted image."""
        way = " → ".join(f"{a.rank:,}" for a in self.asked)
        return f"{self.target}: rank {way} of {self.of:,}"

    def rows(self, asked: Asked) -> list[list[str]]:
        return [[("+ " if w.added else "") + w.word, f"{w.helps:+.4f}", f"{w.rank_without:,}"] for w in asked.words]

    def __str__(self) -> str:
        parts = [self.summary]
        for a in self.asked:
            heading = f"{a.caption}\nrank {a.rank:,} of {self.of:,}, score {a.score:.4f}; first: {a.best}"
            header = ["left out", "score it gave", "rank without it"]
            parts.append(f"{heading}\n{table(header, self.rows(a), right=(1, 2))}")
        return "\n\n".join(parts)

    @property
    def alt(self) -> str:
        return self.summary

    @property
    def size(self) -> tuple[float, float]:
        return 7.2, 0.9 * len(self.asked) + 0.22 * max(len(a.words) for a in self.asked)

    def draw(self, figure: Any) -> None:
        figure.suptitle(shown(self.summary), x=0.01, ha="left", fontsize=9, fontweight="bold")
        axes: Sequence[Any] = figure.subplots(1, len(self.asked), squeeze=False)[0]
        most = max((abs(w.helps) for a in self.asked for w in a.words), default=0.0) or 1.0
        gave = "score that the word gave" + " (green: new)" * any(w.added for a in self.asked for w in a.words)
        for axis, a in zip(axes, self.asked, strict=True):
            places = range(len(a.words))
            colors = [COLORS[2] if w.added else COLORS[0] for w in a.words]
            axis.barh(places, [w.helps for w in a.words], color=colors, height=0.7)
            axis.set_yticks(places, [f"{brief(shown(w.word), 16)} (without: {w.rank_without})" for w in a.words])
            axis.set(xlim=(-1.1 * most, 1.1 * most), ylim=(len(a.words) - 0.5, -0.5), xlabel=gave)
            axis.set_title(f"{brief(shown(a.caption), 30)}: rank {a.rank:,}")
