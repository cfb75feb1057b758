"""Tokens that stand in the same company get vectors that are alike."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from headstart.text import cooccurrence
from headstart.text.cooccurrence import WIDE_WINDOW, WINDOW, neighbours, texts_of, token_vectors
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


def test_neighbours_are_counted_both_ways_inside_one_text_and_window() -> None:
    far = [0, *[5] * 7, 1, 2]  # 1 is the last that 0 can see
    counts = neighbours(TokenRows.of([far, [3, 4], [3, 4]]), 6, window=8).toarray()
    assert counts[0, 1] == counts[1, 0] == 1
    assert counts[0, 2] == 0
    assert counts[3, 4] == counts[4, 3] == 2
    assert counts[2, 3] == 0


def test_a_long_text_is_several_and_an_empty_one_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "SAME_TEXT", 3)
    counts = texts_of(TokenRows.of([[0, 1, 1, 2, 0], [], [2, 2, 2]]), 4).toarray()
    assert counts.T.tolist() == [[1, 2, 0, 0], [1, 0, 1, 0], [0, 0, 3, 0]]


@pytest.mark.parametrize("little", [1, 1_000_000])
def test_half_of_a_vector_tells_opposites_apart(little: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Praise and blame stand in the same places of a sentence, and never in one text."""
    monkeypatch.setattr(cooccurrence, "LITTLE", little)
    monkeypatch.setattr(cooccurrence, "WIDE_WINDOW" if little > 1 else "WINDOW", 1)
    rng, praise, blame, frame = np.random.default_rng(0), range(4), range(4, 8), (8, 9)

    def text() -> list[int]:
        tone = (praise, blame)[rng.integers(2)]
        return [token for _ in range(6) for token in (frame[0], int(rng.choice(tone)), frame[1])]

    vectors = token_vectors(TokenRows.of(text() for _ in range(300)), 20, 4)
    near, same_text = likeness(vectors[:8, :2]), likeness(vectors[:8, 2:])
    assert near[np.ix_(praise, blame)].min() > 0.7
    assert same_text[np.ix_(praise, blame)].max() < 0.3 < 0.7 < same_text[np.ix_(praise, praise)].min()


@pytest.mark.parametrize(
    ("texts", "length", "little", "told"),
    [
        (90, 31, True, 4),
        (90, 30, True, 0),  # in a text no longer than the window, all tokens are neighbours
        (90, 9, False, 4),
        (90, 8, False, 0),
        (4, 2000, True, 0),  # fewer texts than numbers to tell of them
        (1, 5000, True, 0),  # a short book
        (1, 5000, False, 4),  # a long one
    ],
)
def test_half_of_a_vector_is_for_texts_that_are_many_and_not_short(
    texts: int, length: int, little: bool, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "LITTLE", 1_000_000 if little else 1)
    rng = np.random.default_rng(0)
    rows = TokenRows.of(rng.integers(0, 20, length).tolist() for _ in range(texts))
    near = cooccurrence._reduced(neighbours(rows, 20, WIDE_WINDOW if little else WINDOW), 8 - told, 0)
    vectors = token_vectors(rows, 20, 8)
    assert vectors.shape == (20, 8)
    assert np.array_equal(vectors[:, : 8 - told], near)


def test_in_little_text_a_token_sees_further(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(cooccurrence, "neighbours", lambda *given: seen.append(given[2]) or neighbours(*given))
    for little in (1, 1_000_000):
        monkeypatch.setattr(cooccurrence, "LITTLE", little)
        token_vectors(sentences(np.random.default_rng(0)), 20, 4)
    assert seen == [WINDOW, WIDE_WINDOW]


def test_of_too_many_texts_some_are_left_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "MOST_TEXTS", 3)
    counts = texts_of(TokenRows.of([[i] for i in range(7)]), 7).toarray()
    assert counts.argmax(0).tolist() == [0, 3, 6]


def few_at_a_time(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("headstart.text.tokenizer.TOKENS_AT_ONCE", size)
    monkeypatch.setattr(cooccurrence, "TOKENS_AT_ONCE", size)
    monkeypatch.setattr(cooccurrence, "CELLS_AT_ONCE", size)


@pytest.mark.parametrize("length", [10, 40, 1500])
def test_counting_some_of_a_text_at_a_time_changes_no_bit(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = TokenRows.of([rng.integers(0, 60, n) for n in rng.integers(0, 2 * length, 99)])
    whole = token_vectors(rows, 70, 16)
    few_at_a_time(monkeypatch, 123)
    assert np.array_equal(token_vectors(rows, 70, 16), whole)


def test_a_corpus_shorter_than_the_window_is_counted() -> None:
    assert neighbours(TokenRows.of([[0, 1, 0]]), 2, window=8).toarray().tolist() == [[2, 2], [2, 0]]


def test_counting_takes_little_more_memory_than_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, falling = np.random.default_rng(0), 1 / np.arange(1, 501)
    rows = TokenRows.of([rng.choice(500, 1_200_000, p=falling / falling.sum())])
    token_vectors(TokenRows.of([[0, 1]]), 2, 8)  # what is imported takes memory of its own
    few_at_a_time(monkeypatch, 50_000)
    tracemalloc.start()
    token_vectors(rows, 500, 8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / len(rows.ids) < 20  # bytes; counted as a whole it took 47


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("width", [32, 33])
def test_vectors_have_one_size_and_are_the_same_every_time(
    window: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "WIDE_WINDOW", window)
    rows = sentences(np.random.default_rng(1))
    vectors = token_vectors(rows, 25, width)  # tokens that never occur, and more dimensions than tokens
    assert vectors.shape == (25, width)
    for part in (vectors,) if window > 1 else (vectors[:, : width - width // 2], vectors[:, width - width // 2 :]):
        assert abs(np.mean(part**2) - 1) < 1e-4
    assert np.abs(vectors[20:]).max() < 1e-6
    assert np.array_equal(vectors, token_vectors(rows, 25, width))


@pytest.mark.parametrize(("given", "part"), [(40, 16), (3, 3)])
def test_known_vectors_take_up_to_half_of_the_width(given: int, part: int) -> None:
    rng = np.random.default_rng(0)
    rows, known = sentences(rng), rng.normal(5, 1, (25, given)).astype(np.float32)
    known[[2, 24]] = 0
    vectors = token_vectors(rows, 25, 32, known)
    assert vectors.shape == (25, 32)
    assert np.array_equal(vectors[:, : 32 - part], token_vectors(rows, 25, 32 - part))
    told = vectors[:, 32 - part :]
    assert not told[[2, 24]].any()
    seen = np.delete(told, [2, 24], axis=0)
    assert abs(np.mean(seen**2) - 1) < 1e-4
    if part == given:  # nothing was cut away: what is alike stays alike
        apart = np.delete(known, [2, 24], axis=0)
        ours, theirs = (((v[:, None] - v) ** 2).sum(-1) for v in (seen, apart))
        assert np.allclose(ours / ours.sum(), theirs / theirs.sum(), atol=1e-6)


def test_known_vectors_are_centred_by_how_often_tokens_occur() -> None:
    rows = TokenRows.of([[0] * 99, [1]])
    vectors = token_vectors(rows, 2, 4, np.array([[1, 0], [0, 1]], np.float32))
    assert np.linalg.norm(vectors[0, 2:]) < np.linalg.norm(vectors[1, 2:]) / 10
