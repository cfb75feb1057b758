"""TF-IDF of words and characters, against scikit-learn's own parts."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from headstart.errors import DataError
from headstart.text.tfidf import FEW, fitted_tfidf

TEXTS = ["a warm, funny film", "a cold film", "the funniest film of the year", "no fun at all"]


def test_rows_are_words_beside_characters_and_have_length_one() -> None:
    rows = fitted_tfidf(TEXTS).transform(TEXTS).toarray()
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(TEXTS).toarray()
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit_transform(TEXTS)
    np.testing.assert_allclose(rows * 2**0.5, np.hstack([words, characters.toarray()]), atol=1e-12)
    np.testing.assert_allclose((rows**2).sum(1), 1)


def test_words_of_one_stem_are_near_each_other() -> None:
    vectorizer = fitted_tfidf(TEXTS)
    funny, funniest, cold = vectorizer.transform(["funny", "funniest", "cold"]).toarray()
    assert funny @ funniest > 0.1 > funny @ cold


def test_characters_of_a_single_text_are_dropped_among_many() -> None:
    many = [f"number {i:03d}" for i in range(FEW)]
    few = fitted_tfidf(many[:-1])
    assert any("049" in str(name) for name in fitted_tfidf(many).get_feature_names_out())  # as a word
    assert "characters__048 " not in set(fitted_tfidf(many).get_feature_names_out())
    assert "characters__048 " in set(few.get_feature_names_out())


@pytest.mark.parametrize("texts", [["a", "b", "a b"], ["電", "気", "電 気"]])
def test_texts_without_words_are_vectors_of_their_characters(texts: list[str]) -> None:
    rows = fitted_tfidf(texts).transform(texts).toarray()
    np.testing.assert_allclose((rows**2).sum(1), 1)


def test_texts_that_share_nothing_are_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match="no word and no characters"):
        fitted_tfidf([chr(0x4E00 + i) for i in range(FEW)])
