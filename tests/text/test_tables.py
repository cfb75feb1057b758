"""JSON lines, Parquet and Arrow give the same rows as CSV, and say where they cannot."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from headstart.data import ReadConfig
from headstart.errors import DataError, ResourceError
from headstart.text import arrow
from headstart.text.files import Reading
from headstart.text.read import Example, read_corpus, read_labelled
from headstart.text.tables import read_columns

ROWS = [("a fine film", "1"), ('a poor\tone, "really"', "0"), ("été 🧀", "1")]
EXAMPLES = [Example(text, label) for text, label in ROWS]


def write_csv(path: Path) -> Path:
    path = path / "rows.csv"
    lines = ['"' + text.replace('"', '""') + f'",{label}' for text, label in ROWS]
    path.write_text("\n".join(["text,label", *lines]), "utf-8")
    return path


def write_jsonl(path: Path) -> Path:
    path = path / "rows.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": i, "text": t, "label": int(n)}) for i, (t, n) in enumerate(ROWS)), "utf-8"
    )
    return path


def table() -> pa.Table:
    return pa.table({"label": [int(n) for _, n in ROWS], "text": [t for t, _ in ROWS]})


def arrow_bytes(write: Callable[[pa.Table, pa.NativeFile], object]) -> bytes:
    sink = pa.BufferOutputStream()
    write(table(), sink)
    return sink.getvalue().to_pybytes()


def write_parquet(path: Path) -> Path:
    parquet.write_table(table(), path / "rows.parquet")
    return path / "rows.parquet"


def write_saved_dataset(path: Path) -> Path:
    (path / "saved").mkdir()
    with ipc.new_stream(path / "saved" / "data-00000-of-00001.arrow", table().schema) as stream:
        stream.write_table(table())
    return path / "saved"


@pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet, write_saved_dataset])
def test_every_table_gives_the_same_rows(write, tmp_path):
    path = write(tmp_path)
    assert read_labelled(path, None, None) == EXAMPLES
    assert read_corpus([path], "line") == [e.text for e in EXAMPLES]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"text": "a", "label": }', r"line 2, column \d+: not valid JSON"),
        ('{"text": "a", "text": "b", "label": 1}', "line 2: the key 'text' stands twice"),
        ('{"text": "a", "label": NaN}', "line 2: NaN is not a JSON number"),
        ('{"text": "a", "label": Infinity}', "line 2: Infinity is not a JSON number"),
        ('{"text": "a", "label": 1e999}', "line 2: the number 1e999 is too large"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "line 2: a number of 5000 digits"),
        ('{"text": "a", "label": ' + "[" * 100_000, "line 2: nested too deeply"),
        ('{"text": "\\ud800", "label": 1}', "line 2: 'text' holds half a character"),
        ('{"text": ["a"], "label": 1}', "line 2: 'text' holds a list"),
        ('{"label": 1}', "line 2: no 'text' in this object"),
        ("[1, 2]", "line 2: a list where an object"),
        ('{"text": "a", "label": null}', "row 2: the label is blank"),
    ],
)
def test_a_bad_json_line_is_named(line, says, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x", "label": 1}\n' + line, "utf-8")
    with pytest.raises(DataError, match=says):
        read_labelled(path, None, None)


def test_truth_values_are_labels(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x", "label": true}\n\n{"text": "y", "label": false}\n')
    assert [e.label for e in read_labelled(path, None, None)] == ["true", "false"]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_what_is_no_arrow_file_is_said_to_be_none(name, tmp_path):
    (tmp_path / name).write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="not a readable"):
        read_labelled(tmp_path / name, None, None)


VALID = {
    "txt": "A line. Another!\r\n\nThe «third», été 🧀.\n".encode(),
    "csv": b'text,label\n"two\nlines, ""quoted""",pos\nplain,neg\n' + "été 🧀,pos\n".encode(),
    "tsv": b'text\tlabel\n"one\tpos\ntwo\tneg\n',
    "jsonl": b'{"text": "a \\"b\\" \\u00e9", "label": 1}\n\n{"label": null, "text": "c", "more": [1.5, {}]}\n',
    "json": b'[{"text": "a \\"b\\" \\u00e9", "label": 1},\n\n {"label": null, "text": "c", "more": [1.5, {}]}]\n',
    "tab": b"text\tlabel\ns\td\nm\tclass\none\tpos\ntwo\tneg\n",
    "parquet": arrow_bytes(lambda table, sink: parquet.write_table(table, sink)),
    "arrow": arrow_bytes(lambda table, sink: ipc.new_stream(sink, table.schema).write_table(table)),
}
MARKS = [b'"', b'""', b"\0", b"\xff", b"\xe9", b"\xef\xbb\xbf", b"\xff\xfe", b",", b"\t", b";", b"\n", b"\r", b"\r\n",
         "\u2028".encode(), b"\x1c", b"{", b"}", b"[" * 2000, b"\\ud800", b"\\u0000", b"NaN", b"1e999", b"9" * 5000, b"-",
         b"true", b'"text": "x", ', b"PAR1", b"\x1f\x8b", b" " * 50, b"\x07" * 20]  # fmt: skip


def changed(data: bytes, rng: random.Random) -> bytes:
    """Nearly what it was: stretches cut out, bytes flipped, marks put in."""
    for _ in range(rng.randint(0, 4)):
        place = rng.randint(0, len(data))
        match rng.choice(["cut", "end", "flip", "insert", "insert"]):
            case "cut":
                data = data[:place] + data[place + rng.randint(1, 20) :]
            case "end":
                data = data[: max(place, len(data) - rng.randint(1, 50))]
            case "flip":
                data = (
                    data[:place] + bytes(b ^ rng.randint(1, 255) for b in data[place : place + 1]) + data[place + 1 :]
                )
            case "insert":
                data = data[:place] + rng.choice([*MARKS, rng.randbytes(3)]) + data[place:]
    return data


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_column_name_that_is_no_text_is_a_fault_of_the_file(suffix, tmp_path):
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(VALID[suffix].replace(b"label", b"l\xf4bel"))
    with pytest.raises(DataError, match=f"not a readable {suffix} file"):
        read_labelled(path, None, None)


@pytest.mark.parametrize("suffix", VALID)
def test_no_bytes_whatever_escape_as_anything_but_a_data_error(suffix, tmp_path):
    path, outcomes = tmp_path / f"fuzz.{suffix}", Counter[str]()
    lenient = Reading(ReadConfig(on_bad_bytes="replace", strip_nul=True, max_line_bytes=6000))
    readers = [
        lambda: read_labelled(path, None, None),
        lambda: read_corpus([path], "sentence"),
        lambda: read_corpus([path], "line", reading=lenient),
    ]
    for seed in range(1000):
        rng = random.Random(seed)
        path.write_bytes(changed(rng.randbytes(rng.randint(0, 300)) if seed % 10 == 0 else VALID[suffix], rng))
        for read in readers:
            try:
                read()
                outcomes["read"] += 1
            except DataError as error:
                outcomes[error.code] += 1
            except BaseException as error:
                raise AssertionError(f"seed {seed}: {path.read_bytes()!r}") from error
    assert outcomes["read"] > 300  # most of them are nearly right, or little is tested
    assert len(outcomes) >= 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", '"text";"label"\n"a fine, long; film";1\n"a poor, one";0\n'),
        ("a.csv", "sep=;\ntext;label\n\"a fine, long; film\";1\na poor, one;0\n"),
        ("a.csv", "\ufeffText ;LABEL\n\"a fine, long; film\";1\na poor, one;0\n"),
        ("a.csv", "text\tlabel\na fine, long; film\t1\na poor, one\t0\n"),
        ("a.csv", "label|text\n1|a fine, long; film\n0|a poor, one\n"),
        ("a.tsv", 'text,label\n"a fine, long; film",1\n"a poor, one",0\n'),
        ("a.tsv", "Label\tContent\n1\ta fine, long; film\n0\ta poor, one\n"),
        ("a.csv", 'Review_Text,Sentiment\n"a fine, long; film",1\n"a poor, one",0\n'),
        ("a.csv", 'title,body,intent\nx,"a fine, long; film",1\ny,"a poor, one",0\n'),
        ("a.json", '[{"text": "a fine, long; film", "label": 1},\n {"label": 0, "text": "a poor, one"}]\n'),
        ("a.json", '{"text": "a fine, long; film", "label": 1}\n{"label": 0, "text": "a poor, one"}\n'),
        ("a.tab", "n\tremark\tkind\nc\ts\td\n\tmeta\tclass\n7\ta fine, long; film\t1\n8\ta poor, one\t0\n"),
        ("a.tab", "C#n\tmS#remark\tcD#kind\n7\ta fine, long; film\t1\n8\ta poor, one\t0\n"),
        ("a.tab", "text\tlabel\na fine, long; film\t1\na poor, one\t0\n"),
    ],
)  # fmt: skip
def test_separators_columns_and_layouts_are_found(name, text, tmp_path):
    (tmp_path / name).write_text(text, "utf-8")
    expected = [Example("a fine, long; film", "1"), Example("a poor, one", "0")]
    assert read_labelled(tmp_path / name, None, None) == expected
    assert read_corpus([tmp_path / name], "line") == [e.text for e in expected]


def test_of_several_columns_for_the_text_the_first_is_read_and_the_others_are_told(tmp_path):
    path, reading = tmp_path / "a.csv", Reading(ReadConfig())
    path.write_text("Title,Body,label\nx,a fine film,1\n")
    assert read_labelled(path, None, None, reading) == [Example("a fine film", "1")]
    assert reading.notes() == [f"{path}: the column 'Body' is read, not 'Title'; --text-column names another."]
    assert read_labelled(path, "title", None) == [Example("x", "1")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"text": "a", "label": 1},\n{"text": "b", "label": [1, null]}]', "line 2: 'label' holds a list"),
        ('[{"text": "a", "label": 1},\n\n{"text": "b" "label": 1}]', "line 3, column 14: not valid JSON"),
        ('[{"text": "a", "label": 1}\n{"text": "b", "label": 1}]', "line 2: not valid JSON .a comma or ]"),
        ('[{"text": "a", "label": 1},\n7]', "line 2: a int where an object"),
        ('[{"text": "a", "label": 1},]', "line 1, column 28: not valid JSON"),
        ('[{"text": "a", "label": 1}', "line 1: not valid JSON"),
        ('[{"text": "a", "label": 1}] and more', "more behind the end of the list"),
        ('[{"text": "a", "label": 1},\n{"text": "b"}]', "line 2: no 'label' in this object"),
    ],
)
def test_a_fault_in_a_list_of_objects_is_named_by_its_line(text, says, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=says):
        read_labelled(tmp_path / "a.json", None, None)


def test_json_that_holds_no_rows_is_text_as_before_and_passed_over_in_a_folder(tmp_path):
    (tmp_path / "a.txt").write_text("one line\n")
    (tmp_path / "b.json").write_text('{"version": 3}\n')
    (tmp_path / "c.json").write_text('[{"text": "a row"}]')
    assert read_corpus([tmp_path], "line") == ["one line", "a row"]
    assert read_corpus([tmp_path / "b.json"], "line") == ['{"version": 3}']


def repeated(text: str, rows: int) -> pa.Array:
    """`text` that often, kept once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


BOMBS = {
    "rows": {"text": repeated("", 30_000)},
    "repeated text": {"text": repeated("a" * 10_000, 2000)},
    "packed text": {"text": ["a" * 9_000_000]},
    "packed dictionary": {"text": repeated("a" * 9_000_000, 1)},
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_table_that_unpacks_to_far_more_than_its_file_is_refused(bomb, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "MANY_ROWS", 20_000)
    monkeypatch.setattr(arrow, "MANY_BYTES", 1_000_000)
    made, path = pa.table({**BOMBS[bomb], "label": repeated("1", len(BOMBS[bomb]["text"]))}), tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        parquet.write_table(made, path, compression="zstd")
    else:
        with ipc.new_stream(path, made.schema, options=ipc.IpcWriteOptions(compression="zstd")) as sink:
            sink.write_table(made.combine_chunks())
    assert path.stat().st_size < 20_000
    before = pa.total_allocated_bytes()
    with pytest.raises(ResourceError, match=r"a\.\w+: more than [\d,]+ (rows|bytes) would come out of a file of"):
        read_labelled(path, None, None)
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_columns_that_nobody_asks_for_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "MANY_BYTES", 1_000_000)
    made = pa.table({"text": ["a", "b"], "other": ["a" * 9_000_000] * 2, "label": ["1", "2"]})
    parquet.write_table(made, tmp_path / "a.parquet", compression="zstd")
    assert read_labelled(tmp_path / "a.parquet", None, None) == [Example("a", "1"), Example("b", "2")]


def test_a_column_that_is_no_longer_said_to_have_gaps_does_not_end_the_process(tmp_path):
    """pyarrow aborts when it is asked for the facts of such a column, and only complains when it reads it."""
    parquet.write_table(pa.table({"text": ["a", "b"], "label": ["1", "2"]}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    changed = data.replace(b"\x25\x02\x18\x04text", b"\x25\x00\x18\x04text")  # optional -> required, in Thrift
    assert changed != data
    (tmp_path / "a.parquet").write_bytes(changed)
    code = f"from headstart.text.read import read_labelled; read_labelled({str(tmp_path / 'a.parquet')!r}, None, None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # an exception, no signal
    assert "not a readable parquet file" in done.stderr


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_categories_and_numbers_are_read_as_they_are_written(suffix, tmp_path):
    labels = pa.array(["x", None, "x"]).dictionary_encode()
    made, path = pa.table({"text": ["a", "b", "c"], "label": labels, "n": [1, 2, 3]}), tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        parquet.write_table(made, path, row_group_size=2)
    else:
        with ipc.new_stream(path, made.schema, options=ipc.IpcWriteOptions(compression="lz4")) as sink:
            sink.write_table(made)
    columns = [(name, (), "") for name in ("n", "label", "text")]
    assert list(read_columns(path, columns)) == [["1", "x", "a"], ["2", "", "b"], ["3", "x", "c"]]


def test_a_list_where_a_text_is_needed_is_refused(tmp_path):
    parquet.write_table(pa.table({"text": [["a"], ["b"]], "label": ["1", "2"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'text' holds list<element: string>, not text"):
        read_labelled(tmp_path / "a.parquet", None, None)
