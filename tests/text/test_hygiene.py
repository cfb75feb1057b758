"""Copies, leaks and contradictions are counted exactly; planted ones are all found."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config import TokenizerConfig
from headstart.text.hygiene import NEAR, _contained, _near, check, token_facts
from headstart.text.read import Example
from headstart.text.tokenizer import Tokenizer

WORDS = [f"w{i}" for i in range(400)]


def rows(count: int, seed: int, words: int = 20) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [Example(" ".join(rng.choice(WORDS, words)), "ab"[i % 2]) for i in range(count)]


@pytest.mark.parametrize("planted", [0, 1, 7, 100])
def test_every_planted_copy_is_found(planted):
    train, test = rows(300, 1), rows(300, 2)
    test[:planted] = [Example(f"  {e.text.upper()} ", e.label) for e in train[:planted]]
    found = check({"train": train, "test": test})
    assert found["exact"]["leaked"] == {"test": planted}
    assert found["overlapping_rows"]["test"] == list(range(planted))
    assert bool(found["warnings"]) == bool(planted)


def test_a_row_inside_another_is_found_either_way():
    train, test = rows(50, 1), rows(50, 2)
    test[3] = Example(" ".join(train[9].text.split()[4:12]), "a")  # shorter
    test[5] = Example(f"before {train[8].text} after", "a")  # longer
    found = check({"train": train, "test": test})["contained"]
    assert found["rows"]["test"] == [3, 5]
    assert {tuple(e["rows"]) for e in found["examples"]} == {(9, 3), (8, 5)}


def test_a_short_row_inside_another_says_nothing():
    found = check({"train": [Example("it was a very good film", "a")], "test": [Example("a very good film", "a")]})
    assert found["contained"]["leaked"] == {"test": 0}


def test_one_changed_word_of_twenty_is_nearly_the_same():
    train, test = rows(50, 1), rows(50, 2)
    test[4] = Example(train[7].text.replace(train[7].text.split()[10], "other"), "a")
    found = check({"train": train, "test": test})["near"]
    assert found["rows"]["test"] == [4]


TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_near_copies_are_those_of_comparing_everything_with_everything(texts):
    def shingles(text: str) -> set[str]:
        words = text.split()
        return {*words, *(f"{a} {b}" for a, b in pairwise(words))}

    sets = [shingles(t) for t in texts]
    expected = {
        (i, j)
        for j in range(len(texts))
        for i in range(j)
        if texts[i] != texts[j] and len(sets[i] & sets[j]) >= NEAR * len(sets[i] | sets[j])
    }
    assert set(_near(texts)) == expected


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_contained_rows_are_those_of_comparing_everything_with_everything(texts):
    expected = {
        (min(i, j), max(i, j))
        for i, a in enumerate(texts)
        for j, b in enumerate(texts)
        if len(a.split()) >= 5 and a != b and f" {a} " in f" {b} "
    }
    assert set(_contained(texts)) == expected


def test_the_same_text_under_two_labels_is_a_conflict():
    found = check({"train": [Example("A film", "good"), Example("a  film", "bad"), Example("other", "bad")]})
    assert found["conflicts"]["texts"] == 1
    assert found["conflicts"]["examples"][0]["labels"] == {"good": 1, "bad": 1}


def test_labels_that_differ_only_by_case_or_space_are_pointed_out_and_kept_apart():
    found = check({"train": [Example("x", "pos"), Example("y", "Pos "), Example("z", "neg"), Example("w", "neg")]})
    assert any("'Pos ' and 'pos'" in warning for warning in found["warnings"])
    assert len(found["splits"]["train"]["labels"]) == 3


def test_token_facts_count_what_a_context_would_cut():
    examples = [Example("one two three", "a"), Example("one two three four five", "a"), Example("new", "a")]
    tokenizer = Tokenizer.train([e.text for e in examples[:2]], TokenizerConfig(kind="word"))
    facts = token_facts(examples, tokenizer, context=6)
    assert facts["tokens"] == 9
    assert facts["unknown"] == 1
    assert facts["truncated"] == 1  # five words and the two tokens around them
