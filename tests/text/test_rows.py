"""Rows out of the layouts in which data sets come."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import DataError
from headstart.text.read import Example, read_labelled
from headstart.text.rows import as_csv, drawn, read_rows


def test_texts_and_labels_that_go_line_by_line_become_one_table(tmp_path: Path) -> None:
    (tmp_path / "train.spm").write_text('▁J \' ai ▁aimé , ▁" oui "\n▁Mau vais\n')
    (tmp_path / "train.label").write_text("1\n0\n")
    out = tmp_path / "rows.csv"
    words = ["data", "table", str(tmp_path / "train.spm"), str(tmp_path / "train.label"), "--pieces", "--out", str(out)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"file": str(out), "rows": 2, "labels": {"0": 1, "1": 1}}
    assert read_labelled(out, None, None) == [Example('J\'ai aimé, "oui"', "1"), Example("Mauvais", "0")]


def test_a_label_too_few_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("1\n")
    with pytest.raises(DataError, match=r"has 2 lines and .*b\.txt 1"):
        read_rows(tmp_path / "a.txt", tmp_path / "b.txt")


def test_the_first_rows_of_a_table_keep_their_order(reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "first.csv"
    assert CliRunner().invoke(app, ["data", "table", str(reviews), "--first", "5", "--out", str(out)]).exit_code == 0
    assert read_labelled(out, None, None) == read_labelled(reviews, None, None)[:5]


def test_rows_drawn_by_chance_are_the_same_each_time_and_not_the_first() -> None:
    rows = [Example(f"text {i}", "") for i in range(100)]
    some = drawn(rows, 20)
    assert len(some) == 20
    assert some == drawn(rows, 20)
    assert some != rows[:20]
    assert some == sorted(some, key=rows.index)


def test_each_text_of_an_archive_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "novels.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name, text in (("novels/b.txt", "second\nnovel"), ("novels/a.txt", "first")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    rows = read_rows(file)
    assert [row.text for row in rows] == ["first", "second\nnovel"]
    assert as_csv(rows) == 'text\nfirst\n"second\nnovel"\n'


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "evil.tar"
    with tarfile.open(file, "w") as archive:
        entry = tarfile.TarInfo("../outside.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(DataError, match="not a readable archive"):
        read_rows(file)


def test_a_table_is_not_written_over_what_it_is_made_of(reviews: Path) -> None:
    done = CliRunner().invoke(app, ["data", "table", str(reviews), "--out", str(reviews)])
    assert done.exit_code == 2
    assert "takes another .csv file" in done.stderr
