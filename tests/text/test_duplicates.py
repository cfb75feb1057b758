"""Exact, contained and near duplicates are those of comparing every row with every other, in much less time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.text import duplicates
from headstart.text.duplicates import NEAR, Found, Rows, contained, exact, near
from headstart.text.hygiene import check
from headstart.text.read import Example

TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=9).map(" ".join), max_size=25)
CUTS = st.tuples(st.integers(0, 25), st.integers(0, 25)).map(sorted)


def shingles(text: str) -> set[str]:
    words = text.split()
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}


def is_exact(a: str, b: str) -> bool:
    return a == b != ""


def is_contained(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    return a != b and len(short.split()) >= 5 and f" {short} " in f" {long} "


def is_near(a: str, b: str) -> bool:
    return a != b and len(shingles(a) & shingles(b)) >= NEAR * len(shingles(a) | shingles(b))


def rows_with_duplicates(pairs: Iterable[tuple[int, int]], parts: list[int]) -> tuple[set[int], set[int]]:
    """Rows with an earlier duplicate in their own part, and in a part before it."""
    pairs = list(pairs)
    return {j for i, j in pairs if parts[i] == parts[j]}, {j for i, j in pairs if parts[i] != parts[j]}


@pytest.mark.parametrize(("find", "alike"), [(exact, is_exact), (contained, is_contained), (near, is_near)])
@settings(max_examples=150, deadline=None)
@given(texts=TEXTS, cuts=CUTS)
def test_rows_with_duplicates_are_those_of_comparing_everything_with_everything(
    find: Callable[[Rows], Found], alike: Callable[[str, str], bool], texts: list[str], cuts: list[int]
) -> None:
    parts = [sum(i >= cut for cut in cuts) for i in range(len(texts))]
    expected = {(i, j) for j in range(len(texts)) for i in range(j) if alike(texts[i], texts[j])}
    found = list(zip(*(side.tolist() for side in find(Rows.read(texts, parts))), strict=True))
    assert set(found) <= expected
    assert rows_with_duplicates(found, parts) == rows_with_duplicates(expected, parts)
    assert len(found) <= 2 * len(texts)


FRAME = "dear {} we are sorry that the {} you sent to {} was {} and that nobody {} it before {} so please {} the form and {} us"


def from_a_template(count: int, seed: int = 0) -> list[str]:
    """Rows of 29 words, eight of them one of five: every word is a common one, and most rows have near duplicates."""
    rng = random.Random(seed)
    return [FRAME.format(*(f"s{slot}v{rng.randrange(5)}" for slot in range(8))) for _ in range(count)]


def test_five_thousand_rows_of_one_template_take_seconds() -> None:
    train = [Example(text, "ab"[i % 2]) for i, text in enumerate(from_a_template(5000))]
    began = time.process_time()
    found = check({"train": train})
    assert time.process_time() - began < 5  # 27 s, if each is compared with all that it shares a word with
    assert found["near"]["within"]["train"] > 4000


def test_near_duplicates_are_found_among_more_rows_than_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = from_a_template(1200)
    parts = [int(i >= 900) for i in range(len(texts))]
    rows = Rows.read(texts, parts)

    def found() -> tuple[set[int], set[int]]:
        return rows_with_duplicates(zip(*(side.tolist() for side in near(rows)), strict=True), parts)

    everything = found()
    monkeypatch.setattr(duplicates, "MOST_PAIRS", 1)  # so that two rows of each bucket are compared
    by_buckets = found()
    for some, every in zip(by_buckets, everything, strict=True):
        assert some <= every
        assert len(some) > 0.97 * len(every) > 100


def test_rows_of_one_word_over_and_over_fit_into_memory_and_time() -> None:
    texts = [" ".join(["la"] * (5 + i % 60)) for i in range(2000)]
    began = time.process_time()
    earlier, later = contained(Rows.read(texts, [0] * len(texts)))
    assert time.process_time() - began < 5
    assert len(set(later.tolist())) == 1999  # all but the first
    assert (earlier < later).all()
