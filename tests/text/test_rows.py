"""Rows out of the layouts in which data sets come."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import tarfile
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.data import ReadConfig
from headstart.errors import DataError, ResourceError
from headstart.text import archive
from headstart.text.files import Reading
from headstart.text.read import Example, read_corpus, read_labelled
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


def archived(file: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(file, mode) as archive:
        for entry, data in members:
            entry.size = len(data) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(data))
    return file


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry, data


def escaping() -> list[tuple[tarfile.TarInfo, bytes]]:
    """The links of CVE-2025-4517: their whole path is longer than the system resolves, so that they seem to stay inside."""
    long, steps, folder = "d" * 247, "abcdefghijklmnop", ""
    members = []
    for step in steps:
        members += [member(f"{folder}{long}", kind=tarfile.DIRTYPE)]
        members += [member(f"{folder}{step}", kind=tarfile.SYMTYPE, link=long)]
        folder += f"{long}/"
    end = "/".join(steps) + "/" + "l" * 254
    members += [member(end, kind=tarfile.SYMTYPE, link="../" * len(steps))]
    members += [member("escape", kind=tarfile.SYMTYPE, link=f"{end}/../..")]
    return [*members, member("escape/written.txt", b"evil"), member("good.txt", b"good")]


def test_nothing_of_an_archive_is_ever_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    file = archived(tmp_path / "evil.tar", *escaping())
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        for name in ("mkdtemp", "mkstemp", "TemporaryDirectory", "TemporaryFile"):
            patch.setattr(tempfile, name, lambda *_, **__: pytest.fail("a temporary folder or file is made"))
        reading = Reading(ReadConfig())
        assert [row.text for row in read_rows(file, reading=reading)] == ["evil", "good"]
    assert sorted(tmp_path.rglob("*")) == before
    (note,) = reading.notes()
    assert "evil.tar: 18 links and devices were not read: " in note


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/outside.txt", "a/../../b.txt"])
def test_a_name_that_leads_out_of_its_archive_is_refused(name: str, tmp_path: Path) -> None:
    file = archived(tmp_path / "evil.tar", member("good.txt", b"good"), member(name, b"evil"))
    with pytest.raises(
        DataError, match=rf"evil.tar: the name of its file '{re.escape(name)}' leads out of the archive"
    ):
        read_rows(file)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_are_not_read_and_that_is_told(kind: bytes, tmp_path: Path) -> None:
    file = archived(tmp_path / "a.tar", member("a.txt", b"one"), member("b.txt", kind=kind, link="a.txt"))
    done = CliRunner().invoke(app, ["data", "table", str(file), "--out", str(tmp_path / "rows.csv")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "rows.csv").read_text() == "text\none\n"
    assert "a.tar: 1 link or device was not read: 'b.txt'." in done.stderr


def test_tables_and_texts_of_an_archive_are_read_as_those_of_a_folder(tmp_path: Path) -> None:
    from pyarrow import parquet, table

    folder = tmp_path / "made"
    for name, data in {
        "b/rows.csv": "text,label\nfirst row,1\nsecond row,0\n",
        "a-file.txt": "among the first\r\n",
        "a/z.txt": "\ufeffwith a mark",
        "c.jsonl": '{"text": "of an object"}\n',
        "passed.over": "\0",
        "Upper.TXT": "loud",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(data, "utf-8", newline="")
    parquet.write_table(table({"text": ["from a column"]}), folder / "d.parquet")
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar", "w:xz"), (".tar", "w:bz2")):
        file = tmp_path / f"made{suffix}"
        with tarfile.open(file, mode) as archive:
            archive.add(folder, ".")
        assert [row.text for row in read_rows(file)] == read_corpus([folder], "document")


def test_faults_inside_an_archive_name_the_file_and_what_was_changed_is_counted(tmp_path: Path) -> None:
    file = archived(tmp_path / "a.tar", member("x/bad.txt", b"caf\xe9\n\0"))
    with pytest.raises(DataError, match=r"a\.tar/x/bad\.txt, line 1, byte 3: not valid utf-8 \(byte 0xE9\)"):
        read_rows(file)
    reading = Reading(ReadConfig(on_bad_bytes="replace", strip_nul=True))
    assert [row.text for row in read_rows(file, reading=reading)] == ["caf\ufffd\n"]
    assert reading.facts() == {"replaced": 1, "nuls_removed": 1}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_damaged_archive_is_refused_in_one_sentence(mode: str, tmp_path: Path) -> None:
    file = archived(tmp_path / "a.tar", member("a.txt", b"some text " * 500), member("b.txt", b"more"), mode=mode)
    whole = file.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(1024, len(data)))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.3 else None])
        with suppress(DataError):  # nothing else is raised
            read_rows(file)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("name", ["a.txt", "a.bin", "x" * 16_000_000], ids=["text", "other", "name"])
def test_a_bomb_is_refused_before_it_takes_the_memory(name, mode, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archive, "MOST_TEXT", 1_000_000)
    monkeypatch.setattr(archive, "MOST_UNPACKED", 2_000_000)
    file = archived(tmp_path / "a.tar", member(name, b"a" * 16_000_000), member("b.txt", b"b"), mode=mode)
    tracemalloc.start()
    try:
        if name == "a.bin" and mode == "w":  # passed over without being read
            assert [row.text for row in read_rows(file)] == ["b"]
        else:
            with pytest.raises(ResourceError, match=r"a\.tar: more than [\d,]+ bytes "):
                read_rows(file)
        assert tracemalloc.get_traced_memory()[1] < 12_000_000  # xz takes 8 MB for any file
    finally:
        tracemalloc.stop()


def test_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 10)
    file = archived(tmp_path / "a.tar", *(member(f"{i}.txt", b"a") for i in range(11)))
    with pytest.raises(ResourceError, match="more than 10 files"):
        read_rows(file)


def test_a_table_is_not_written_over_what_it_is_made_of(reviews: Path) -> None:
    done = CliRunner().invoke(app, ["data", "table", str(reviews), "--out", str(reviews)])
    assert done.exit_code == 2
    assert "takes another .csv file" in done.stderr


def test_a_file_that_is_there_is_not_written_over_unasked(reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("mine")
    words = ["data", "table", str(reviews), "--first", "5", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert f"error[FILE_EXISTS]: {out} already exists. Choose another --out, or give --overwrite." in done.stderr
    assert out.read_text() == "mine"
    assert CliRunner().invoke(app, [*words, "--overwrite"]).exit_code == 0
    assert len(read_labelled(out, None, None)) == 5
    assert CliRunner().invoke(app, words).exit_code == 0  # the same table again changes nothing


def test_a_folder_or_a_dangling_link_in_the_place_of_the_table_is_refused(reviews: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to("nowhere")
    for name in ("folder.csv", "link.csv"):
        done = CliRunner().invoke(app, ["data", "table", str(reviews), "--out", str(tmp_path / name)])
        assert done.exit_code == 2, done.output
        assert "already exists" in done.stderr


def test_cells_that_a_spreadsheet_would_compute_can_be_escaped(tmp_path: Path) -> None:
    cells = ["=1+2", "+1", "-1", "@SUM(A1)", "\ttab", "safe = yes", "", "'=1"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": c, "label": c or "x"}) + "\n" for c in cells))
    words = ["data", "table", str(tmp_path / "a.jsonl"), "--json"]
    for flag, expected, count in (
        ([], cells, None),
        (["--escape-formulas"], ["'=1+2", "'+1", "'-1", "'@SUM(A1)", "'\ttab", "safe = yes", "", "'=1"], 10),
    ):
        out = tmp_path / f"{len(flag)}.csv"
        done = CliRunner().invoke(app, [*words, "--out", str(out), *flag])
        assert done.exit_code == 0, done.output
        with out.open(newline="") as file:
            found = list(csv.reader(file))[1:]
        assert [row[0] for row in found] == expected
        assert [row[1] for row in found] == [text or "x" for text in expected]
        assert json.loads(done.stdout).get("escaped") == count
