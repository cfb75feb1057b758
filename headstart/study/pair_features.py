"""What two texts of a pair have in common, as features of a linear model. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from headstart.bases.regression import Standard
from headstart.text.inputs import singles
from headstart.text.split import Labelled
from headstart.text.text_pair import TextPair

_WORD = re.compile(r"\w+")


def pair_vectors(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Embeddings of the texts of pairs, both (pairs, D), as features, (pairs, 4 D): each, their difference, their product."""
    return np.hstack([first, second, abs(first - second), first * second])


def pair_tfidf_rows(data: Labelled) -> dict[str, csr_matrix]:
    """The TF-IDF vectors of both texts of each pair, their product, their difference, and how much they share."""
    vectorizer = pair_vectorizer(data)
    parts = {name: [e.text for e in rows] for name, rows in data.parts().items() if rows}
    standard = Standard.of(shared_words(parts["train"], vectorizer))

    def joined(texts: Sequence[str]) -> csr_matrix:
        first, second = (vectorizer.transform(side) for side in zip(*map(sides_of, texts), strict=True))
        shared = csr_matrix(standard.unit(shared_words(texts, vectorizer)))
        return hstack([first, second, first.multiply(second), abs(first - second), shared], "csr") / 2

    return {name: joined(texts) for name, texts in parts.items()}


def pair_vectorizer(data: Labelled) -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(singles([e.text for e in data.train]))


def shared_words(texts: Sequence[str], vectorizer: TfidfVectorizer) -> NDArray[np.float64]:
    """What two texts share, (pairs, 6): words of both, of either in the other, cosine, and how their lengths differ."""
    sides = list(map(sides_of, texts))
    first, second = (vectorizer.transform(side) for side in zip(*sides, strict=True))
    cosine = np.asarray(first.multiply(second).sum(1)).ravel()
    found = []
    for (a, b), close in zip(sides, cosine, strict=True):
        ours, theirs = (set(_WORD.findall(text.casefold())) for text in (a, b))
        both = len(ours & theirs)
        found.append([
            both / max(1, len(ours | theirs)), both / max(1, len(ours)), both / max(1, len(theirs)), close,
            np.log1p(len(ours)) - np.log1p(len(theirs)), abs(np.log1p(len(ours)) - np.log1p(len(theirs))),
        ])  # fmt: skip
    return np.array(found)


def sides_of(text: str) -> tuple[str, str]:
    assert isinstance(text, TextPair), "rows of this arm are pairs"
    return text.first, text.second
