"""Several labels in columns of 0 and 1, and in lists of Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.text.read import read_labelled
from headstart.text.split import split_labelled

HEADER = "id,comment_text,toxic,rude,length"
ROWS = [f"{i},text {i},{i % 2},{int(i % 3 == 0)},{i + 2}" for i in range(60)]


def table(folder: Path, rows: list[str]) -> str:
    file = folder / "rows.csv"
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return str(file)


def test_columns_of_nothing_but_0_and_1_are_labels(tmp_path: Path):
    found = read_labelled(table(tmp_path, ROWS), None, None)
    assert [e.label for e in found[:4]] == ['["rude"]', '["toxic"]', "[]", '["toxic", "rude"]']
    assert found[2].text == "text 2"
    data = split_labelled(LabelledConfig(train=table(tmp_path, ROWS)))
    assert (data.target.task, data.target.names) == ("multilabel", ("rude", "toxic"))


def test_named_columns_may_be_any_that_hold_0_and_1(tmp_path: Path):
    rows = [row.replace(",0,", ",false,").replace(",1,", ",TRUE,") for row in ROWS]
    found = read_labelled(table(tmp_path, rows), None, "rude, toxic")
    assert found[3].label == '["rude", "toxic"]'
    with pytest.raises(DataError, match=r"row 1: the label column 'length' holds '2', where 0 or 1 is needed"):
        read_labelled(table(tmp_path, ROWS), None, "toxic,length")


def test_one_such_column_is_not_enough(tmp_path: Path):
    with pytest.raises(DataError, match="no column called label"):
        read_labelled(table(tmp_path, [row.replace(",0,", ",7,", 1) for row in ROWS]), None, None)


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_lists_in_parquet_are_labels(tmp_path: Path, kind: pa.DataType):
    rows = [["a"], ["a", "b"], [], ["b"]] * 15
    columns = {"text": [f"text {i}" for i in range(60)], "labels": pa.array(rows, kind)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    data = split_labelled(LabelledConfig(train=str(tmp_path / "rows.parquet")))
    assert (data.target.task, data.target.names) == ("multilabel", ("a", "b"))
    assert read_labelled(tmp_path / "rows.parquet", None, None, keep_blank=True)[1].label == '["a", "b"]'


def test_a_list_of_lists_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"text": ["a"], "labels": [[["x"]]]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="'labels' holds"):
        read_labelled(tmp_path / "rows.parquet", None, None)
