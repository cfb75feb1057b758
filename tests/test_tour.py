"""The worked example of the tour: a kind of run that nothing in headstart/ knows, run as it stands."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headstart.config import PretrainConfig
from headstart.errors import ModelError
from headstart.jobs.estimate import estimate
from headstart.jobs.job import run_job
from headstart.jobs.pretrain import pretrain
from headstart.runs.kinds import KINDS
from headstart.runs.run import Run, runs_in
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.use.predict import LoadedClassifier

TOUR = (Path(__file__).parent.parent / "docs" / "tour.md").read_text("utf-8")


@pytest.fixture(scope="module")
def vowels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("vowels")
    code = re.search(r'^```python title="vowels.py"\n(.*?)^```$', TOUR, re.MULTILINE | re.DOTALL)
    assert code
    (folder / "vowels.py").write_text(code[1], "utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("vowels")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("vowels", None)
        KINDS.pop("vowels", None)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("base")
    words = ("oak", "ivy", "rye", "elm", "sky", "try", "queue", "why", "area", "myth")
    lines = [f"{a} {b} {c}" for a in words for b in words for c in words[::3]]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n", "utf-8")
    train = {"steps": 200, "batch_size": 16, "lr": 0.003, "threads": 1, "tensorboard": False}
    settings = {
        "data": {"paths": [str(folder / "texts.txt")], "unit": "line"},
        "tokenizer": {"kind": "word"},
        "samples": [],
    }
    pretrain(
        parse(PretrainConfig, {**settings, "model": {"size": "nano", "context": 16}, "train": train}), folder / "base"
    )
    return {"base": str(folder / "base"), "texts": str(folder / "texts.txt")}


class Killer(Watch):
    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        if done == 25:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("drawn")
def test_it_trains_resumes_to_the_last_bit_predicts_and_is_listed(
    vowels: ModuleType, base: dict[str, Any], tmp_path: Path
) -> None:
    cfg = vowels.VowelsConfig(**base)
    result = run_job(cfg, tmp_path / "whole")
    assert result["valid"]["mae"] < 1
    with pytest.raises(KeyboardInterrupt):
        run_job(cfg, tmp_path / "killed", watch=Killer())
    assert not Run(tmp_path / "killed").finished
    run_job(cfg, tmp_path / "killed", resume=True)
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "killed")]
    assert weights[0] == weights[1]
    few, many = vowels.predict(tmp_path / "whole", ["sky try why", "queue area queue"])
    assert few < 3 < many
    assert {run.job for run in runs_in(tmp_path)} == {"vowels"}
    assert (tmp_path / "whole" / "curves.png").exists()


def test_it_is_estimated_and_other_verbs_refuse_it_by_name(
    vowels: ModuleType, base: dict[str, Any], tmp_path: Path
) -> None:
    assert estimate(vowels.VowelsConfig(**base))["steps"] == 150
    run_job(vowels.VowelsConfig(**base), tmp_path / "run")
    with pytest.raises(ModelError, match=r"holds a vowel counter, not a classifier\. Train one: headstart finetune"):
        LoadedClassifier.load(tmp_path / "run")


def test_it_is_compared_with_scratch_by_the_study_engine(
    vowels: ModuleType, base: dict[str, Any], tmp_path: Path
) -> None:
    errors = vowels.compare(base["base"], base["texts"], tmp_path / "study", seeds=2)
    assert [len(found) for found in errors.values()] == [2, 2]
    assert max(errors["pretrained"]) < 1.5
    made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "study" / "cells").glob("*/result.json")}
    assert vowels.compare(base["base"], base["texts"], tmp_path / "study", seeds=2) == errors
    assert made == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "study" / "cells").glob("*/result.json")}
