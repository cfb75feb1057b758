"""BM25 against its formula, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from headstart.text.bm25 import BM25, words_of

TEXTS = ["The cold tea", "tea, tea and more tea", "A warm room. The room was cold", "", "nothing of that kind"]


def plain(texts: list[str], query: str, k1: float, b: float) -> list[float]:
    rows = [words_of(text) for text in texts]
    mean = sum(map(len, rows)) / len(rows)
    scores = []
    for row in rows:
        score = 0.0
        for word in words_of(query):
            holders = sum(word in other for other in rows)
            idf = math.log(1 + (len(rows) - holders + 0.5) / (holders + 0.5))
            count = row.count(word)
            if count:
                score += idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(row) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["tea", "cold tea", "tea TEA room", "unheard", "the"])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (1.2, 0.0), (0.9, 1.0)])
def test_the_scores_are_those_of_the_formula(query: str, k1: float, b: float) -> None:
    assert_allclose(BM25(TEXTS, k1, b).scores(query), plain(TEXTS, query, k1, b), atol=1e-12)


@given(st.lists(st.text("ab c", max_size=12), min_size=1, max_size=6), st.text("ab c", max_size=6))
def test_it_holds_for_any_texts(texts: list[str], query: str) -> None:
    if any(words_of(text) for text in texts):
        assert_allclose(BM25(texts).scores(query), plain(texts, query, 1.5, 0.75), atol=1e-12)


def test_no_score_is_negative_and_blank_texts_have_none() -> None:
    common = ["the tea"] * 9 + ["the room"]
    assert (BM25(common).scores("the") > 0).all()
    assert np.all(BM25(["", " "]).scores("tea") == 0)
