"""`headstart verify`: honest studies and runs pass, and whatever was changed by hand is found."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import VerificationError
from headstart.study.verify import verify

STUDY = ["compare", "rows.csv", "--base", "bert", "--arms", "majority,tfidf,scratch", "--seeds", "2", "--rates", "0.003",
         "--set", "least_steps=12", "--set", "finetune.train.steps=12", "--set", "finetune.train.threads=1", "--set", "finetune.model.size=nano",
         "--yes", "--quiet", "--out", "study"]  # fmt: skip
FIRST, SECOND = "scratch-bert~all~0", "scratch-bert~all~1"


def run(*words: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == exit_code, done.output
    return done.stdout


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study in it, and the rows that it is of."""
    folder = tmp_path_factory.mktemp("honest")
    rows = [
        f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[(i % 2) ^ (i % 7 == 0)]}"
        for i in range(80)
    ]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]))
    before = Path.cwd()
    os.chdir(folder)
    torch.set_num_threads(1)
    try:
        run(*STUDY)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def study(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to tamper with; its rows are still those of the original."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(honest / "study", "study")
    return tmp_path / "study"


def test_an_honest_study_verifies_and_its_cells_repeat_bit_for_bit(study: Path) -> None:
    told = json.loads(run("verify", "study", "--seed", "1", "--json", "--quiet"))
    assert told["state"] == "verified", told["checks"]
    again = {c["name"]: c["detail"] for c in told["checks"] if c["name"].startswith("run again")}
    trained = [detail for name, detail in again.items() if "scratch" in name]
    assert trained == ["bit for bit: weights, predictions, scores"]
    assert {name for name in again if "scratch" not in name} == {"run again: majority~all~0", "run again: tfidf~all~0"}
    digest = hashlib.sha256((study / "results.json").read_bytes()).hexdigest()
    assert digest[:16] in told["badge"]
    assert not (study / "features").exists()


def edit(file: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def change_prediction(study: Path) -> None:
    file = study / "cells" / SECOND / "predictions.jsonl"
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    good, bad = first["probabilities"]["good"], first["probabilities"]["bad"]
    first |= {
        "prediction": {"good": "bad", "bad": "good"}[first["prediction"]],
        "probabilities": {"good": bad, "bad": good},
    }
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")


def change_seed(study: Path) -> None:
    file = study / "cells" / SECOND / "config.toml"
    file.write_text(re.sub(r"(?m)^seed = 1$", "seed = 7", file.read_text()))


def change_asked_seed(study: Path) -> None:
    edit(study / "cells" / SECOND / "env.json", lambda env: env["asked"]["train"].update(seed=7))


def change_hash(study: Path) -> None:
    edit(study / "cells" / FIRST / "model" / "MANIFEST.json", lambda m: m["config.json"].update(sha256="0" * 64))


def change_data_hash(study: Path) -> None:
    edit(study / "study.json", lambda s: s["data"]["files"][0].update(sha256="0" * 64))


def change_table(study: Path) -> None:
    rows = list(csv.reader((study / "table.csv").read_text().splitlines()))
    rows[-1][5] = str(float(rows[-1][5]) + 0.01)
    (study / "table.csv").write_text("\r\n".join(",".join(row) for row in rows) + "\r\n")


def change_figure(study: Path) -> None:
    file = study / "figures" / "epochs.svg"
    number = re.search(r"L (\d+\.\d+) ", file.read_text())
    assert number
    file.write_text(file.read_text().replace(number[0], f"L {float(number[1]) + 9} ", 1))


def change_figure_pixels(study: Path) -> None:
    shutil.copy(study / "figures" / "confusion-tfidf.png", study / "figures" / "confusion-scratch.png")


def change_verdict(study: Path) -> None:
    file = study / "report.html"
    assert "there is no clear difference" in file.read_text()
    file.write_text(file.read_text().replace("there is no clear difference", "there is a clear difference"))


def copy_cell(study: Path) -> None:
    shutil.rmtree(study / "cells" / SECOND)
    shutil.copytree(study / "cells" / FIRST, study / "cells" / SECOND)


def copy_cell_and_forge_its_seed(study: Path) -> None:
    """Everything that names the seed, with the hash of the settings, is forged too; the log and the weights are another seed's."""
    copies = {name: (study / "cells" / SECOND / name).read_bytes() for name in ("env.json", "config.toml", "data.json")}
    copy_cell(study)
    for name, content in copies.items():
        (study / "cells" / SECOND / name).write_bytes(content)


def swap_cells(study: Path) -> None:
    first, second = study / "cells" / FIRST, study / "cells" / SECOND
    first.rename(study / "aside")
    second.rename(first)
    (study / "aside").rename(second)


def change_config(study: Path) -> None:
    """A learning rate, in the settings that are shown and not in those that were asked for."""
    file = study / "cells" / SECOND / "config.toml"
    file.write_text(re.sub(r"(?m)^lr = .*$", "lr = 0.01", file.read_text()))


def change_study_config(study: Path) -> None:
    file = study / "study.toml"
    assert "rates = [" in file.read_text()
    file.write_text(re.sub(r"rates = \[[^\]]*\]", "rates = [0.02]", file.read_text()))


def remove_predictions(study: Path) -> None:
    (study / "cells" / SECOND / "predictions.jsonl").unlink()


def remove_figure(study: Path) -> None:
    (study / "figures" / "abstention.svg").unlink()


def remove_weights(study: Path) -> None:
    (study / "cells" / FIRST / "model" / "model.safetensors").unlink()


def change_weights(study: Path) -> None:
    """One weight, with its manifest."""
    model = study / "cells" / FIRST / "model"
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-5] ^= 0x01
    (model / "model.safetensors").write_bytes(weights)
    new = hashlib.sha256(weights).hexdigest()
    edit(model / "MANIFEST.json", lambda m: m["model.safetensors"].update(sha256=new))


def change_results(study: Path) -> None:
    edit(study / "results.json", lambda r: r["arms"][-1].update(mean=r["arms"][-1]["mean"] + 0.02))


def change_labels(study: Path) -> None:
    """The same label of one test row in every cell."""
    for file in (study / "cells").glob("*/predictions.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[3]["label"] = {"good": "bad", "bad": "good"}[lines[3]["label"]]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_score(study: Path) -> None:
    edit(study / "cells" / SECOND / "result.json", lambda r: r["test"].update(macro_f1=0.99))


def change_log(study: Path) -> None:
    file = study / "cells" / SECOND / "log.jsonl"
    file.write_text(re.sub(r'("split": "valid".*?"loss": )[\d.]+', r"\g<1>0.01", file.read_text()))


def hide_a_warning(study: Path) -> None:
    edit(study / "study.json", lambda s: s["data"]["hygiene"].update(near={"within": {}, "leaked": {}}))


# By study, because drawing the figures again takes seconds: what was done to it, and how that is reported.
TAMPERED: dict[str, dict[Callable[[Path], None], tuple[str, str]]] = {
    "shown": {
        change_seed: ("seeds and settings", f"{SECOND}: its files name different seeds"),
        change_hash: ("model files", f"{FIRST}: model/ was changed: config.json"),
        change_table: ("table.csv", "table.csv: 'scratch,"),
        change_figure: ("figures", "epochs.svg: "),
        change_figure_pixels: ("figures", "confusion-scratch.png shows something else"),
        change_verdict: ("report.html", "a clear difference"),
    },
    "cells": {
        change_prediction: ("scores of every cell", f"{SECOND}: accuracy"),
        change_asked_seed: ("settings as planned", f"{SECOND}: "),
        change_weights: ("model files", f"{FIRST}: the weights in model/ are not those that result.json names"),
    },
    "swapped": {swap_cells: ("settings as planned", f"{FIRST}: data.draw: 1, not 0")},
    "removed": {
        remove_predictions: ("statistics", f"{SECOND}: predictions.jsonl is missing"),
        remove_weights: ("model files", f"{FIRST}: model/ was changed: model.safetensors is missing"),
    },
    "figure removed": {remove_figure: ("figures", "abstention.svg")},
    "asked": {change_study_config: ("settings as planned", "train.lr")},
    "copied": {copy_cell: ("settings as planned", f"{SECOND}: data.draw: 0, not 1")},
    "forged": {copy_cell_and_forge_its_seed: ("seeds differ", f"{SECOND} is a copy of {FIRST}")},
    "numbers": {
        change_results: ("results.json", "mean"),
        change_labels: ("test rows of every cell", f"{SECOND}: row 3 has another label than in the data"),
        change_score: ("scores of every cell", f"{SECOND}: macro_f1 in result.json"),
    },
    "records": {
        change_config: ("seeds and settings", f"{SECOND}: config.toml is not the file"),
        change_data_hash: ("data files", "rows.csv is not the file that was used"),
        change_log: ("logs and results", f"{SECOND}: log.jsonl and result.json disagree"),
        hide_a_warning: ("facts about the rows", "hygiene"),
    },
}


@pytest.mark.parametrize("group", TAMPERED)
def test_what_was_changed_by_hand_is_found(study: Path, group: str) -> None:
    for tamper in TAMPERED[group]:
        tamper(study)
    found = {check.name: check.detail for check in verify(study, rerun=False).of("failed")}
    for tamper, (name, told) in TAMPERED[group].items():
        assert told in found.get(name, ""), (tamper.__name__, found)


def test_a_forged_cell_is_found_by_running_it_again(study: Path) -> None:
    """Predictions, score, results, page: all of them consistent, and none of them what the cell gives."""
    cell = study / "cells" / "tfidf~all~0"
    lines = [json.loads(line) for line in (cell / "predictions.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"prediction": line["label"], "probabilities": {n: float(n == line["label"]) for n in ("bad", "good")}}
    (cell / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    edit(cell / "result.json", lambda r: r["test"].update(accuracy=1.0, macro_f1=1.0, interval=[0.8064, 1.0]))
    run("report", "study")
    done = CliRunner().invoke(app, ["verify", "study", "--cell", cell.name, "--quiet", "--json"])
    assert done.exit_code == VerificationError.exit_code == 10
    bad = {c["name"]: c["detail"] for c in json.loads(done.stdout)["checks"] if c["outcome"] == "failed"}
    assert "predictions differ" in bad[f"run again: {cell.name}"]


def test_a_study_without_its_rows_is_verified_in_part(study: Path) -> None:
    toml = study / "study.json"
    toml.write_text(toml.read_text().replace("rows.csv", "gone.csv"))
    (study / "study.toml").write_text((study / "study.toml").read_text().replace("rows.csv", "gone.csv"))
    found = verify(study)
    assert found.state == "partly verified"
    assert {check.name for check in found.of("not checked")} == {
        "data files", "statistics, table, figures, settings", "run again"
    }  # fmt: skip


def test_what_is_neither_study_nor_run_is_named(tmp_path: Path) -> None:
    run("verify", str(tmp_path), exit_code=5)


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the first format, which kept neither manifest nor processor."""
    shutil.copytree(Path(__file__).parent.parent / "golden" / "format-1", tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return tmp_path / "golden" / "run"


def test_a_run_of_the_first_format_is_verified_as_far_as_its_files_go(golden: Path) -> None:
    found = verify(golden)
    assert not found.of("failed")
    assert [check.name for check in found.of("not checked")] == ["model files"]
    assert "run again: run" in [check.name for check in found.of("passed")]


def test_a_cell_must_be_one_that_there_is(golden: Path) -> None:
    run("verify", "run", "--cell", "ran", exit_code=2)
    run("verify", "run", "--cell", "run", "--no-rerun", exit_code=2)


def test_an_edited_run_is_found(golden: Path) -> None:
    edit(golden / "result.json", lambda result: result["valid"].update(loss=0.1))
    run("verify", "run", "--no-rerun", exit_code=10)
