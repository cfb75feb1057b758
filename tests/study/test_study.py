"""A study runs what is missing, loses nothing, averages nothing away, and keeps the test rows shut until the end."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headstart
from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.errors import ConfigError, DataError, DivergedError, Stopped
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse, read_toml, to_toml
from headstart.study import run as engine
from headstart.study.plan import BaseRun, StudyConfig, arms_of, named_bases
from headstart.study.results import Cost, Results
from headstart.study.study import Study

ARMS = ("majority", "tfidf", "scratch", "frozen", "full")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    text = folder / "text.txt"
    text.write_text("\n".join(f"film {i} was a film from end to end" for i in range(60)))
    train = {"steps": 2, "batch_size": 8, "threads": 1, "tensorboard": False}
    settings = {
        "data": {"paths": [str(text)], "unit": "line"},
        "model": {"size": "nano", "context": 16},
        "train": train,
    }
    pretrain(parse(PretrainConfig, settings), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    good, bad = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
    lines = [f"film {i} was {(good if i % 2 else bad)[i // 2 % 4]},{'pos' if i % 2 else 'neg'}" for i in range(60)]
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def settings(base: Path, rows: Path, **changes: Any) -> StudyConfig:
    common = {
        "data": {"train": str(rows)},
        "bases": [str(base)],
        "arms": ARMS,
        "seeds": 2,
        "labels": [20, 0],
        "rates": [0.01],
        "least_steps": 4,
        "finetune": {"epochs": 1, "train": {"threads": 1}},
    }
    return parse(StudyConfig, {**common, **changes})


def same(found: Results) -> dict[str, Any]:
    """Results without what depends on the clock, the folder and the command."""
    results = found.plain()
    arms = [{**arm, "cost": None} for arm in results["arms"]]
    return {**results, "arms": arms, "cost": None, "repeat": None, "receipts": None}


@pytest.fixture(scope="module")
def whole(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study that nothing disturbed; read only."""
    return Study.run(settings(base, rows), tmp_path_factory.mktemp("studies") / "whole")


def test_every_arm_stands_in_the_results_with_its_interval(whole):
    found = {(arm.name, arm.labels): arm for arm in whole.results.arms}
    assert set(found) == {(name, labels) for name in ARMS for labels in (20, 48)}
    for arm in found.values():
        assert arm.interval[0] <= arm.mean <= arm.interval[1]
        assert arm.seeds == (1 if arm.kind in ("majority", "tfidf") and arm.labels == 48 else 2)
        assert arm.mean == pytest.approx(sum(arm.scores) / len(arm.scores))
    assert found["tfidf", 48].mean == 1.0
    assert {(d.a, d.b) for d in whole.results.differences} == {
        ("frozen", "scratch"), ("full", "scratch"), ("frozen", "tfidf"), ("full", "tfidf"), ("scratch", "tfidf"),
    }  # fmt: skip
    assert whole.verdict
    assert whole.page.exists()


def test_every_cost_that_the_page_can_show_is_measured_for_some_arm(whole):
    costs = [arm.cost for arm in whole.results.arms]
    assert all(any(getattr(cost, name) is not None for cost in costs) for name in Cost.model_fields)


def test_the_arms_saw_the_same_rows(whole):
    cells = whole.folder / "cells"
    for labels in ("20", "all"):
        for seed in (0, 1):
            seen = {
                json.loads((path / "data.json").read_text())["split_sha256"]
                for path in cells.glob(f"*~{labels}~{seed}")
                if (path / "data.json").exists()
            }
            assert len(seen) == 1


def test_weights_are_kept_of_one_seed_an_arm(whole):
    kept = sorted(path.parents[1].name for path in whole.folder.glob("cells/*/model/model.safetensors"))
    assert kept == ["frozen-run~all~0", "full-run~all~0", "scratch-run~all~0"]
    assert not (whole.folder / "features").exists()
    assert sum(p.stat().st_size for p in whole.folder.rglob("predictions.jsonl")) < 40_000


def test_a_study_is_one_line_among_the_runs(whole):
    done = CliRunner().invoke(app, ["runs", str(whole.folder.parent), "--json"])
    (record,) = json.loads(done.stdout)
    assert (record["run"], record["job"], record["state"]) == (str(whole.folder), "compare", "finished")
    told = CliRunner().invoke(app, ["runs", str(whole.folder.parent)]).stdout
    assert f"{whole.verdict.splitlines()[0]}\n" in told
    assert whole.verdict.splitlines()[1] not in told


def test_a_study_killed_half_way_gives_the_same_table(whole, base, rows, tmp_path, monkeypatch):
    cfg, done = settings(base, rows), []
    run_cell = engine.run_cell

    def killed(cell: Any, *rest: Any, **more: Any) -> Any:
        if len(done) == 9:
            raise Stopped("at step 3 of 4", 15)
        return noted(cell, *rest, **more)

    def noted(cell: Any, *rest: Any, **more: Any) -> Any:
        done.append(cell.name)
        return run_cell(cell, *rest, **more)

    monkeypatch.setattr(engine, "run_cell", killed)
    with pytest.raises(Stopped) as stopped:
        Study.run(cfg, tmp_path / "study")
    told = (
        f"Stopped at step 3 of 4; everything is saved in {tmp_path / 'study'}. The same command or call goes on there."
    )
    assert (str(stopped.value), stopped.value.exit_code) == (told, 143)
    monkeypatch.setattr(engine, "run_cell", noted)
    again = Study.run(cfg, tmp_path / "study")
    assert sorted(done) == sorted(path.name for path in (whole.folder / "cells").iterdir()), "each cell was run once"
    assert same(again.results) == same(whole.results)


def test_a_failed_cell_is_told_and_not_averaged_away(base, rows, tmp_path, monkeypatch):
    from headstart.jobs import job

    train = job.train

    def diverging(model: Any, task: Any, batches: Any, valid: Any, cfg: Any, *rest: Any) -> Any:
        if cfg.seed == 1:
            raise DivergedError("The loss is not finite.")
        return train(model, task, batches, valid, cfg, *rest)

    monkeypatch.setattr(job, "train", diverging)
    cfg = settings(base, rows, arms=("tfidf", "full"), labels=[0], seeds=3)
    found = Study.run(cfg, tmp_path / "study").results
    assert [dict(f) for f in found.failures] == [
        {"cell": "full-run~all~1", "exit": 7, "message": "The loss is not finite."}
    ]
    assert [arm.seeds for arm in found.arms if arm.name == "full"] == [2]
    assert any(notice.startswith("1 cell failed and is in no mean;") for notice in found.notices)
    monkeypatch.setattr(job, "train", train)
    mended = Study.run(cfg, tmp_path / "study").results
    assert mended.failures == []
    assert [arm.seeds for arm in mended.arms if arm.name == "full"] == [3]


def test_rates_are_chosen_on_validation_rows_and_the_test_rows_stay_shut(base, tmp_path):
    lines = [f"film {i} was {'good' if i % 2 else 'bad'},{i % 2}" for i in range(300)]
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["text,label", *lines]) + "\n")
    cfg = settings(base, rows, arms=("frozen",), labels=[50, 0], seeds=1, rates=[0.001, 0.1])
    cfg = cfg.model_copy(update={"finetune": {**cfg.finetune, "fit_head": False}})
    found = Study.run(cfg, tmp_path / "study")
    tried = sorted(p.name for p in (found.folder / "cells").glob("*rate*"))
    assert tried == ["frozen-run~all~rate-0.001", "frozen-run~all~rate-0.1"]  # 50 labels are too few to choose on
    assert not any((found.folder / "cells" / name / "predictions.jsonl").exists() for name in tried)
    scores = {
        name: json.loads((found.folder / "cells" / name / "result.json").read_text())["valid"]["accuracy"]
        for name in tried
    }
    best = max(scores, key=scores.__getitem__).rpartition("-")[2]
    assert [arm.rate for arm in found.results.arms] == [None, float(best)]


def test_uneven_classes_choose_rates_and_weights_by_the_score_that_leads(base, tmp_path):
    lines = [f"film {i} was {'bad' if i % 4 else 'good'},{'neg' if i % 4 else 'pos'}" for i in range(300)]
    rows, out = tmp_path / "rows.csv", tmp_path / "study"
    rows.write_text("\n".join(["text,label", *lines]) + "\n")
    cfg = settings(base, rows, arms=("full",), labels=[0], seeds=1, rates=[0.001, 0.1])
    found = Study.run(cfg, out)
    assert found.results.score == "macro_f1"
    cell = json.loads((out / "cells" / "full-run~all~0" / "env.json").read_text())
    assert cell["asked"]["score"] == "macro_f1"
    tried = {"0.001": {"accuracy": 0.75, "macro_f1": 0.43}, "0.1": {"accuracy": 0.72, "macro_f1": 0.69}}
    for rate, scores in tried.items():
        file = out / "cells" / f"full-run~all~rate-{rate}" / "result.json"
        result = json.loads(file.read_text())
        file.write_text(json.dumps({**result, "valid": {**result["valid"], **scores}}))
    assert [arm.rate for arm in Study.run(cfg, out).results.arms] == [0.1]
    state = json.loads((out / "study.json").read_text())
    del state["score"]  # as it was before scores were kept: such a study goes on choosing as it began
    (out / "study.json").write_text(json.dumps(state))
    again = Study.run(cfg, out).results
    assert ([arm.rate for arm in again.arms], again.score) == ([0.001], "macro_f1")


def test_opening_a_study_writes_nothing(whole):
    def written() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in whole.folder.rglob("*")}

    before = written()
    assert Study.open(whole.folder).results == whole.results
    assert written() == before


def test_results_are_the_file(whole):
    assert Results.read(whole.folder / "results.json") == whole.results
    assert json.loads((whole.folder / "results.json").read_text()) == json.loads(json.dumps(whole.results.plain()))


def test_a_study_can_be_extended_but_not_changed(base, rows, tmp_path):
    small = {"arms": ("majority", "tfidf"), "bases": []}
    Study.run(settings(base, rows, **small, seeds=1), tmp_path / "study")
    more = Study.run(settings(base, rows, **small, seeds=3), tmp_path / "study")
    assert [arm.seeds for arm in more.results.arms] == [3, 3, 1, 1]
    with pytest.raises(ConfigError, match="least_steps: 4, not 5"):
        Study.run(settings(base, rows, **small, least_steps=5), tmp_path / "study")


def test_overlapping_test_rows_are_scored_apart_or_refused(base, rows, tmp_path):
    lines = rows.read_text().splitlines()
    test = tmp_path / "test.csv"
    test.write_text("\n".join([lines[0], *lines[1:4], *(f"film x{i} was lovely,pos" for i in range(9))]) + "\n")
    data = {"train": str(rows), "test": str(test)}
    changes = {"data": data, "arms": ("majority", "tfidf"), "bases": []}
    found = Study.run(settings(base, rows, **changes), tmp_path / "study").results
    assert found.data.overlapping_test_rows >= 3
    assert found.notices[0].startswith(f"{found.data.overlapping_test_rows} of 12 test rows stand in train")
    assert all(arm.clean for arm in found.arms)
    with pytest.raises(DataError, match="--strict-leakage refuses") as caught:
        Study.run(settings(base, rows, **changes, strict_leakage=True), tmp_path / "strict")
    assert caught.value.code == "DATA_LEAK"


def test_the_command_line_runs_a_study_and_rebuilds_its_report(base, rows, tmp_path):
    out = tmp_path / "study"
    words = ["compare", rows, "--base", base, "--arms", "tfidf,full", "--seeds", 1, "--rates", "0.01", "--labels", "20,all",
             "--epochs", 1, "--set", "least_steps=4", "--out", out]  # fmt: skip
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert {"arms", "differences", "hygiene", "cost", "verdict"} <= printed.keys()
    (out / "report.html").unlink()
    again = CliRunner().invoke(app, ["report", str(out), "--json"])
    assert json.loads(again.stdout) == printed
    assert (out / "report.html").exists()
    shown = CliRunner().invoke(app, ["report", str(out)])
    assert "full" in shown.stdout
    assert printed["verdict"] in shown.stdout


def test_a_study_from_a_file_of_settings(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(rows, "labelled.csv")
    example = Path(__file__).parents[2] / "examples" / "study.toml"
    words = [
        "compare",
        "--config",
        str(example),
        "--arms",
        "majority,tfidf",
        "--set",
        "labels=[30, 0]",
        "--json",
        "--yes",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["labels"] == [30, 48]
    assert parse(StudyConfig, read_toml(example)).seeds == 5


def test_what_a_study_costs_is_said_first(base, rows, tmp_path):
    words = [
        "compare",
        str(rows),
        "--base",
        str(base),
        "--seeds",
        "5",
        "--labels",
        "20,all",
        "--out",
        str(tmp_path / "s"),
    ]
    done = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    cost = json.loads(done.stdout)
    assert cost["cells"] == 2 * 3 * 5 + 2 * 5 + 2
    assert 0 < cost["seconds"] < 1800
    assert not (tmp_path / "s").exists()
    long = CliRunner().invoke(app, [*words, "--set", "least_steps=10000000"])
    assert long.exit_code == 2
    assert "--yes" in long.stderr


def test_from_python_a_study_is_an_object(rows, tmp_path):
    lines = [line.split(",") for line in rows.read_text().splitlines()[1:]]
    found = headstart.compare(
        [t for t, _ in lines], [n for _, n in lines], arms=("majority", "tfidf"), out=tmp_path / "s"
    )
    assert [row["name"] for row in found.table] == ["majority", "tfidf"]
    frame = found.to_frame()
    assert list(frame["name"]) == ["majority", "tfidf"]
    assert (frame["low"] <= frame["mean"]).all()
    assert (frame["mean"] <= frame["high"]).all()
    page = found._repr_html_().replace("&#39;", "'")
    answer, *points = found.verdict.split("\n- ")
    assert f'<p class="verdict">{answer}</p>' in page
    assert points
    assert all(f"<li>{point}</li>" in page for point in points)
    with pytest.raises(DataError, match="2 texts and 1 label: "):
        headstart.compare(["a", "b"], ["x"], out=tmp_path / "t")


def test_a_study_that_pretrains_goes_on_with_the_same_command(rows, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"film {i} was fine" for i in range(60)))
    words = ["compare", str(rows), "--corpus", str(corpus), "--unit", "line", "--size", "nano", "--steps", "2", "--arms",
             "tfidf,frozen", "--epochs", "1", "--rates", "0.01", "--out", str(tmp_path / "study"), "--yes"]  # fmt: skip
    once = CliRunner().invoke(app, [*words, "--seeds", "1", "--json"])
    again = CliRunner().invoke(app, [*words, "--seeds", "2", "--json"])
    assert (once.exit_code, again.exit_code) == (0, 0), once.stderr + again.stderr
    assert json.loads(again.stdout)["arms"][-1]["seeds"] == 2


def test_a_page_is_not_rebuilt_from_rows_that_have_changed(base, rows, tmp_path):
    table = tmp_path / "own.csv"
    table.write_text(rows.read_text())
    found = Study.run(settings(base, table, arms=("majority", "tfidf"), bases=[], seeds=1), tmp_path / "study")
    before = found.page.read_bytes()
    table.write_text(rows.read_text().replace(",pos", ",x").replace(",neg", ",pos").replace(",x", ",neg"))
    with pytest.raises(DataError, match="have changed since this study"):
        Study.open(tmp_path / "study")
    assert found.page.read_bytes() == before


def test_the_settings_that_help_tells_of_are_settings_of_a_study():
    told = {
        name: ast.literal_eval(value)
        for name, value in re.findall(r"^ *- (\w+)=(.+?): [^:]+$", headstart.compare.__doc__, re.MULTILINE)
    }
    assert {"seeds", "finetune", "least_steps"} <= set(told)
    cfg = parse(StudyConfig, {"data": {"train": "rows.csv"}, **told})
    assert cfg.finetuning({"base": "gpt"}).epochs == 2


def test_from_python_label_counts_have_a_name_of_their_own(tmp_path):
    texts, labels = [f"film {i} is {'good' if i % 2 else 'bad'}" for i in range(60)], ["a", "b"] * 30
    found = headstart.compare(texts, labels, arms=("tfidf",), out=tmp_path / "s", seeds=1, label_counts=(20, 0))
    assert [row["labels"] for row in found.table] == [20, 48]
    for absent in (None, float("nan")):
        with pytest.raises(DataError, match="label of text 3"):
            headstart.compare(texts, [*labels[:3], absent, *labels[4:]], arms=("tfidf",), out=tmp_path / "t")


def test_from_python_a_study_keeps_the_rows_that_it_was_made_of(rows, tmp_path):
    texts, labels = [f"film {i}" for i in range(40)], ["a", "b"] * 20
    out = tmp_path / "study"
    headstart.compare(texts, labels, arms=("majority",), out=out, seeds=1)
    kept = (tmp_path / "study-rows.csv").read_bytes()
    with pytest.raises(DataError, match="a study of other texts or labels"):
        headstart.compare(texts, labels[::-1], arms=("majority",), out=out, seeds=1)
    assert (tmp_path / "study-rows.csv").read_bytes() == kept


def test_a_refused_study_can_be_put_right_in_the_same_folder(base, rows, tmp_path):
    small = {"arms": ("majority",), "bases": [], "seeds": 1}
    wrong = {"train": str(rows), "label_column": "lable"}
    with pytest.raises(DataError):
        Study.run(settings(base, rows, **small, data=wrong), tmp_path / "study")
    no_test = {"train": str(rows), "test_fraction": 0.0}
    with pytest.raises(DataError, match="no test rows"):
        Study.run(settings(base, rows, **small, data=no_test), tmp_path / "study")
    assert Study.run(settings(base, rows, **small), tmp_path / "study").table


def test_a_base_that_joins_later_leaves_no_arm_twice(base, rows, tmp_path):
    for place in ("a", "b"):
        shutil.copytree(base, tmp_path / place / "x")
    given = {"arms": ("frozen",), "seeds": 1, "labels": [0]}
    one, two = [str(tmp_path / "a" / "x")], [str(tmp_path / "a" / "x"), str(tmp_path / "b" / "x")]
    Study.run(settings(base, rows, **given, bases=one), tmp_path / "study")
    found = Study.run(settings(base, rows, **given, bases=two), tmp_path / "study")
    assert [row["name"] for row in found.table] == ["frozen a/x", "frozen b/x"]


def test_bases_keep_apart_however_alike_their_paths_are():
    def named(*paths):
        return [b.name for b in named_bases([BaseRun(path, Path(), path) for path in paths])]

    assert named("runs/2024/imdb/base", "runs/2025/imdb/base") == ["2024/imdb/base", "2025/imdb/base"]
    assert named("a/run 1", "b/run-1") == ["a/run 1", "b/run-1"]  # one folder of cells, were it only for the ends
    for pair in (("a/run 1", "a/run-1"), ("a/x", "a/x")):
        with pytest.raises(ConfigError, match="indistinguishable names"):
            named(*pair)


def test_all_labels_are_only_called_so_when_they_are_all(base, rows, tmp_path):
    given = {"arms": ("majority", "tfidf"), "bases": [], "seeds": 2}
    fewer = Study.run(settings(base, rows, **given, labels=[20, 40]), tmp_path / "fewer")
    every = Study.run(settings(base, rows, **given, labels=[20, 0]), tmp_path / "every")
    assert "t 40 labels" in fewer.verdict
    assert "all 40" not in fewer.verdict + fewer.page.read_text()
    assert "t all" in every.verdict
    assert "Scores with 40 labels" in fewer.page.read_text()


def test_a_stop_comes_home_from_another_process():
    stopped = copy.copy(Stopped("at step 3", 15, "all is well."))  # made anew, as it is on the other side
    assert (str(stopped), stopped.exit_code) == ("Stopped at step 3; all is well.", 143)


def test_arms_are_named_by_their_base_when_there_are_several(base, rows):
    cfg = settings(base, rows)
    two = named_bases([BaseRun(name, Path(), "same") for name in ("a/one", "a/two")])
    assert [arm.name for arm in arms_of(cfg, two)] == [
        "majority", "tfidf", "scratch one", "frozen one", "frozen two", "full one", "full two",
    ]  # fmt: skip
    other = named_bases([BaseRun(name, Path(), name) for name in ("a/one", "a/two")])
    assert [arm.name for arm in arms_of(cfg, other)].count("scratch two") == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": ("full", "fully")}, "unknown arm 'fully'"),
        ({"labels": [-1]}, "label counts"),
        ({"finetune": {"epochz": 3}}, "epochz"),
        ({"bases": [], "pretrain": {"model": {"size": "nano"}}}, "without a corpus"),
    ],
)
def test_a_contradiction_is_found_before_anything_runs(changes, says, base, rows):
    with pytest.raises(ConfigError, match=says):
        settings(base, rows, **changes)


def test_the_context_of_a_base_made_elsewhere_is_a_setting_of_every_arm(base, rows):
    cfg = settings(base, rows, bases=["minilm"], finetune={"context": 32})
    assert cfg.finetuning({"base": "minilm"}).context == 32


def _wait_until_gone(group: int) -> None:
    """Workers end with the process that they work for."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("workers are still there half a minute after their study was killed")


@pytest.mark.slow
def test_a_study_killed_without_warning_gives_the_same_table(whole, base, rows, tmp_path):
    (tmp_path / "study.toml").write_text(to_toml(settings(base, rows)))
    command = [
        sys.executable,
        "-m",
        "headstart",
        "compare",
        "--config",
        str(tmp_path / "study.toml"),
        "--yes",
        "--quiet",
    ]
    command += ["--out", str(tmp_path / "study")]
    for cells, jobs in ((3, "1"), (9, "2"), (14, "1")):
        process = subprocess.Popen(
            [*command, "--jobs", jobs], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while len(list(tmp_path.glob("study/cells/*/result.json"))) < cells:
            time.sleep(0.02)
        process.kill()
        process.wait()
        _wait_until_gone(process.pid)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert same(Study.open(tmp_path / "study").results) == same(whole.results)


@pytest.mark.slow
def test_several_jobs_give_the_same_table(whole, base, rows, tmp_path):
    cfg = settings(base, rows)
    found = Study.run(cfg, tmp_path / "study", jobs=2)
    assert same(found.results) == same(whole.results)
    shutil.rmtree(tmp_path / "study")
