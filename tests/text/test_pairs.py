"""Pairs out of tables and files, and a split that never asks what was learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.data import PairsConfig
from headstart.errors import DataError
from headstart.schema import parse
from headstart.text.pairs import Pair, read_pairs, references, split_pairs

PAIR = [Pair("dog", "ogday"), Pair("egg", "eggway")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "source\ttarget\ndog\togday\negg\teggway\n"),
        ("a.tsv", "dog\togday\negg\teggway\n"),
        ("a.tsv", "dog\togday\tCC-BY 2.0\negg\teggway\tCC-BY 2.0\n"),
        ("a.txt", "dog\togday\negg\teggway\n"),
        ("a.txt", "dog ogday\n\negg  eggway\n"),
        ("a.csv", 'id,target,source\n1,ogday,dog\n2,"eggway",egg\n'),
        ("a.jsonl", '{"source": "dog", "target": "ogday"}\n{"source": "egg", "target": "eggway"}\n'),
    ],
)
def test_pairs_are_read_from_tables_and_lines(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    assert read_pairs([tmp_path / name]) == (PAIR, 0)


def test_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("pig\tplain\nogday\tdog\neggway\tegg\n", "utf-8")
    assert read_pairs([tmp_path / "a.tsv"], "plain", "pig") == (PAIR, 0)


def test_two_files_go_line_by_line_and_pairs_with_an_empty_side_are_counted(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.pig"
    source.write_text("dog\ncat\negg\n \n", "utf-8")
    target.write_text("ogday\n\neggway\nx\n", "utf-8")
    assert read_pairs([source, target]) == (PAIR, 2)
    target.write_text("ogday\neggway\n", "utf-8")
    with pytest.raises(DataError, match=r"a\.en has 4 lines and .*a\.pig has 2\."):
        read_pairs([source, target])


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("a.txt", "dog ogday\nthe egg eggway\n", "DATA_COLUMNS", r"a\.txt, line 2: not a pair"),
        ("a.tsv", "dog\togday\negg eggway\n", "DATA_COLUMNS", r"line 2: not a pair. A line needs a tab"),
        ("a.tsv", "dog\t\n\togday\n", "DATA_EMPTY", "no pair with a text on both sides"),
        ("a.csv", "english,french\na,b\n", "DATA_COLUMNS", "--target-column"),
        ("a.jsonl", '{"source": "a"}\n', "DATA_COLUMNS", "--target-column"),
    ],
)
def test_what_is_not_a_pair_is_told_by_its_place(name: str, content: str, code: str, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(DataError, match=says) as told:
        read_pairs([tmp_path / name])
    assert told.value.code == code


def test_all_translations_of_a_source_stand_on_one_side(tmp_path: Path) -> None:
    rows = [f"{'W' if k else 'w'}ord{i}\tsaid{i}.{k}" for k in range(3) for i in range(200)]
    (tmp_path / "a.tsv").write_text("\n".join(rows), "utf-8")
    data = split_pairs(parse(PairsConfig, {"pairs": [str(tmp_path / "a.tsv")], "valid_fraction": 0.2}))
    sides = [{p.source.lower() for p in rows} for rows in data.parts().values()]
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not sides[1] & sides[2]
    assert [len(rows) for rows in data.parts().values()] == [432, 108, 60]
    assert data.facts()["overlapping"] == {"valid": 0, "test": 0}


def test_what_is_held_out_is_in_no_part(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n".join(f"Word{i}\tsaid{i}" for i in range(50)), "utf-8")
    settings = {"pairs": [str(tmp_path / "a.tsv")], "hold_out": ["word7", "Word30"]}
    data = split_pairs(parse(PairsConfig, settings))
    everything = [p.source for rows in data.parts().values() for p in rows]
    assert data.held_out == 2
    assert sorted(everything) == sorted({f"Word{i}" for i in range(50)} - {"Word7", "Word30"})


def test_a_source_is_asked_once_with_all_its_references() -> None:
    pairs = [Pair("a", "x"), Pair("b", "y"), Pair("a", "z"), Pair("a", "x")]
    assert references(pairs) == {"a": ["x", "z"], "b": ["y"]}


def test_too_few_pairs_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("dog\togday\n", "utf-8")
    with pytest.raises(DataError, match="1 pairs are too few"):
        split_pairs(parse(PairsConfig, {"pairs": [str(tmp_path / "a.tsv")]}))


def test_held_out_pairs_that_are_swapped_are_refused(tmp_path: Path) -> None:
    words = [f"{a}{b}{c}" for a in "bcdfg" for b in ("an", "en", "ost") for c in ("t", "d", "ks")]
    straight = [f"{word}\t{word[1:]}{word[0]}ay" for word in words]
    swapped = ["\t".join(reversed(line.split("\t"))) for line in straight[30:]]
    for name, rows in (("a", straight[:30]), ("right", straight[30:]), ("wrong", swapped)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows), "utf-8")
    settings = {"pairs": [str(tmp_path / "a.tsv")], "test_fraction": 0}
    right = split_pairs(parse(PairsConfig, {**settings, "valid": [str(tmp_path / "right.tsv")]}))
    assert len(right.valid) == 15
    for part in ("valid", "test"):
        with pytest.raises(DataError, match=r"wrong\.tsv: source and target seem swapped: \d+% of .*, \d+% in"):
            split_pairs(parse(PairsConfig, {**settings, part: [str(tmp_path / "wrong.tsv")]}))


def test_two_sides_in_one_language_are_never_taken_for_swapped(tmp_path: Path) -> None:
    words = [f"{a}{b}{c}" for a in "bcdfg" for b in ("an", "en", "ost") for c in ("t", "d", "ks")]
    for name, rows in (("a", words[:30]), ("b", words[30:])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(f"{w}\t{v}" for w, v in zip(rows, rows[::-1], strict=True)))
    settings = {"pairs": [str(tmp_path / "a.tsv")], "valid": [str(tmp_path / "b.tsv")], "test_fraction": 0}
    assert len(split_pairs(parse(PairsConfig, settings)).valid) == 15


def test_a_column_that_is_named_must_be_there(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.txt", "b.txt"):
        (tmp_path / name).write_text("inglese\tgerman\ndog\tHund\n", "utf-8")
    columns = {"source_column": "inglese", "target_column": "german"}
    assert read_pairs([tmp_path / "a.tsv"], **columns) == ([Pair("dog", "Hund")], 0)
    with pytest.raises(DataError, match=r"a\.tsv.*--source-column"):
        read_pairs([tmp_path / "a.tsv"], target_column="german")
    for paths in ([tmp_path / "a.txt"], [tmp_path / "a.txt", tmp_path / "b.txt"]):
        with pytest.raises(DataError, match="only a table has columns to name"):
            read_pairs(paths, **columns)


def test_two_tables_are_not_two_sides(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("dog\tHund\n", "utf-8")
    with pytest.raises(DataError, match=r"a\.tsv and .*b\.tsv are two tables"):
        read_pairs([tmp_path / "a.tsv", tmp_path / "b.tsv"])
