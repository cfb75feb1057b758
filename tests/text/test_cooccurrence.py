"""Tokens that stand in the same company get vectors that are alike."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.text import cooccurrence
from headstart.text.cooccurrence import WIDE_WINDOW, WINDOW, neighbours, token_vectors
from headstart.text.tokenizer import TokenRows

ANIMALS, FOODS, VERBS, REST = range(4), range(4, 8), (8, 9), range(10, 20)


def sentences(rng: np.random.Generator) -> TokenRows:
    """Animals are always seen with one verb, foods with the other, and anything with the rest."""
    kinds = [(ANIMALS, VERBS[0]), (FOODS, VERBS[1])]
    chosen = (kinds[rng.integers(2)] for _ in range(600))
    return TokenRows.of([rng.choice(REST), rng.choice(nouns), verb, rng.choice(REST)] for nouns, verb in chosen)


def likeness(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def test_words_of_one_kind_are_nearer_than_words_of_two() -> None:
    alike = likeness(token_vectors(sentences(np.random.default_rng(0)), 20, 4))
    within = min(alike[a, b] for kind in (ANIMALS, FOODS) for a in kind for b in kind)
    assert within > 0.7
    assert within > alike[np.ix_(ANIMALS, FOODS)].max() + 0.3


@pytest.mark.parametrize(("little", "window"), [(1_000_000, WIDE_WINDOW), (1, WINDOW)])
def test_neighbours_are_counted_both_ways_inside_one_text_and_window(
    little: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "LITTLE", little)
    far = [0, *[5] * (window - 1), 1, 2]  # 1 is the last that 0 can see
    counts = neighbours(TokenRows.of([far, [3, 4], [3, 4]]), 6).toarray()
    assert counts[0, 1] == counts[1, 0] == 1
    assert counts[0, 2] == 0
    assert counts[3, 4] == counts[4, 3] == 2
    assert counts[2, 3] == 0


def test_vectors_have_one_size_and_are_the_same_every_time() -> None:
    rows = sentences(np.random.default_rng(1))
    vectors = token_vectors(rows, 25, 32)  # tokens that never occur, and more dimensions than tokens
    assert vectors.shape == (25, 32)
    assert abs(np.mean(vectors**2) - 1) < 1e-4
    assert not vectors[20:].any()
    assert np.array_equal(vectors, token_vectors(rows, 25, 32))
