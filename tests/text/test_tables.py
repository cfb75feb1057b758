"""JSON lines, Parquet and Arrow give the same rows as CSV, and say where they cannot."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from headstart.errors import DataError
from headstart.text.read import Example, read_corpus, read_labelled

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


@pytest.mark.parametrize("suffix", ["txt", "csv", "tsv", "jsonl", "parquet", "arrow"])
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_no_bytes_whatever_escape_as_anything_but_a_data_error(suffix, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / f"file.{suffix}"
    path.write_bytes(data)
    for read in (lambda: read_corpus([path], "sentence"), lambda: read_labelled(path, None, None)):
        with suppress(DataError):  # anything else fails the test
            read()
