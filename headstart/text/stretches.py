"""Texts that need not be in memory: one that is read a stretch at a time, and many that are read again at every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headstart.text.vocabulary import pieces, stretched_pieces


@dataclass(frozen=True)
class Stretches:
    """A text of which `read` gives one stretch after the other, from its beginning."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()

    def head(self, characters: int) -> Stretches:
        """The first so many characters of it."""
        return Stretches(lambda: _head(self.read(), characters))


Text: TypeAlias = "str | Stretches"


@dataclass(frozen=True)
class StreamedTexts:
    """Texts that are read from their files at every pass."""

    read: Callable[[], Iterator[Text]]
    characters: int
    identity: str  # the same for the same texts: files, settings and what is held out

    def __iter__(self) -> Iterator[Text]:
        return self.read()

    def tail(self, size: int) -> bytes:
        """The last bytes of all texts, joined by line ends."""
        held, first = b"", True
        for text in self:
            held += b"" if first else b"\n"
            first = False
            for stretch in stretches_of(text):
                held += stretch.encode()
                held = held[-size:] if len(held) > 2 * size else held
        return held[-size:]


Texts: TypeAlias = "Sequence[str] | StreamedTexts"


def stretches_of(text: Text) -> Iterable[str]:
    return (text,) if isinstance(text, str) else text


def pieces_of(text: Text, anywhere: bool = False) -> Iterable[str]:
    """The pieces of a text, in which it is tokenized."""
    return pieces(text, anywhere) if isinstance(text, str) else stretched_pieces(text, anywhere)


def characters_of(texts: Texts) -> int:
    return texts.characters if isinstance(texts, StreamedTexts) else sum(map(len, texts))


def _head(stretches: Iterator[str], characters: int) -> Iterator[str]:
    for stretch in stretches:
        if characters <= 0:
            return
        yield stretch[:characters]
        characters -= len(stretch)
