"""A table labelled row by row: every column stays, a fault leaves nothing behind, and memory does not grow with the file."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import DataError, ResourceError, UserError
from headstart.runs.watch import Watch
from headstart.targets.classes import Classes
from headstart.text import table_stream
from headstart.text.table_stream import AT_ONCE
from headstart.use.label_file import Columns, label_file
from headstart.use.predict import LoadedClassifier

TEXTS = ["a fine film", 'poor, "really"\nbad', "été 🧀", "  spaced  "]


class Lengths:
    """Classifies by the length of a text, with probabilities that need all of their digits."""

    labels = ("long", "short")
    target = Classes(tuple(labels))

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        assert all(text.strip() for text in texts), "blank texts are not for a model"
        return [[len(t) / (len(t) + 11.3), 1 - len(t) / (len(t) + 11.3)] for t in texts]


def write(path: Path, texts: Sequence[str] = TEXTS) -> Path:
    """The same rows in the format that the name asks for; numbers, gaps and text in other columns."""
    rows = [{"id": i, "text": text, "note": None if i % 2 else f"n{i}"} for i, text in enumerate(texts)]
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(rows), path)
        case _:
            with path.open("w", encoding="utf-8", newline="") as file:
                if path.suffix == ".tsv":
                    file.writelines("\t".join(map(str, r)) + "\n" for r in [list(rows[0]), *(r.values() for r in rows)])
                else:
                    table = csv.DictWriter(file, list(rows[0]))
                    table.writeheader()
                    table.writerows(rows)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".jsonl":
            return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        case ".parquet":
            return parquet.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        quoting = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", quoting=quoting))


def labelled(source: Path, out: Path, columns: Columns = Columns(), **how: Any) -> list[dict[str, Any]]:  # noqa: B008
    label_file(Lengths, source, out, columns, **how)
    return read(out)


@pytest.mark.parametrize("form", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("source", [".csv", ".jsonl", ".parquet"])
def test_every_column_stays_and_the_answers_follow_in_full_precision(source, form, tmp_path):
    rows = labelled(write(tmp_path / f"in{source}"), tmp_path / f"out{form}", Columns(every=True))
    expected = Lengths().probabilities(TEXTS)
    assert [list(row) for row in rows] == [
        ["id", "text", "note", "label", "probability", "probability_long", "probability_short"]
    ] * len(TEXTS)
    assert [row["text"] for row in rows] == TEXTS
    assert [str(row["id"]) for row in rows] == ["0", "1", "2", "3"]
    assert [row["note"] or "" for row in rows] == ["n0", "", "n2", ""]
    assert [row["label"] for row in rows] == ["short" if p[1] > p[0] else "long" for p in expected]
    assert [float(row["probability"]) for row in rows] == [max(p) for p in expected]
    assert [[float(row["probability_long"]), float(row["probability_short"])] for row in rows] == expected


def test_types_of_parquet_and_of_json_are_kept(tmp_path):
    table = pa.table({"day": [date(2026, 1, 2)], "text": ["a film"], "parts": [[1, 2]], "n": pa.array([7], pa.int16())})
    parquet.write_table(table, tmp_path / "in.parquet")
    label_file(Lengths, tmp_path / "in.parquet", tmp_path / "out.parquet", Columns())
    assert parquet.read_table(tmp_path / "out.parquet").select(table.column_names).equals(table)
    assert labelled(tmp_path / "in.parquet", tmp_path / "out.jsonl")[0]["day"] == "2026-01-02"
    assert labelled(tmp_path / "in.parquet", tmp_path / "out.csv")[0]["parts"] == "[1, 2]"
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": 1, "x": {"y": 2}}\n{"text": "b", "n": 2.5, "late": true}\n')
    rows = labelled(tmp_path / "in.jsonl", tmp_path / "from.jsonl")
    assert [row["n"] for row in rows] == [1, 2.5]
    assert rows[0]["x"] == {"y": 2}
    assert "late" not in rows[0]
    assert "x" not in rows[1]
    columns = [(r["n"], r["x"], r["late"]) for r in labelled(tmp_path / "in.jsonl", tmp_path / "json.parquet")]
    assert columns == [(1.0, '{"y": 2}', None), (2.5, None, True)]


def test_the_separator_and_the_format_are_those_of_the_input_unless_the_name_asks_for_another(tmp_path):
    (tmp_path / "in.csv").write_text("id;text\n1;a film, and long\n2;b\n")
    label_file(Lengths, tmp_path / "in.csv", tmp_path / "out.csv", Columns())
    assert (tmp_path / "out.csv").read_text().startswith("id;text;label;probability\n1;a film, and long;long;")
    label_file(Lengths, tmp_path / "in.csv", tmp_path / "plain", Columns())
    assert (tmp_path / "plain").read_text() == (tmp_path / "out.csv").read_text()
    (tmp_path / "lines.txt").write_text("a\nb c\n")
    assert [row["text"] for row in labelled(tmp_path / "lines.txt", tmp_path / "x.jsonl")] == ["a", "b c"]
    with pytest.raises(UserError, match=r"--out .*x.xlsx: the name must end in .csv, .tsv, .jsonl or .parquet"):
        label_file(Lengths, tmp_path / "in.csv", tmp_path / "x.xlsx", Columns())


def test_quotes_in_tsv_stay_and_what_it_cannot_hold_is_refused(tmp_path):
    rows = labelled(write(tmp_path / "in.tsv", ['a "quoted" film', "b"]), tmp_path / "out.tsv")
    assert [row["text"] for row in rows] == ['a "quoted" film', "b"]
    with pytest.raises(DataError, match=r"in.csv, row 2: a value holds a tab or a line break, which .tsv cannot hold"):
        label_file(Lengths, write(tmp_path / "in.csv"), tmp_path / "other.tsv", Columns())
    assert not (tmp_path / "other.tsv").exists()


@pytest.mark.parametrize("source", [".csv", ".jsonl", ".parquet"])
def test_a_clash_of_columns_is_refused_and_a_prefix_avoids_it(source, tmp_path):
    rows = [{"text": "a film", "label": "long", "probability_long": "x"}]
    table = pa.Table.from_pylist(rows)
    match source:
        case ".csv":
            (tmp_path / "in.csv").write_text("text,label,probability_long\na film,long,x\n")
        case ".jsonl":
            (tmp_path / "in.jsonl").write_text(json.dumps(rows[0]))
        case _:
            parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(
        DataError, match=r"already has a column 'label'. .* --prefix predicted_ makes it 'predicted_label'"
    ):
        label_file(Lengths, tmp_path / f"in{source}", tmp_path / "out.csv", Columns())
    with pytest.raises(DataError, match="already has a column 'probability_long'"):
        label_file(Lengths, tmp_path / f"in{source}", tmp_path / "out.csv", _NoLabel(every=True))
    found = labelled(tmp_path / f"in{source}", tmp_path / "out.jsonl", Columns("predicted_"))
    assert list(found[0]) == ["text", "label", "probability_long", "predicted_label", "predicted_probability"]


class _NoLabel(Columns):
    """Without the first clash: the other shows only when the labels of the model are known."""

    def added(self, labels: Sequence[str]) -> dict[str, type]:
        return {name: kind for name, kind in super().added(labels).items() if name != "label"}


def test_blank_texts_are_refused_or_left_without_a_label(tmp_path):
    source = write(tmp_path / "in.csv", ["a", " ", "b", "\t"])
    with pytest.raises(DataError, match=r"in.csv, row 2, 4: the text is blank. .* --skip-blank leaves the label"):
        label_file(Lengths, source, tmp_path / "out.csv", Columns())
    result = label_file(Lengths, source, tmp_path / "out.jsonl", Columns(every=True), skip_blank=True)
    assert result == {
        "file": str(tmp_path / "out.jsonl"),
        "rows": 4,
        "blank": 2,
        "abstained": 0,
        "labels": {"short": 2},
    }
    rows = read(tmp_path / "out.jsonl")
    assert [row["label"] for row in rows] == ["short", None, "short", None]
    assert rows[1]["probability"] is rows[1]["probability_long"] is None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("in.csv", "id,text\n1,a\n2\n", r"line 3: 1 columns where the header has 2"),
        ("in.csv", 'id,text\n1,a\n2,"b\n', r"line 3: a quote is opened here and never closed"),
        ("in.csv", "id,text\n", r"no rows below the header"),
        ("in.csv", "id,name\n1,a\n", r"no column called text, sentence"),
        ("in.csv", b"id,text\n1,caf\xe9\n", r"line 2, byte 13: not valid utf-8"),
        ("in.csv", "id,text\n1,a\0b\n", r"line 2: a NUL character"),
        ("in.csv", b"\x89PNG\r\n", r"this is a PNG image, not text"),
        ("in.jsonl", '{"text": "a"}\n{"text": }\n', r"line 2, column \d+: not valid JSON"),
        ("in.jsonl", '{"text": "a"}\n{"txt": "b"}\n', r"line 2: no 'text' in this object \(txt\)"),
        ("in.jsonl", '{"text": "a", "x": NaN}\n', r"line 1: NaN is not a JSON number"),
        ("in.parquet", b"PAR1 and no more", r"not a readable parquet file"),
        ("in.txt", " \n", r"the file is empty"),
    ],
)
def test_a_bad_row_is_named_before_the_model_is_loaded_and_nothing_is_written(name, content, says, tmp_path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def load() -> Lengths:
        raise AssertionError("the rows come first")

    with pytest.raises(DataError, match=says):
        label_file(load, tmp_path / name, tmp_path / "out.csv", Columns())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_is_overwritten_unasked_and_a_failure_leaves_nothing_behind(tmp_path):
    source, out = write(tmp_path / "in.csv"), tmp_path / "out.csv"
    out.write_text("mine")
    with pytest.raises(UserError, match=r"already exists. Choose another --out, or give --overwrite"):
        label_file(Lengths, source, out, Columns())
    with pytest.raises(UserError, match="is the file that is read"):
        label_file(Lengths, source, source, Columns(), overwrite=True)

    class Breaks(Lengths):
        def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_file(Breaks, source, out, Columns(), overwrite=True)
    assert out.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    label_file(Lengths, source, out, Columns(), overwrite=True)
    assert len(read(out)) == len(TEXTS)


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    from headstart.text import table_writer

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_writer.SeparatedWriter, "write", full)
    with pytest.raises(ResourceError, match=r"Disk full writing .*out.csv"):
        label_file(Lengths, write(tmp_path / "in.csv"), tmp_path / "out.csv", Columns())
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("form", [".csv", ".jsonl", ".parquet"])
def test_memory_does_not_grow_with_the_file(form, tmp_path, monkeypatch):
    monkeypatch.setattr(table_stream, "AT_ONCE", 512)

    def peak(rows: int) -> int:
        source, out = tmp_path / f"{rows}{form}", tmp_path / f"{rows}-out{form}"
        write(source, ["word " * 40] * rows)
        tracemalloc.start()
        label_file(Lengths, source, out, Columns())
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(512)  # imports
    assert peak(8 * 512) < 1.5 * peak(2 * 512)


def test_where_a_chunk_ends_changes_no_answer(runs, tmp_path, monkeypatch):
    """Rows are padded to others then: equal to 6 digits."""
    load = LoadedClassifier.load(runs["full"])
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    label_file(lambda: load, runs["reviews.csv"], whole, Columns("said_"))
    monkeypatch.setattr(table_stream, "AT_ONCE", 7)
    label_file(lambda: load, runs["reviews.csv"], cut, Columns("said_"))
    rows, same = read(whole), read(cut)
    assert [row["said_label"] for row in rows] == [row["said_label"] for row in same]
    found, other = ([float(row["said_probability"]) for row in part] for part in (rows, same))
    assert found == pytest.approx(other, abs=1e-6)


def test_progress_reaches_all_rows(tmp_path):
    class Seen(Watch):
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def start(self, title: str, total: int, done: int = 0) -> None:
            self.calls.append(total)

        def reach(self, done: int, state: str, left: float | None = None) -> None:
            self.calls.append(done)

    watch = Seen()
    label_file(Lengths, write(tmp_path / "in.jsonl", ["a"] * (AT_ONCE + 5)), tmp_path / "x.csv", Columns(), watch=watch)
    assert watch.calls == [AT_ONCE + 5, AT_ONCE, AT_ONCE + 5]


def test_predict_writes_a_file_as_it_answers_on_the_terminal(runs, tmp_path):
    out = tmp_path / "out.jsonl"
    words = ["predict", str(runs["full"]), "--file", str(runs["reviews.csv"]), "--out", str(out), "--prefix", "said_"]
    done = CliRunner().invoke(app, [*words, "--all-probabilities", "--json"])
    assert done.exit_code == 0, done.stderr
    rows = read(out)
    answers = LoadedClassifier.load(runs["full"]).predict([row["text"] for row in rows])
    assert json.loads(done.stdout)["rows"] == len(rows) == 80
    for row, answer in zip(rows, answers, strict=True):
        assert row["said_label"] == answer["label"]
        assert row["said_probability"] == pytest.approx(max(answer["probabilities"].values()), abs=1e-6)
        for label, p in answer["probabilities"].items():
            assert row[f"said_probability_{label}"] == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a text", "--out", "x.csv"], "Leave out the texts and --also"),
        (["--out", "x.csv"], "--out needs a table to label: give --file"),
        (["a text", "--prefix", "p"], "--prefix is for a file to write: give --out"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(words, says):
    done = CliRunner().invoke(app, ["predict", "no-run", *words])
    assert done.exit_code == 2
    assert says in done.stderr
