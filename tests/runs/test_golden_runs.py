"""Runs of every released format are still read; golden/make.py made them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.data import ReadConfig
from headstart.models.decode import Sampling
from headstart.runs.run import FORMAT, Run
from headstart.text.files import Reading
from headstart.use.language import LoadedLanguageModel

GOLDEN = Path(__file__).parent.parent / "golden"
FORMATS = sorted(GOLDEN.glob("format-*"), key=lambda path: path.name)


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work on, seen from the folder it was made in."""
    shutil.copytree(request.param, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return tmp_path / "golden" / "run"


def test_there_is_a_golden_run_of_every_format() -> None:
    assert [path.name for path in FORMATS] == [f"format-{number}" for number in range(1, FORMAT + 1)]


def test_a_finished_run_is_read(golden: Path) -> None:
    result = Run.open(golden).read_json("result.json")
    low, high = sorted((result["train"]["loss"], result["valid"]["loss"]))
    loss = LoadedLanguageModel.load(golden).evaluate(["corpus.txt"], None, None, Reading(ReadConfig()))["loss"]
    assert low - 1e-4 < loss < high + 1e-4, "the mean over the lines of both"
    assert LoadedLanguageModel.load(golden).generate("I", 3, Sampling(), top=1)["tokens"]


def test_an_unfinished_run_goes_on(golden: Path) -> None:
    before = json.loads((golden / "result.json").read_text())
    shutil.rmtree(golden / "checkpoints" / "step-0000006")
    (golden / "result.json").unlink()
    done = CliRunner().invoke(app, ["pretrain", "--out", "run", "--resume", "--quiet", "--json"])
    assert done.exit_code == 0, done.output
    after = json.loads(done.stdout)
    assert after["steps"] == before["steps"] == 6
    assert after["valid"]["loss"] == pytest.approx(before["valid"]["loss"], rel=1e-4)
    assert after["tokens"] == before["tokens"]
