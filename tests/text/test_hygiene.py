"""Copies, leaks and contradictions are counted exactly; planted ones are all found."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.config import TokenizerConfig
from headstart.errors import DataError
from headstart.text.hygiene import check, refuse_leaks, token_facts
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


def test_any_number_of_planted_copies_is_counted_exactly():
    """D19"""
    train, test = rows(101, 1, words=6), rows(101, 2, words=6)
    for planted in range(101):
        copies = [Example(f"  {e.text.upper()} ", e.label) for e in train[:planted]]
        found = check({"train": train, "test": copies + test[planted:]})
        assert found["exact"]["leaked"] == {"test": planted}
        assert len(found["overlapping_rows"]["test"]) == planted
    assert check({"train": train + copies})["exact"]["within"] == {"train": 100}


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


def test_the_same_text_under_two_labels_is_a_conflict():
    found = check({"train": [Example("A film", "good"), Example("a  film", "bad"), Example("other", "bad")]})
    assert found["conflicts"]["texts"] == 1
    assert found["conflicts"]["examples"][0]["labels"] == {"good": 1, "bad": 1}


def test_the_worst_conflicts_are_shown_and_all_are_counted():
    """D20"""
    clashing = [Example(f"text {i}", label) for i in range(30) for label in "ab" for _ in range(i + 1)]
    found = check({"train": clashing})["conflicts"]
    assert found["texts"] == 30
    assert [clash["text"] for clash in found["examples"]] == [f"text {i}" for i in range(29, 9, -1)]
    assert found["examples"][0]["labels"] == {"a": 30, "b": 30}


@pytest.mark.parametrize(("one", "other"), [("pos", "Pos "), ("1", "1.0"), ("0.50", ".5"), ("é", "e\u0301")])
def test_labels_that_may_be_meant_as_one_are_pointed_out_and_kept_apart(one, other):
    """D16"""
    found = check({"train": [Example("x", one), Example("y", other), Example("z", "neg"), Example("w", "neg")]})
    assert any(repr(one) in w and repr(other) in w and "kept apart" in w for w in found["warnings"])
    assert len(found["splits"]["train"]["labels"]) == 3


@pytest.mark.parametrize(("one", "other"), [("1", "2"), ("pos", "neg"), ("10", "1e2"), ("nan", "n")])
def test_labels_that_differ_are_not_pointed_out(one, other):
    assert not any("kept apart" in w for w in check({"train": [Example("x", one), Example("y", other)]})["warnings"])


def test_a_class_without_rows_in_a_part_is_told():
    """D18"""
    train = [Example(f"row {label} {i}", label) for label in "abcdefgh" for i in range(2)]
    found = check({"train": train, "valid": [], "test": [Example("another", "a")]})
    told = [warning for warning in found["warnings"] if "cannot be measured" in warning]
    assert told == [
        "There are no test rows of 'b', 'c', 'd', 'e', 'f' and others: how well a model knows them cannot be measured."
    ]


def test_leaks_are_refused_only_where_there_are_some():
    train, test = rows(5, 1), rows(5, 2)
    refuse_leaks(check({"train": train, "test": test}))
    with pytest.raises(DataError, match="2 of the 5 test rows also stand among the training rows") as caught:
        refuse_leaks(check({"train": train, "test": train[:2] + test[2:]}))
    assert caught.value.code == "DATA_LEAK"


def test_token_facts_count_what_a_context_would_cut():
    examples = [Example("one two three", "a"), Example("one two three four five", "a"), Example("new", "a")]
    tokenizer = Tokenizer.train([e.text for e in examples[:2]], TokenizerConfig(kind="word"))
    facts = token_facts(examples, tokenizer, context=6)
    assert facts["tokens"] == 9
    assert facts["unknown"] == 1
    assert facts["truncated"] == 1  # five words and the two tokens around them
