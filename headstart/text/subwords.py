"""Words become tokens, and each word has the place of its first one. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.text.tokenizer import Tokenizer, TokenRows

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class WordRows:
    """Texts as tokens, and the first token of each of their words. N words of all texts together, in order.

    A text that is longer than the context becomes several rows, cut between two words: every word is read.
    """

    rows: TokenRows
    owner: Numbers  # (rows,), the text that each is part of
    row: Numbers  # (N,), where the first token of each word stands: the row,
    at: Numbers  # (N,), and the place in it
    starts: Numbers  # (texts + 1,), the number of each text's first word

    def words_of(self, text: int) -> slice:
        return slice(int(self.starts[text]), int(self.starts[text + 1]))

    def rows_of(self, text: int) -> range:
        return range(*np.searchsorted(self.owner, [text, text + 1]).tolist())


def word_rows(texts: Sequence[str], tokenizer: Tokenizer, causal: bool, context: int) -> WordRows:
    """Texts with one space between words, as a base reads them."""
    after = [] if causal else [tokenizer.end]
    size = context - 1 - len(after)
    rows: list[list[int]] = []
    owner: list[int] = []
    row, at, starts = [], [], [0]
    for text, (ids, ends) in enumerate(tokenizer.encode_with_ends(texts)):
        first = first_tokens(texts[text], ends)
        for begin, end, words in cut_between_words(first, len(ids), size):
            row += [len(rows)] * len(words)
            at += [1 + max(0, min(place - begin, size - 1)) for place in words]
            rows.append([tokenizer.start, *ids[begin : min(end, begin + size)], *after])
            owner.append(text)
        starts.append(len(row))
    numbers = (np.array(part, dtype=np.int64) for part in (owner, row, at, starts))
    return WordRows(TokenRows.of(rows), *numbers)


def first_tokens(text: str, ends: Sequence[int]) -> list[int]:
    """For each word of a text the token that its first character is in, or the next that there is.

    >>> first_tokens("playing on", [4, 7, 10])
    [0, 2]
    """
    begins = np.cumsum([0, *(len(word) + 1 for word in text.split(" ")[:-1])])
    return np.minimum(np.searchsorted(ends, begins, side="right"), max(0, len(ends) - 1)).tolist()


def cut_between_words(first: Sequence[int], tokens: int, size: int) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Stretches of at most `size` tokens, each with the first tokens of the words in it; a longer word has one to itself.

    >>> list(cut_between_words([0, 2, 3], 5, 3))
    [(0, 3, [0, 2]), (3, 5, [3])]
    """
    begin = done = 0
    for i, end in enumerate([*first[1:], tokens], start=1):
        if end - begin > size and i - 1 > done:
            yield begin, first[i - 1], first[done : i - 1]
            begin, done = first[i - 1], i - 1
    yield begin, tokens, first[done:]
