"""docs/inside.ipynb: executed in order, free of faults, and still running as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CELLS = [
    cell
    for cell in json.loads((Path(__file__).parent.parent / "docs" / "inside.ipynb").read_text("utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


def test_every_cell_was_executed_in_order_and_shows_something() -> None:
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    assert {output["output_type"] for cell in CELLS for output in cell["outputs"]} == {"execute_result", "stream"}
    assert all(cell["outputs"] for cell in CELLS)
    pages = [output["data"]["text/html"] for cell in CELLS for output in cell["outputs"] if "data" in output
             and "text/html" in output["data"]]  # fmt: skip
    assert len(pages) == 6
    assert all("headstart-seen" in "".join(page) for page in pages)


@pytest.mark.slow
def test_the_notebook_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in CELLS:
        exec("".join(cell["source"]), names)  # noqa: S102
    assert names["frozen"]["change"].moved == []
    assert names["result"]["train"]["loss"] < 0.5
