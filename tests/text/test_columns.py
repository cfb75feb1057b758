"""Every column of a table beside its texts: nothing is lost, and a fault is found before the first row is used."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.text.columns import Table
from headstart.text.files import Reading


def rows(table: Table, size: int = 2) -> list[list[object]]:
    return [row for part in table.parts(size) for row in part.rows]


def test_separated_values_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text,note\n01,"one, two",\n02,three,x\n03,,y\n')
    table = Table.open(tmp_path / "a.csv")
    assert (table.text_column, table.count, table.blank) == ("text", 3, 1)
    assert rows(table) == [["01", "one, two", ""], ["02", "three", "x"], ["03", "", "y"]]
    assert [part.texts for part in table.parts(2)] == [["one, two", "three"], [""]]


def test_json_keeps_numbers_and_keys_that_the_first_object_has_not(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "n": 1}\n{"text": "two", "n": 2, "tags": ["x"], "odd": 1}\n'
                                      '{"text": "three", "odd": "b"}\n')  # fmt: skip
    table = Table.open(tmp_path / "a.jsonl")
    assert table.types == {"text": None, "n": pa.int64(), "tags": None, "odd": None}
    assert rows(table) == [["one", 1, None, None], ["two", 2, '["x"]', "1"], ["three", None, None, "b"]]


def test_a_number_that_is_too_large_for_a_column_of_numbers_becomes_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "one", "n": 1}}\n{{"text": "two", "n": {2**63}}}\n')
    assert [row[1] for row in rows(Table.open(tmp_path / "a.jsonl"))] == ["1", str(2**63)]


def test_parquet_keeps_its_types_and_nested_columns_are_reported(tmp_path: Path) -> None:
    made = pa.table({"text": ["one", "two"], "n": pa.array([1, 2], pa.int16()), "tags": [["a"], ["b"]]})
    write_table(made, tmp_path / "a.parquet")
    reading = Reading(LabelledConfig(train=""))
    table = Table.open(tmp_path / "a.parquet", reading=reading)
    assert table.types == {"text": pa.string(), "n": pa.int16()}
    assert rows(table) == [["one", 1], ["two", 2]]
    assert "left out: tags" in reading.notes()[0]


def test_the_lines_of_a_text_are_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert rows(Table.open(tmp_path / "a.txt")) == [["one"], [""], ["two"]]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "id,text\n1,one\n2,two,three\n", "line 3: 3 columns"),
        ("a.csv", "id,words\n1,one\n", "--text-column"),
        ("a.jsonl", '{"text": "one"}\n{"words": "two"}\n', "line 2: no 'text'"),
        ("a.csv", "id,text\n1,\n", "no text in it"),
        ("a.txt", " \n", "the file is empty"),
    ],
)
def test_a_fault_is_found_when_the_table_is_opened(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=says):
        Table.open(tmp_path / name)
