"""TF-IDF vectors of texts: words and pairs of words, beside the character n-grams of words. No torch.

Character n-grams see what words hide where texts are few: inflections, misspellings, and scripts without spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headstart.errors import DataError

if TYPE_CHECKING:
    from sklearn.pipeline import FeatureUnion

FEW = 50  # texts: with fewer, n-grams of a single text are kept


def fitted_tfidf(texts: Sequence[str]) -> FeatureUnion:
    """A vectorizer fitted to the texts; the row of a text whose words and characters it knows has length 1.

    >>> vectorizer = fitted_tfidf(["a warm film", "a cold film"])
    >>> float(vectorizer.transform(["warm"]).power(2).sum().round(6))
    1.0
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    shared = 2 if len(texts) >= FEW else 1
    parts = {
        "words": TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        "characters": TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=shared),
    }
    found = []
    for name, part in parts.items():
        with suppress(ValueError):  # nothing to count: texts of single letters have no words, to scikit-learn
            found.append((name, part.fit(texts)))
    if not found:
        raise DataError("TF-IDF finds no word and no characters that two texts share.", "DATA_EMPTY")
    return FeatureUnion(found, transformer_weights={name: len(found) ** -0.5 for name, _ in found})
