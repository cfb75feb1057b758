"""The texts that are nearest to a query, by embeddings and by words, in two tables that name each other's ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headstart.show.table import table

MOST_SHOWN = 100  # characters of a text in a table


@dataclass(frozen=True)
class NearText:
    rank: int
    score: float
    other_rank: int | None  # by the other way; None where it gives the text no score
    row: int  # of the file, from 1; of duplicates, the first
    copies: int  # texts that are equal but for case and white space, this one among them
    text: str


@dataclass(frozen=True)
class NearestTexts:
    """What was found for one query among `texts` different texts."""

    query: str
    model: str
    texts: int
    by_embedding: tuple[NearText, ...]  # the score is a cosine
    by_words: tuple[NearText, ...]  # the score is BM25

    def data(self) -> Mapping[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        meaning = _table("cosine", "BM25 rank", self.by_embedding)
        words = _table("BM25", "cosine rank", self.by_words) if self.by_words else "No text has a word of the query."
        return f"{self.query}\n\nby embeddings ({self.model})\n{meaning}\n\nby words (BM25)\n{words}"


def _table(score: str, other: str, found: tuple[NearText, ...]) -> str:
    rows = [
        [
            str(each.rank),
            f"{each.score:.4f}",
            "" if each.other_rank is None else str(each.other_rank),
            f"{each.row}{f' (x {each.copies})' if each.copies > 1 else ''}",
            shortened(each.text),
        ]
        for each in found
    ]
    return table(["rank", score, other, "row", "text"], rows, right=(0, 1, 2))


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """A text in one line, cut where it is long.

    >>> shortened("one\\n two three", 9)
    'one two ...'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most].rpartition(' ')[0] or line[:most]} ..."
