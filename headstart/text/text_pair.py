"""Two texts that are classified together: a premise and a hypothesis, two questions, two sentences.

A TextPair is a text, both texts with a mark between them, so that whatever reads, compares, hashes or shows texts takes pairs too. What
has to know the two apart asks for `first` and `second`, or for the `parts` of any text (inputs.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.errors import DataError

MARK = " ||| "  # between the two, where a pair is shown
# The usual names of two columns that make a pair.
PAIR_COLUMNS = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"), ("text1", "text2"),
    ("sentence_a", "sentence_b"), ("text_a", "text_b"),
)  # fmt: skip


class TextPair(str):
    first: str
    second: str

    def __new__(cls, first: str, second: str) -> TextPair:
        made = super().__new__(cls, f"{first}{MARK}{second}")
        made.first, made.second = first, second
        return made


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
