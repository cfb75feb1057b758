"""BM25: how well texts match the words of a query. No torch.

For each word of the query: its inverse document frequency, ln(1 + (N - n + 0.5) / (n + 0.5)), times
f (k1 + 1) / (f + k1 (1 - b + b L / mean L)), where n of N texts hold the word, and a text of L words holds it f times
(Robertson and Zaragoza, 2009; the inverse document frequency is Lucene's, which is never negative).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

K1, B = 1.5, 0.75  # as rank_bm25 has them
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """
    >>> words_of("Don't panic, the tea's COLD")
    ['don', 't', 'panic', 'the', 'tea', 's', 'cold']
    """
    return _WORD.findall(text.casefold())


class BM25:
    """Texts, ready to be scored."""

    def __init__(self, texts: Sequence[str], k1: float = K1, b: float = B) -> None:
        self.counts = [Counter(words_of(text)) for text in texts]
        self.k1, self.b = k1, b

    def scores(self, query: str) -> NDArray[np.float64]:
        """The score of each text, (N,); a word that is twice in the query counts twice."""
        found = np.zeros(len(self.counts))
        for word in words_of(query):
            places, weights = self._weights.get(word, (np.empty(0, np.int64), np.empty(0)))
            found[places] += weights
        return found

    @cached_property
    def _weights(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """For each word, the texts that hold it and what it adds to their scores."""
        lengths = np.array([counts.total() for counts in self.counts], float)
        norms = self.k1 * (1 - self.b + self.b * lengths / max(lengths.mean(), 1e-9))
        holders: dict[str, list[tuple[int, int]]] = {}
        for i, counts in enumerate(self.counts):
            for word, count in counts.items():
                holders.setdefault(word, []).append((i, count))
        weights = {}
        for word, pairs in holders.items():
            places, counted = (np.array(side) for side in zip(*pairs, strict=True))
            rarity = np.log(1 + (len(self.counts) - len(places) + 0.5) / (len(places) + 0.5))
            weights[word] = places, rarity * counted * (self.k1 + 1) / (counted + norms[places])
        return weights
