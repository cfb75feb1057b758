"""What is left of a study that was interrupted or damaged is shown or refused in a sentence, and it goes on from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.schema import parse
from headstart.study.classify import run_study
from headstart.study.plan import StudyConfig
from headstart.study.study import Study
from headstart.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    lines = [f"word{i} film was {('awful', 'lovely')[i % 2]},{'np'[i % 2]}" for i in range(40)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def settings(rows: Path, **changes: Any) -> StudyConfig:
    shape = {"layers": 1, "heads": 1, "width": 8, "ff": 8, "context": 16}
    finetune = {"epochs": 1, "model": shape, "tokenizer": {"kind": "word"}, "train": {"threads": 1}}
    common = {"data": {"train": str(rows)}, "bases": ["gpt"], "arms": ["majority", "scratch"], "seeds": 2}
    return parse(StudyConfig, {**common, "rates": [0.01], "least_steps": 2, "finetune": finetune, **changes})


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of a preset, which has no weights to begin with."""
    return Study.run(settings(rows), tmp_path_factory.mktemp("whole") / "study").folder


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be harmed."""
    return Path(shutil.copytree(whole, tmp_path / "study"))


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_preset_is_compared_from_scratch_with_a_tokenizer_of_the_training_rows(whole: Path, rows: Path) -> None:
    results = json.loads((whole / "results.json").read_text("utf-8"))
    assert [(arm["name"], arm["seeds"]) for arm in results["arms"]] == [("majority", 1), ("scratch", 2)]
    assert results["pretraining"] == []
    known = Tokenizer.load(whole / "cells" / "scratch-gpt~all~0" / "model" / "tokenizer.json")
    counts = json.loads((whole / "study.json").read_text("utf-8"))["data"]["rows"]
    found = sum(known.encode([f"word{i}"], boundaries=False)[0][0] != known.unk for i in range(40))
    assert 0 < found <= counts["train"] < 40


def test_an_arm_that_needs_weights_is_refused_for_a_preset(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="preset 'gpt' has no pretrained weights, which frozen, full would start from"
    ):
        run_study(settings(rows, arms=["scratch", "frozen", "full"]), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_the_command_line_takes_a_preset_with_its_size(rows: Path, tmp_path: Path) -> None:
    words = ["compare", rows, "--base", "gpt", "--arms", "majority,tfidf,scratch", "--size", "nano", "--context", 16]
    done = run(*words, "--dry-run", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["cells"] > 6


def test_an_interrupted_study_shows_what_there_is_and_how_to_go_on(study: Path) -> None:
    whole = run("report", study, "--json")
    shutil.rmtree(study / "cells" / "scratch-gpt~all~1")
    state = json.loads((study / "study.json").read_text("utf-8"))
    del state["rates"], state["failures"]  # written at the end
    (study / "study.json").write_text(json.dumps(state))
    done = run("report", study)
    assert done.exit_code == 0, done.stderr
    told = f"This study is not finished: 1 cell is missing, so nothing is concluded yet. To go on with it: headstart compare --config {study}/study.toml --out {study}"
    assert done.stdout.count("This study is not finished") == 1
    assert f"{told}\n" in done.stdout
    assert re.search(r"scratch .* 1 +[<\d]", done.stdout)
    page = (study / "report.html").read_text("utf-8")
    assert told in page
    assert page.count("This study is not finished") == 1
    assert run("runs", study.parent, "--json").stdout.count('"state": "unfinished"') == 1
    again = re.search(r"headstart (compare .*)", told)
    assert again
    assert run(*again[1].split(), "--quiet").exit_code == 0
    same = [json.loads(made.stdout)["arms"] for made in (whole, run("report", study, "--json"))]
    assert [a["scores"] for a in same[0]] == [a["scores"] for a in same[1]]


def test_a_count_of_rows_that_no_file_can_hold_is_damage(study: Path) -> None:
    state = json.loads((study / "study.json").read_text("utf-8"))
    state["data"]["rows"]["train"] = 10**400
    (study / "study.json").write_text(json.dumps(state))
    done = run("report", study)
    assert done.exit_code == 5, done.stderr
    assert "study.json is damaged (data.rows.train" in done.stderr


def test_more_labels_than_rows_are_refused_before_any_cell(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--labels 5,000: there are \d+ training and validation rows"):
        run_study(settings(rows, labels=[20, 5000]), tmp_path / "study")
    assert not (tmp_path / "study" / "cells").exists()


def test_a_study_interrupted_before_its_bases_were_there_shows_its_baselines(study: Path) -> None:
    state = json.loads((study / "study.json").read_text("utf-8"))
    (study / "study.json").write_text(json.dumps({key: state[key] for key in ("data", "environment")}))
    done = run("report", study)
    assert done.exit_code == 0, done.stderr
    assert "2 cells are missing" in done.stdout
    assert "majority" in done.stdout
    shutil.rmtree(study / "cells")
    done = run("report", study)
    assert done.exit_code == 5
    assert re.match(r"error\[RUN_UNFINISHED\]: .*no cell of this study is finished. To go on", done.stderr)


HARMS = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "a list": lambda path: path.write_text("[]\n"),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe{}\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}
CELL = "cells/scratch-gpt~all~0"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(
    "file",
    ["study.json", "study.toml", *(f"{CELL}/{name}" for name in ("result.json", "log.jsonl", "predictions.jsonl", "receipt.json"))],
)  # fmt: skip
def test_a_damaged_file_of_a_study_is_named(file: str, harm: str, study: Path) -> None:
    HARMS[harm](study / file)
    done = run("report", study)
    if (file, harm) == (f"{CELL}/log.jsonl", "cut short"):  # as a kill leaves it
        assert done.exit_code == 0
        return
    assert done.exit_code in (4, 5), done.output
    assert re.fullmatch(r"error\[\w+\]: [^\n]+\n", done.stderr)
    assert Path(file).name in done.stderr


@pytest.mark.parametrize("file", ["study.json", "results.json"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_study_is_listed_as_damaged_beside_the_others(file: str, harm: str, study: Path) -> None:
    shutil.copytree(study, study.with_name("other"))
    HARMS[harm](study / file)
    done = run("runs", study.parent)
    assert done.exit_code == 0, done.stderr
    assert re.search(r"/study +compare +damaged", done.stdout)
    assert re.search(r"/other +compare +finished", done.stdout)
    assert re.search(rf"^! .*{file} is damaged", done.stdout, flags=re.MULTILINE)


def test_a_worker_that_is_killed_costs_its_neighbours_nothing(rows: Path, tmp_path: Path) -> None:
    """And its own cell only at the second time."""
    study, killed = tmp_path / "study", set[int]()

    def kill_twice() -> None:
        lock = study / "cells" / "scratch-gpt~all~0" / ".lock"
        while len(killed) < 2:
            time.sleep(0.01)
            found = re.match(r"pid (\d+) ", lock.read_text()) if lock.exists() else None
            if found and int(found[1]) not in killed:
                killed.add(int(found[1]))
                os.kill(int(found[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_twice, daemon=True)
    killer.start()
    cfg = settings(rows, arms=["scratch"], least_steps=100)
    found = Study.run(cfg, study, jobs=2).results
    killer.join(10)
    assert [(f.cell, f.exit, f.message) for f in found.failures] == [
        ("scratch-gpt~all~0", 137, "its process was killed, twice")
    ]
    assert found.arms[0].seeds == 1
    assert len(killed) == 2
    assert Study.run(cfg, study).results.arms[0].seeds == 2
