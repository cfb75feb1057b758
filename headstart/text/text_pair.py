"""Two texts that are classified together: a premise and a hypothesis, two questions, two sentences.

A TextPair is a text, both texts with a mark between them, so that whatever reads, compares, hashes or shows texts takes pairs too. What
has to know the two apart asks for `first` and `second`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from headstart.errors import DataError
from headstart.text.files import is_blank
from headstart.text.separated import Header
from headstart.text.tables import Wanted, find_column

MARK = " ||| "  # between the two, where a pair is shown
# The usual names of two columns that make a pair.
PAIR_COLUMNS = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"), ("text1", "text2"),
    ("sentence_a", "sentence_b"), ("text_a", "text_b"),
)  # fmt: skip
FLAG = "--text-column"


class TextPair(str):
    first: str
    second: str

    def __new__(cls, first: str, second: str) -> TextPair:
        made = super().__new__(cls, f"{first}{MARK}{second}")
        made.first, made.second = first, second
        return made


def is_paired(texts: Sequence[str]) -> TypeGuard[Sequence[TextPair]]:
    """Whether texts are pairs; they all are, or none is.

    >>> is_paired([TextPair("It rains.", "It is wet.")]), is_paired(["It rains."]), is_paired([])
    (True, False, False)
    """
    return bool(texts) and isinstance(texts[0], TextPair)


def lacks_text(text: str) -> bool:
    """Whether a text, or one of a pair, is blank."""
    return is_blank(text.first) or is_blank(text.second) if isinstance(text, TextPair) else is_blank(text)


def together(text: str) -> str:
    """What rows share that must stay on one side of a split: the text; of pairs, which often share one, the first."""
    return text.first if isinstance(text, TextPair) else text


def singles(texts: Sequence[str]) -> list[str]:
    """Texts with those of pairs one by one."""
    return [text for pair in texts for text in (pair.first, pair.second)] if is_paired(texts) else list(texts)


def paired(texts: Sequence[str]) -> list[TextPair]:
    """Texts two by two.

    >>> [pair.second for pair in paired(["It rains.", "It is wet.", "It rains.", "It is dry."])]
    ['It is wet.', 'It is dry.']
    """
    if len(texts) % 2:
        raise DataError(
            "This model reads pairs of texts, and was given an odd number of texts. Give both texts of each pair.",
            "DATA_COLUMNS",
        )
    return [TextPair(first, second) for first, second in zip(texts[::2], texts[1::2], strict=True)]


def pair_in(text: str) -> TextPair:
    """The pair that a text with the mark between its two halves stands for.

    >>> pair_in("It rains. ||| It is wet.").second
    'It is wet.'
    """
    if isinstance(text, TextPair):
        return text
    parts = [part.strip() for part in text.split(MARK.strip())]
    if len(parts) != 2 or not all(parts):
        raise DataError(
            f"This model reads pairs of texts. Write both with '{MARK.strip()}' between them.", "DATA_COLUMNS"
        )
    return TextPair(*parts)


def wanted_texts(header: Header, column: str | None, usual: Sequence[str], pairs: bool = True) -> list[Wanted]:
    """The one or two columns of the text: as named, or those of a pair, where no column has the name of a text itself."""
    names = header.names
    if column is not None and column not in names and column.count(",") == 1:
        return [(part.strip(), (), FLAG) for part in column.split(",")]
    one: Wanted = (column, usual, FLAG)
    if column is not None or not pairs or find_column(header, (None, usual[:1], FLAG)):
        return [one]
    for first, second in PAIR_COLUMNS:
        both: list[Wanted] = [(None, (first,), FLAG), (None, (second,), FLAG)]
        if all(find_column(header, wanted) for wanted in both):
            return both
    return [one]


def text_of(cells: Sequence[str]) -> str:
    """The text that one or two cells hold."""
    return TextPair(cells[0], cells[1]) if len(cells) == 2 else cells[0]


def must_suit(texts: Sequence[str], pairs: bool) -> None:
    """Refuse pairs for a model of single texts, and the other way round."""
    if any(isinstance(text, TextPair) is not pairs for text in texts):
        raise DataError(
            f"This model reads pairs of texts, and was given single texts. Name two columns: {FLAG} premise,hypothesis."
            if pairs
            else f"This model reads single texts, and was given pairs. Name the column of the text: {FLAG} NAME.",
            "DATA_COLUMNS",
        )
