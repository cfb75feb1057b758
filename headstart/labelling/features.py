"""One vector for each text, computed once when a labelling session starts; every fit after it takes milliseconds.

    tfidf   TF-IDF of words and pairs of words, reduced by a truncated SVD (latent semantic analysis)
    BASE    pooled states of a frozen base, standardized; and where it has a language head, its zero-shot probabilities

Shapes: N rows, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.runs.watch import Watch

TFIDF = "tfidf"
AUTO = "auto"
PREFERRED = "minilm"  # what auto is, if its pack is in the cache
WIDTH = 256  # of the reduced TF-IDF vectors
MOST_WORDS = 30_000
AT_ONCE = 256  # texts between two reports of progress

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Features:
    vectors: Floats  # (N, D), of mean squared length 1
    words: Floats  # (N, C), zero-shot probabilities; (N, 0) where the base has no language head


def chosen_base(base: str) -> str:
    """What `auto` stands for."""
    from headstart.hub.packs import pack_folder

    if base != AUTO:
        if base != TFIDF:
            from headstart.bases.at_hand import must_have_weights

            must_have_weights([base])
        return base
    return PREFERRED if pack_folder(PREFERRED).exists() else TFIDF


def features_of(texts: Sequence[str], labels: Sequence[str], base: str, watch: Watch) -> Features:
    """The vectors of all texts, and the zero-shot probabilities where the base has a language head."""
    if base == TFIDF:
        return Features(tfidf_vectors(texts), np.zeros((len(texts), 0), np.float32))
    return _base_features(texts, labels, base, watch)


def tfidf_vectors(texts: Sequence[str]) -> Floats:
    """(N, D)"""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    few = len(texts) < 50
    try:
        rows = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_WORDS, min_df=1 if few else 2).fit_transform(texts)  # fmt: skip
    except ValueError:
        raise DataError("The texts have hardly a word in common, so that TF-IDF has no use for them.", "DATA_EMPTY") from None  # fmt: skip
    width = min(WIDTH, min(rows.shape) - 1)
    if width < 2:
        raise DataError("The texts have hardly a word in common, so that TF-IDF has no use for them.", "DATA_EMPTY")
    return scaled(TruncatedSVD(width, random_state=0).fit_transform(rows))


def scaled(vectors: NDArray[np.floating]) -> Floats:
    """The same, of mean squared length 1."""
    return np.asarray(vectors / np.sqrt((vectors**2).sum(1).mean()), np.float32)


def _base_features(texts: Sequence[str], labels: Sequence[str], base: str, watch: Watch) -> Features:
    from headstart.bases.linear_probe import must_be_finite
    from headstart.bases.regression import Standard
    from headstart.bases.routes import ROUTES, BaseFeatures
    from headstart.bases.selection import Prompting, opened

    candidate = opened(base, labels, Prompting(), ROUTES, [], must_open=True)
    assert candidate is not None
    by_length, parts, words = sorted(range(len(texts)), key=lambda i: len(texts[i])), [], []
    with watch.bar(f"Reading texts with {base}", len(texts)):
        for start in range(0, len(texts), AT_ONCE):
            some = by_length[start : start + AT_ONCE]
            read = BaseFeatures(candidate.saved, [texts[i] for i in some], labels, candidate.prompts)
            parts.append(read.plain[read.pools[0]].numpy())
            if candidate.prompts:
                words.append(read.words.softmax(1).numpy())
            watch.reach(min(start + AT_ONCE, len(texts)), base)
    back = np.argsort(by_length)
    vectors = np.concatenate(parts)[back].astype(np.float64)
    must_be_finite(vectors)
    known = np.concatenate(words)[back] if words else np.zeros((len(texts), 0))
    return Features(scaled(Standard.of(vectors)(vectors)), known.astype(np.float32))
