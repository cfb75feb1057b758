"""A made split is fair, the same everywhere, and never puts copies of a text on two sides."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data import CorpusConfig, LabelledConfig
from headstart.errors import DataError
from headstart.text.duplicates import normal
from headstart.text.hygiene import check
from headstart.text.read import Example
from headstart.text.split import Labelled, draw, hash_split, split_corpus, split_labelled

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "A", " a ", "b", "c c", "C  c", "d", "é", "e\u0301"]), st.sampled_from("xyz"))
)


def split(rows: list[tuple[str, str]], fraction: float, seed: int = 0):
    return hash_split(rows, [text for text, _ in rows], [label for _, label in rows], fraction, seed)


def many(rows_of_each: dict[str, int]) -> list[tuple[str, str]]:
    return [(f"{label} text {i}", label) for label, n in rows_of_each.items() for i in range(n)]


@given(ROWS, st.floats(0, 0.99))
def test_every_row_is_on_one_side_in_the_order_of_the_file(rows, fraction):
    rest, taken = split(rows, fraction)
    assert Counter(rest) + Counter(taken) == Counter(rows)
    numbered = list(enumerate(rows))
    sides = hash_split(numbered, [t for t, _ in rows], [label for _, label in rows], fraction, 0)
    assert all(side == sorted(side) for side in sides)


@given(ROWS, st.floats(0, 0.99), st.integers(0, 3))
def test_copies_of_a_text_are_never_on_two_sides(rows, fraction, seed):
    rest, taken = split(rows, fraction, seed)
    assert not {normal(text) for text, _ in rest} & {normal(text) for text, _ in taken}


@given(ROWS, st.floats(0, 0.99), st.randoms(use_true_random=False))
def test_the_order_of_the_file_does_not_matter(rows, fraction, rng: random.Random):
    shuffled = rng.sample(rows, len(rows))
    assert Counter(split(rows, fraction)[1]) == Counter(split(shuffled, fraction)[1])


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.5])
def test_every_label_gives_the_same_fraction(fraction):
    _, taken = split(many({"x": 40, "y": 80, "z": 20}), fraction)
    assert Counter(label for _, label in taken) == +Counter(
        x=int(40 * fraction), y=int(80 * fraction), z=int(20 * fraction)
    )


def test_another_seed_is_another_split():
    rows = many({"x": 50})
    assert split(rows, 0.5, seed=0) != split(rows, 0.5, seed=1)


def test_a_new_row_moves_few_others():
    rows = many({"x": 100})
    before, after = (set(split(r, 0.2)[1]) for r in (rows, [*rows, ("one more", "x")]))
    assert len(before ^ after) <= 2


def test_a_test_row_that_stands_in_valid_is_a_leak_too():
    def examples(*texts: str) -> list[Example]:
        return [Example(text, "x") for text in texts]

    train, valid, test = examples("a dog", "a cat"), examples("A  dog", "a cow"), examples("a cow ", "A CAT", "a hen")
    assert check({"train": train, "valid": valid, "test": test})["exact"]["leaked"] == {"valid": 1, "test": 2}


def test_facts_tell_sizes_labels_and_the_split():
    data = Labelled([Example("a", "x"), Example("b", "y")], [Example("a", "x")], [], ["x", "y"])
    facts = data.facts()
    assert facts["rows"] == {"train": 2, "valid": 1, "test": 0}
    assert facts["labels"]["train"] == {"x": 1, "y": 1}
    assert facts["hygiene"]["overlapping_rows"]["valid"] == [0]
    assert facts["split_sha256"] != Labelled(data.train, [], data.valid, data.labels).facts()["split_sha256"]


def labelled(tmp_path: Path, **files: list[tuple[str, str]]) -> LabelledConfig:
    for name, rows in files.items():
        lines = (f"{text},{label}\n" for text, label in rows)
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(lines), "utf-8")
    return LabelledConfig(**{name: str(tmp_path / f"{name}.csv") for name in files})


def test_labelled_rows_are_split_three_ways_with_nothing_shared(tmp_path):
    data = split_labelled(labelled(tmp_path, train=many({"x": 50, "y": 50})))
    assert [len(part) for part in (data.train, data.valid, data.test)] == [64, 16, 20]
    assert data.labels == ["x", "y"]
    assert data.facts()["hygiene"]["exact"]["leaked"] == {"valid": 0, "test": 0}


def test_given_parts_are_taken_as_they_are(tmp_path):
    rows = many({"x": 4, "y": 4})
    data = split_labelled(labelled(tmp_path, train=rows, valid=rows[3:5], test=rows[:1]))
    assert [len(part) for part in (data.train, data.valid, data.test)] == [8, 2, 1]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"train": many({"x": 20})}, "DATA_ONE_CLASS"),
        ({"train": many({"pos": 9, "neg": 9}), "test": [("a", "poss")]}, "DATA_LABEL"),
        ({"train": many({"pos": 9, "neg": 9}), "valid": [("a", "poss")]}, "DATA_LABEL"),
        ({"train": many({"x": 1, "y": 1})}, "DATA_SMALL"),
    ],
)
def test_rows_that_cannot_be_learned_from_are_refused(tmp_path, files, code):
    with pytest.raises(DataError) as caught:
        split_labelled(labelled(tmp_path, **files))
    assert caught.value.code == code


def test_unknown_labels_are_listed(tmp_path):
    """D17"""
    strange = [(f"text {i}", f"l{i:02}") for i in range(25)]
    with pytest.raises(DataError, match=r"do not: 'l00', 'l01', .*'l19', \.\.\.\.") as caught:
        split_labelled(labelled(tmp_path, train=many({"x": 9, "y": 9}), test=strange))
    assert "l20" not in str(caught.value)


def test_a_class_that_a_made_split_would_take_away_is_not_blamed_on_the_test_rows(tmp_path):
    """D18: too much is held out of a class with one row."""
    cfg = labelled(tmp_path, train=many({"x": 20, "y": 20, "z": 1})).model_copy(update={"test_fraction": 0.6})
    with pytest.raises(DataError, match="all rows of 'z' were held out for test") as caught:
        split_labelled(cfg)
    assert caught.value.code == "DATA_SMALL"


def corpus(tmp_path: Path, text: str, **settings) -> CorpusConfig:
    (tmp_path / "a.txt").write_text(text, "utf-8")
    return CorpusConfig(paths=(str(tmp_path / "a.txt"),), **settings)


def test_lines_are_held_out_whole(tmp_path):
    lines = [f"line number {i}" for i in range(100)]
    found = split_corpus(corpus(tmp_path, "\n".join(lines), unit="line", valid_fraction=0.2))
    assert len(found.valid) == 20
    assert sorted(found.train + found.valid) == sorted(lines)


def test_the_end_of_a_single_document_is_held_out(tmp_path):
    text = "abcdefghij" * 10
    found = split_corpus(corpus(tmp_path, text, valid_fraction=0.25))
    assert found.train == [text[:75]]
    assert found.valid == [text[75:]]


@pytest.mark.parametrize(("unit", "held"), [("document", 50), ("line", 48)])
def test_no_more_is_held_out_than_is_worth_measuring(unit, held, tmp_path):
    text = "\n".join(f"line {i:03}" for i in range(100))
    found = split_corpus(corpus(tmp_path, text, unit=unit, valid_fraction=0.5, valid_most=50))
    assert abs(sum(map(len, found.valid)) - held) <= 8


def test_nothing_is_held_out_when_nothing_is_asked_for(tmp_path):
    assert split_corpus(corpus(tmp_path, "one\ntwo", unit="line", valid_fraction=0)).valid == []


def test_too_few_lines_to_hold_some_out_is_a_fault(tmp_path):
    with pytest.raises(DataError, match="valid_fraction=0") as caught:
        split_corpus(corpus(tmp_path, "one line", unit="line"))
    assert caught.value.code == "DATA_SMALL"


def rows_of(name: str, count: int, share: float = 0.5) -> list[Example]:
    return [Example(f"{name} {i}", "a" if i < share * count else "b") for i in range(count)]


@pytest.fixture
def pool() -> Labelled:
    return Labelled(rows_of("train", 800, 0.3), rows_of("valid", 200, 0.3), rows_of("test", 50), ["a", "b"])


def test_drawn_labels_are_nested_and_keep_the_shares(pool):
    few, more = (draw(pool, n, seed=3) for n in (200, 500))
    assert (len(few.train), len(few.valid), len(more.train), len(more.valid)) == (160, 40, 400, 100)
    assert set(few.train) <= set(more.train)
    assert set(few.valid) <= set(more.valid)
    assert not set(more.train) & set(more.valid)
    assert few.test == pool.test
    for part in (few.train, few.valid, more.train):
        assert sum(e.label == "a" for e in part) / len(part) == pytest.approx(0.3, abs=0.02)


def test_another_seed_draws_other_labels(pool):
    one, other = (set(draw(pool, 200, seed=s).train) for s in (0, 1))
    assert one != other


def test_of_few_labels_all_are_learned_from(pool):
    few = draw(pool, 50, seed=0)
    assert (len(few.train), few.valid) == (50, [])


def test_more_labels_than_there_are_is_a_fault(pool):
    with pytest.raises(DataError, match="1001 labels were asked for; there are 1000"):
        draw(pool, 1001, seed=0)
