"""Data sets of the hub come through by name; without library or network one sentence says what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headstart.errors import DataError, NetworkError, ResourceError, UserError
from headstart.hub.packs import located
from headstart.text.read import Example, read_corpus, read_labelled

ROWS = {"train": [("a fine film", 1), ("a poor one", 0)], "test": [("another", 1)]}


class DatasetsError(Exception):
    pass


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A stand-in for the datasets library, which the tests do not install, and the calls it gets."""
    calls: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str | None, split: str) -> SimpleNamespace:
        calls.append((name, config, split))
        if name == "offline":
            raise ConnectionError("Couldn't reach 'offline' on the Hub\nand more")
        if name == "large":
            raise OSError(28, "No space left on device")
        if name == "broken":
            raise DatasetsError("An error occurred while generating the dataset\n\nand more")
        if split not in ROWS:
            raise ValueError(f'Unknown split "{split}".')
        table = pa.table({"text": [text for text, _ in ROWS[split]], "label": [label for _, label in ROWS[split]]})
        return SimpleNamespace(to_parquet=lambda path: parquet.write_table(table, path))

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    module.exceptions = SimpleNamespace(DatasetsError=DatasetsError)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def test_rows_come_through_and_are_fetched_once(library):
    for _ in range(2):
        assert read_labelled(located("hf:owner/films"), None, None) == [
            Example("a fine film", "1"),
            Example("a poor one", "0"),
        ]
    assert read_corpus([located("hf:owner/films:plain:test")], "line") == ["another"]
    assert located("hf:films::test") != located("hf:films")
    assert library == [
        ("owner/films", None, "train"),
        ("owner/films", "plain", "test"),
        ("films", None, "test"),
        ("films", None, "train"),
    ]


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # how Python marks what cannot be imported
    with pytest.raises(UserError, match=r"hf:films needs the library datasets: pip install 'headstart\[datasets\]'\."):
        located("hf:films")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("hf:offline", NetworkError, "hf:offline could not be downloaded: Couldn't reach 'offline' on the Hub$"),
        ("hf:large", ResourceError, r"hf:large could not be kept \(No space left on device\)\. Free some space"),
        ("hf:broken", DataError, "hf:broken: An error occurred while generating the dataset$"),
        ("hf:films::dev", DataError, 'hf:films::dev: Unknown split "dev"'),
        ("hf:", DataError, "is not hf:NAME"),
        ("hf:../../x", DataError, "is not hf:NAME"),
        ("hf:a:b:c:d", DataError, "is not hf:NAME"),
    ],
)
def test_a_fault_is_one_sentence_and_leaves_nothing(library, name, error, says, cache):
    with pytest.raises(error, match=says):
        located(name)
    assert list(cache.iterdir()) == []


def test_a_file_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf:films").write_text("mine")
    assert located("hf:films") == "hf:films"
