"""Find texts by a query: by the cosine of their embeddings, with BM25, which compares words, beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.bases.features import kept
from headstart.errors import DataError
from headstart.hub.cache import private_folder
from headstart.runs.watch import Watch
from headstart.show.nearest import NearestTexts, NearText
from headstart.text.bm25 import BM25
from headstart.text.digests import digest
from headstart.text.duplicates import normal
from headstart.text.files import is_blank
from headstart.use.encode import LoadedEncoder, Vectors

Scores = NDArray[np.floating]  # (N,)


@dataclass(frozen=True)
class TextSearch:
    """Different texts in the space of an encoder."""

    model: str
    encoder: LoadedEncoder
    texts: list[str]
    rows: list[int]  # where each stands first, from 1
    copies: list[int]  # how often
    vectors: Vectors  # (N, D), of length 1

    @classmethod
    def over(cls, texts: Sequence[str], model: str | Path, watch: Watch | None = None) -> TextSearch:
        """A search over `texts`, duplicates folded, blank ones left out; their vectors are kept in the cache directory."""
        encoder = LoadedEncoder.load(model, normalize=True)

        def embed(found: list[str]) -> Vectors:
            file = private_folder("texts") / f"{digest(encoder.key, *found)[:24]}.safetensors"
            return kept(file, lambda: torch.from_numpy(encoder.encode(found, watch))).numpy()

        return cls._of(texts, encoder, str(model), embed)

    @classmethod
    def within(cls, texts: Sequence[str], encoder: LoadedEncoder, model: str) -> TextSearch:
        """The same with an encoder that is loaded already; nothing is kept."""
        encoder = replace(encoder, normalized=True)
        return cls._of(texts, encoder, model, encoder.encode)

    @classmethod
    def _of(
        cls, texts: Sequence[str], encoder: LoadedEncoder, model: str, embed: Callable[[list[str]], Vectors]
    ) -> TextSearch:
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        keys = [normal(text) for text in texts]
        places = {key: i for i, key in reversed([*enumerate(keys)]) if not is_blank(texts[i])}
        first, counts = sorted(places.values()), Counter(keys)
        if not first:
            raise DataError("There is no text to search in.", "DATA_EMPTY")
        found = [texts[i] for i in first]
        return cls(model, encoder, found, [i + 1 for i in first], [counts[keys[i]] for i in first], embed(found))

    def find(self, queries: Sequence[str], top: int = 10) -> list[NearestTexts]:
        """The `top` nearest texts of each query, by embeddings and by words."""
        if any(is_blank(query) for query in queries):
            raise DataError("A query to search for is blank.", "DATA_BLANK")
        cosines = self.encoder.encode(queries) @ self.vectors.T
        return [self._nearest(query, row, top) for query, row in zip(queries, cosines, strict=True)]

    @cached_property
    def _words(self) -> BM25:
        return BM25(self.texts)

    def _nearest(self, query: str, cosines: Scores, top: int) -> NearestTexts:
        words = self._words.scores(query)
        by_embedding, by_words = _order(cosines), [i for i in _order(words) if words[i] > 0]
        ranks = [{i: rank for rank, i in enumerate(order, start=1)} for order in (by_embedding, by_words)]

        def near(i: int, scores: Scores, own: int) -> NearText:
            other = ranks[1 - own].get(i)
            return NearText(ranks[own][i], float(scores[i]), other, self.rows[i], self.copies[i], self.texts[i])

        return NearestTexts(
            query,
            self.model,
            len(self.texts),
            tuple(near(i, cosines, 0) for i in by_embedding[:top]),
            tuple(near(i, words, 1) for i in by_words[:top]),
        )


def _order(scores: Scores) -> list[int]:
    """The numbers of the texts, best first; of equal ones, the first comes first."""
    found: list[int] = np.argsort(-scores, kind="stable").tolist()
    return found
