"""The grid of translators: every cell once, means over seeds, and what failed."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError, DataError, Stopped
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.study.translate import TranslateGridConfig, compare_translators, plan


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    rows = [f"{c}{v}{e}\t{v}{e}{c}ay" for c in "bdgklm" for v in "aeio" for e in ("n", "r", "st")]
    for name, count in (("small", 36), ("large", 72)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows[:count]), "utf-8")
    return [str(tmp_path / f"{name}.tsv") for name in ("small", "large")]


def settings(data: list[str], **changes: Any) -> TranslateGridConfig:
    train = {"threads": 1, "tensorboard": False}
    own = {"data": data, "models": ["gru"], "hidden": [8], "seeds": 2, "settings": {"epochs": 2, "train": train}}
    return parse(TranslateGridConfig, {**own, **changes})


def test_every_combination_is_trained_once_and_told_with_means_over_seeds(data: list[str], tmp_path: Path) -> None:
    assert len(plan(settings(data, models=["gru", "lstm"], hidden=[8, 16], seeds=3))) == 2 * 2 * 2 * 3
    cfg, out = settings(data), tmp_path / "study"
    results = compare_translators(cfg, out)
    assert len(results.table) == 2
    for row in results.table:
        losses = [
            Run.open(out / "cells" / f"{row.data}-gru-{row.hidden}-seed{seed}").read_json("result.json")["valid"][
                "loss"
            ]
            for seed in range(2)
        ]
        assert row.losses == losses
        assert row.loss == pytest.approx(sum(losses) / 2)
        assert row.seeds == 2
    low, high = sorted(results.table, key=lambda row: row.loss)
    said = "is {:.4f} ± {:.4f} over 2 seeds (gru, hidden size 8, {} pairs of {})"
    lowest = said.format(low.loss, low.loss_sd, low.rows, low.data)
    assert f"{lowest}, the highest {high.loss:.4f} ±" in results.verdict
    with (out / "table.csv").open() as file:
        assert [row["parameters"] for row in csv.DictReader(file)] == [str(r.parameters) for r in results.table]
    widths = []
    for name in ("curves.png", "by-hidden.png", "by-data.png", "heatmap.png"):
        picture = (out / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        widths.append(int.from_bytes(picture[16:20], "big"))
    assert widths[1] > widths[0] == widths[2]  # panels: two data sets; one model, one hidden size


def test_what_is_finished_is_kept_and_a_failed_cell_is_told(data: list[str], tmp_path: Path) -> None:
    out = tmp_path / "study"
    compare_translators(settings(data[:1]), out)
    before = (out / "cells" / "small-gru-8-seed0" / "result.json").stat().st_mtime_ns
    (tmp_path / "large.tsv").write_text("".join(f"{i}{3000 * 'x'}\ty\n" for i in range(30)), "utf-8")
    results = compare_translators(settings(data), out)
    assert (out / "cells" / "small-gru-8-seed0" / "result.json").stat().st_mtime_ns == before
    assert sorted(results.failed) == ["large-gru-8-seed0", "large-gru-8-seed1"]
    assert "No training pair fits into the" in results.failed["large-gru-8-seed0"]
    assert [row.data for row in results.table] == ["small"]


def test_pairs_that_no_cell_could_use_are_told_before_anything_is_written(data: list[str], tmp_path: Path) -> None:
    (tmp_path / "large.tsv").write_text("no pair\there\nand none here\n", "utf-8")
    with pytest.raises(DataError, match="line 2: not a pair"):
        compare_translators(settings(data), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_stopped_grid_says_what_goes_on_with_it(data: list[str], tmp_path: Path) -> None:
    class Impatient(Watch):
        def reach(self, done: int, state: str, left: float | None = None) -> None:
            if "step" in state:  # a cell is at work
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped, match=r"saved in .*study\. The same command or call goes on there\.") as stopped:
        compare_translators(settings(data[:1], seeds=1), tmp_path / "study", Impatient())
    assert "resume" not in str(stopped.value)


def test_runs_of_other_settings_do_not_join_the_table(data: list[str], tmp_path: Path) -> None:
    compare_translators(settings(data[:1], seeds=1), tmp_path / "study")
    with pytest.raises(ConfigError, match="begun with other settings"):
        compare_translators(settings(data[:1], settings={"epochs": 3}), tmp_path / "study")


def test_another_file_of_the_same_name_does_not_join_the_table(data: list[str], tmp_path: Path) -> None:
    compare_translators(settings(data[:1], seeds=1), tmp_path / "study")
    Path(data[0]).write_text(Path(data[0]).read_text("utf-8").replace("a", "e"), "utf-8")
    with pytest.raises(DataError, match="begun with another small"):
        compare_translators(settings(data[:1], seeds=1), tmp_path / "study")


@pytest.mark.parametrize(
    ("varied", "flag"),
    [
        ({"model": {"hidden": 9}}, "--hidden"),
        ({"model": {"kind": "lstm"}}, "--model"),
        ({"train": {"seed": 1}}, "--seeds"),
    ],
)
def test_what_the_grid_varies_is_no_setting_of_every_run(
    varied: Any, flag: str, data: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"the grid varies it. Use {flag}"):
        compare_translators(settings(data[:1], settings=varied), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_several_jobs_give_the_same_table_and_the_page_shows_it(data: list[str], tmp_path: Path) -> None:
    one, two = (compare_translators(settings(data[:1]), tmp_path / name, jobs=n) for name, n in (("a", 1), ("b", 2)))
    assert [row.losses for row in one.table] == [row.losses for row in two.table]
    page = (tmp_path / "b" / "report.html").read_text("utf-8")
    assert two.verdict in page
    assert page.count('role="img"') == 4
    assert not re.search(r"<(script|image|img|link)\b", page)
    before = json.loads((tmp_path / "b" / "results.json").read_text("utf-8"))
    (tmp_path / "b" / "report.html").unlink()
    done = run("report", tmp_path / "b", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, before)
    assert (tmp_path / "b" / "report.html").read_text("utf-8") == page


def test_an_unfinished_grid_is_shown_as_unfinished(data: list[str], tmp_path: Path) -> None:
    out = tmp_path / "study"
    compare_translators(settings(data[:1]), out)
    shutil.rmtree(out / "cells" / "small-gru-8-seed1")
    done = run("report", out)
    assert done.exit_code == 0, done.stderr
    assert "! This study is not finished: 1 cell is missing." in done.stdout
    assert "1 cell is missing" in (out / "report.html").read_text("utf-8")


def test_a_grid_made_before_plans_were_kept_still_has_a_page(data: list[str], tmp_path: Path) -> None:
    out = tmp_path / "study"
    results = compare_translators(settings(data[:1], seeds=1), out)
    state = json.loads((out / "ladder.json").read_text("utf-8"))
    (out / "ladder.json").write_text(json.dumps({key: state[key] for key in ("settings", "data")}), "utf-8")
    (out / "report.html").unlink()
    done = run("report", out)
    assert done.exit_code == 0, done.stderr
    assert results.verdict in (out / "report.html").read_text("utf-8")


def test_what_a_grid_costs_is_estimated_and_nothing_written(data: list[str], tmp_path: Path) -> None:
    words = ["translate", "grid", data[0], "--model", "gru", "--hidden", 8, "--epochs", 2, "--out", tmp_path / "study"]
    done = run(*words, "--dry-run", "--jobs", 2, "--json")
    assert done.exit_code == 0, done.stderr
    cost = json.loads(done.stdout)
    assert (cost["cells"], cost["missing"], cost["jobs"]) == (3, 3, 2)
    assert 0 < cost["seconds"] < 600
    assert not (tmp_path / "study").exists()
    assert run(*words, "--dry-run").stdout.startswith("3 cells, 3 missing, 1 at once: about ")
