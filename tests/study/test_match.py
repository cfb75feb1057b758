"""Frozen and tuned towers on the same splits: means, differences, what failed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.study.grid import gather_grid, write_grid
from headstart.study.match import MATCHERS, MatchGridConfig, combinations, compare_towers

TRAIN = {"steps": 3, "batch_size": 16, "threads": 1, "tensorboard": False}


def settings(pictures: Path, towers: Mapping[str, str], **changes: Any) -> MatchGridConfig:
    own = {"data": str(pictures), "text": [towers["text"]], "image": [towers["image"]], "splits": 2}
    return parse(MatchGridConfig, {**own, "settings": {"space": {"width": 16}, "train": TRAIN}, **changes})


@pytest.fixture(scope="module")
def study(
    pictures: Path, towers: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[MatchGridConfig, Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(tmp_path_factory.mktemp("cache")))
        out, cfg = tmp_path_factory.mktemp("study") / "towers", settings(pictures, towers)
        compare_towers(cfg, out)
    return cfg, out


def recall(out: Path, arm: str, split: int) -> float:
    found = Run.open(out / "cells" / f"text-image-{arm}-split{split}").read_json("result.json")["test"]
    return float(found["text_to_image"]["recall@5"]["value"])


def test_means_and_differences_are_those_of_the_runs_on_the_same_splits(study: tuple[MatchGridConfig, Path]) -> None:
    _, out = study
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert [row["trained"] for row in results["table"]] == ["head", "full"]
    for row in results["table"]:
        assert row["recall@5"] == pytest.approx(mean(recall(out, row["trained"], k) for k in range(2)))
    (found,) = results["differences"]
    assert (found["a"], found["b"], found["splits"]) == ("text-image-full", "text-image-head", 2)
    assert found["difference"] == pytest.approx(mean(recall(out, "full", k) - recall(out, "head", k) for k in range(2)))
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "table.csv").read_text("utf-8").startswith("text,image,trained,splits,recall@1")


def test_every_split_tests_on_other_pictures_and_all_arms_on_the_same(study: tuple[MatchGridConfig, Path]) -> None:
    _, out = study

    def tested(arm: str, split: int) -> set[str]:
        run = Run.open(out / "cells" / f"text-image-{arm}-split{split}")
        return {str(line["file"]) for line in run.read_lines("predictions.jsonl")}

    assert tested("head", 0) == tested("full", 0) != tested("head", 1) == tested("full", 1)


def test_the_verdict_says_no_more_than_the_interval(study: tuple[MatchGridConfig, Path]) -> None:
    cfg, out = study

    def told(*points: float) -> str:
        for k, recall in enumerate(points):
            file = out / "cells" / f"text-image-full-split{k}" / "result.json"
            result = json.loads(file.read_text("utf-8"))
            frozen = Run.open(out / "cells" / f"text-image-head-split{k}").read_json("result.json")
            base = frozen["test"]["text_to_image"]["recall@5"]["value"]
            result["test"]["text_to_image"]["recall@5"]["value"] = base + recall / 100
            file.write_text(json.dumps(result), "utf-8")
        results = gather_grid(MATCHERS, cfg, out, [])
        write_grid(MATCHERS, out, results)
        return results.verdict

    before = [(p, p.read_text("utf-8")) for p in out.glob("cells/*/result.json")]
    try:
        assert "text-image-full is better than text-image-head: +20.0 points" in told(20.01, 19.99)
        assert "text-image-full is worse than" in told(-20.01, -19.99)
        assert "text-image-full shows no significant difference from text-image-head: +10.0 points" in told(30, -10)
        results = json.loads((out / "results.json").read_text("utf-8"))
        assert results["table"][1]["intervals"]["recall@5"] == [0.0, 1.0]  # two splits that far apart say nothing
        found = results["differences"][0]
        assert found["difference"] == pytest.approx(0.1)
        assert found["interval"][0] < 0.1 < found["interval"][1]
        assert "differ by +20.0 points of recall@5 on each of 2 splits: how far that may vary cannot be" in told(20, 20)
        assert not json.loads((out / "results.json").read_text("utf-8"))["differences"][0]["clear"]
    finally:
        for file, text in before:
            file.write_text(text, "utf-8")


def test_what_is_finished_is_kept(study: tuple[MatchGridConfig, Path]) -> None:
    cfg, out = study
    file = out / "cells" / "text-image-head-split0" / "result.json"
    before = file.stat().st_mtime_ns
    compare_towers(cfg, out)
    assert file.stat().st_mtime_ns == before


def test_runs_of_other_settings_do_not_join_the_table(
    study: tuple[MatchGridConfig, Path], pictures: Path, towers: dict[str, str]
) -> None:
    other = settings(pictures, towers, settings={"epochs": 3})
    with pytest.raises(ConfigError, match="begun with other settings"):
        compare_towers(other, study[1])


def test_a_tower_of_the_same_name_does_not_take_the_place_of_a_finished_one(
    study: tuple[MatchGridConfig, Path], pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    other = shutil.copytree(towers["text"], tmp_path / Path(towers["text"]).name)
    out = study[1]
    with pytest.raises(
        ConfigError, match=rf"split0 was begun with other settings: text: {towers['text']}, not {other}"
    ):
        compare_towers(settings(pictures, {**towers, "text": str(other)}), out)
    moved = shutil.copytree(pictures, tmp_path / "moved")
    compare_towers(settings(moved, towers), out)


def test_a_study_needs_test_pictures_and_names_that_differ(
    pictures: Path, towers: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="test_fraction must be above 0"):
        compare_towers(settings(pictures, towers, settings={"data": {"test_fraction": 0}}), tmp_path / "a")
    with pytest.raises(ConfigError, match="same name"):
        combinations(settings(pictures, towers, text=["a/base", "b/base"]))


def test_the_verb_prints_a_table_and_the_verdict(
    pictures: Path, towers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    words = ["match", "compare", str(pictures), "--text", towers["text"], "--image", towers["image"], "--train", "head",
             "--splits", "1", "--set", "train.steps=2", "--set", "space.width=16", "--batch-size", "16",
             "--out", str(tmp_path / "study"), "--quiet"]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "recall@1 " in done.stdout
    assert "! Too few images to judge by: recall@5 and recall@10 would be 1 by guessing." in done.stdout
    assert "mean over 1 split." in done.stdout
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["differences"] == []
    dry = CliRunner().invoke(app, [*words, "--dry-run", "--out", str(tmp_path / "new")])
    assert dry.stdout.startswith("1 cell, 1 missing, 1 at once: about ")
    assert not (tmp_path / "new").exists()


def test_a_page_shows_the_verdict_and_the_recalls(study: tuple[MatchGridConfig, Path]) -> None:
    _, out = study
    done = CliRunner().invoke(app, ["report", str(out), "--json"])
    assert done.exit_code == 0, done.output
    page = (out / "report.html").read_text("utf-8")
    assert json.loads(done.stdout)["verdict"] in page
    assert '<th scope="col" class="n">recall@1</th>' in page
    assert page.count('role="img"') == 1


def test_several_jobs_give_the_same_recalls(
    study: tuple[MatchGridConfig, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    cfg, out = study
    again = compare_towers(cfg.model_copy(update={"splits": 1}), tmp_path / "study", jobs=2)
    assert (again.failures, again.missing_cells) == ([], 0)
    assert [row.at_5 for row in again.table] == [recall(out, scope, 0) for scope in ("head", "full")]
