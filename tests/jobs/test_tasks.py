"""Several labels, numbers and ordered classes through the whole road: trained, scored, used, exported, compared."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, r2_score
from typer.testing import CliRunner

from headstart.cli import app
from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.jobs import curves
from headstart.runs.run import Run
from headstart.show import picture
from headstart.show.attribution import Attribution
from headstart.text.split import draw, split_labelled
from headstart.use.inspect import Inspector
from headstart.use.predict import LoadedClassifier

TOPICS = {"food": ("tasty", "soup"), "price": ("cheap", "bill"), "staff": ("waiter", "host")}
WORTH = {"awful": -2.0, "bad": -1.0, "fine": 0.5, "good": 1.0, "great": 2.0}
FILL = ["the", "a", "we", "it", "was", "very", "so", "and", "then", "place", "came", "went"]
TASKS = ("multilabel", "regression", "ordinal")
SMALL = ["--base", "gpt", "--init", "scratch", "--size", "nano", "--tokenizer", "word", "--threads", "1", "--quiet"]


def write(file: Path, column: str, rows: list[tuple[str, Any]]) -> str:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("text", column), *rows])
    return str(file)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A table for each task whose labels follow from the words."""
    folder, dice = tmp_path_factory.mktemp("tables"), random.Random(0)
    several, numbers, stars = [], [], []
    for i in range(400):
        there = [topic for topic in TOPICS if dice.random() < 0.4]
        words = [dice.choice(TOPICS[topic]) for topic in there] + dice.choices(FILL, k=5)
        several.append((f"{' '.join(dice.sample(words, len(words)))} {i}", "|".join(there)))
        words = dice.choices(list(WORTH), k=3)
        worth = sum(map(WORTH.get, words))
        words += dice.choices(FILL, k=4)
        text = f"{' '.join(dice.sample(words, len(words)))} {i}"
        numbers.append((text, round(50 + 7 * worth + dice.gauss(0, 2), 2)))
        stars.append((text, min(5, max(1, round(3 + worth / 2)))))
    return {
        "multilabel": write(folder / "topics.csv", "labels", several),
        "regression": write(folder / "numbers.csv", "score", numbers),
        "ordinal": write(folder / "stars.csv", "stars", stars),
    }


@pytest.fixture(scope="module")
def runs(tables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model for each task, which is found and not named."""
    made = {}
    for task, table in tables.items():
        made[task] = tmp_path_factory.mktemp(task) / "run"
        done = CliRunner().invoke(app, ["finetune", table, *SMALL, "--epochs", "8", "--out", str(made[task])])
        assert done.exit_code == 0, done.output
    return made


def predictions(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("doubt", [["--coverage", "0.9"], ["--abstain-below", "0.5"]], ids=lambda words: words[0])
@pytest.mark.parametrize("task", TASKS)
def test_label_sets_and_abstaining_are_refused_for_other_tasks(task: str, doubt: list[str], runs: dict[str, Path]):
    done = CliRunner().invoke(app, ["predict", str(runs[task]), "we came", *doubt])
    assert done.exit_code == 5, done.output
    assert f"for one class per text; the task of this model is {task}" in done.stderr


@pytest.mark.parametrize("task", TASKS)
def test_the_curves_show_the_leading_score_of_the_task(task: str, runs: dict[str, Path], monkeypatch):
    seen: list[Any] = []

    def axes(*size: float) -> Any:
        seen.append(picture.axes(*size))
        return seen[-1]

    monkeypatch.setattr(curves, "axes", axes)
    curves.write_curves(Run.open(runs[task]))
    score = {"multilabel": "F1", "regression": "R²", "ordinal": "quadratic kappa"}[task]
    loss = "loss" if task == "regression" else "loss (nats)"  # the squared error of standardized numbers has no unit
    assert [axis.get_ylabel() for axis in seen[0][1]] == [loss, f"validation {score}"]


def test_a_separator_makes_labels_several(tmp_path: Path):
    rows = [(f"we came {i}", ("food/price", "food", "price/staff", "staff")[i % 4]) for i in range(40)]
    table = write(tmp_path / "rows.csv", "labels", rows)
    found = split_labelled(LabelledConfig(train=table, label_separator="/")).target
    assert (found.task, found.names) == ("multilabel", ("food", "price", "staff"))


@pytest.mark.parametrize("task", TASKS)
def test_the_task_is_found_learned_and_scored_as_scikit_learn_does(task: str, runs: dict[str, Path]):
    result = json.loads((runs[task] / "result.json").read_text())
    rows = predictions(runs[task])
    known, said = [row["label"] for row in rows], [row["prediction"] for row in rows]
    match task:
        case "multilabel":
            known, said = ([[name in row for name in TOPICS] for row in part] for part in (known, said))
            expected, score = f1_score(known, said, average="micro"), "f1"
        case "regression":
            expected, score = r2_score(known, said), "r2"
        case _:
            expected, score = cohen_kappa_score(known, said, weights="quadratic"), "kappa"
    assert result["task"] == task
    assert result["test"][score] == pytest.approx(expected, abs=1e-5)
    assert result["test"][score] > 0.6
    assert result["test"][score] > result["commonest"]["test"] + 0.3


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_model_predicts_and_evaluates_as_it_did_when_it_was_trained(
    task: str, runs: dict[str, Path], tables: dict[str, str], tmp_path: Path
):
    model, rows = LoadedClassifier.load(runs[task]), predictions(runs[task])
    found = model.predict([row["text"] for row in rows])
    for row, again in zip(rows, found, strict=True):
        if task == "regression":
            assert again["label"] == pytest.approx(row["prediction"], rel=1e-4)
        else:
            assert again["label"] == row["prediction"]
            assert again["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)
    cells = [(r["text"], "|".join(r["label"]) if isinstance(r["label"], list) else r["label"]) for r in rows]
    table = write(tmp_path / "again.csv", "label", cells)
    done = CliRunner().invoke(app, ["evaluate", str(runs[task]), table, "--json"])
    assert done.exit_code == 0, done.output
    test = json.loads((runs[task] / "result.json").read_text())["test"]
    scores = json.loads(done.stdout)
    assert {key: scores[key] for key in test if key != "without_overlap"} == pytest.approx(
        {key: value for key, value in test.items() if key != "without_overlap"}, abs=1e-4
    )


@pytest.mark.parametrize("task", TASKS)
def test_what_is_looked_into_is_what_is_predicted_and_its_evidence_is_complete(task: str, runs: dict[str, Path]):
    text = "tasty soup and the waiter came" if task == "multilabel" else "it was great great and then bad"
    (predicted,) = LoadedClassifier.load(runs[task]).predict([text])
    seen = Inspector.load(runs[task]).inspect(text)
    shown = seen["labels"].data()
    parts = [view for view in seen.views if isinstance(view, Attribution)]
    for part in parts:
        assert part.complete
        by_token = dict(zip(map(str.strip, part.tokens), part.evidence, strict=True))
        match task:
            case "regression":
                assert part.log_odds == shown["value"] == pytest.approx(predicted["label"], rel=1e-5)
                assert (part.unit, by_token["great"] > 0 > by_token["bad"]) == ("units of the number", True)
            case "multilabel":
                own = predicted["probabilities"][part.label]
                assert part.log_odds == pytest.approx(np.log(own / (1 - own)), abs=1e-4)
                assert max(by_token, key=by_token.__getitem__) in TOPICS[part.label]
    said = [words in seen.html() for words in ("Blue raises the number", "<h3>Prediction</h3>")]
    assert said == [task == "regression"] * 2
    if task != "regression":
        assert shown == pytest.approx(predicted["probabilities"], abs=1e-6)
    if task == "multilabel":  # each label of the text has its own evidence
        assert {part.label for part in parts} == set(predicted["label"]) == {"food", "staff"}


def test_labels_that_are_not_attributed_are_told(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    inspector, text = Inspector.load(runs["multilabel"]), "tasty soup and the waiter came"
    assert inspector.inspect(text).notes == ()
    monkeypatch.setattr("headstart.use.inspect.MOST_LABELS", 1)
    seen = inspector.inspect(text)
    assert len([view for view in seen.views if isinstance(view, Attribution)]) == 1
    (note,) = seen.notes
    assert note.startswith("This text has 2 labels; ")
    assert "--label" in note


@pytest.mark.parametrize("task", TASKS)
def test_over_rows_the_words_of_each_label_lead(task: str, runs: dict[str, Path], tables: dict[str, str]):
    done = CliRunner().invoke(app, ["inspect", str(runs[task]), "--data", tables[task], "--rows", "3", "--json"])
    assert done.exit_code == 0, done.output
    (seen,) = json.loads(done.stdout)
    assert ("probes" in seen) == (task == "ordinal")  # which are for one class per text
    first = {label: found["tokens"][0]["token"].strip() for label, found in seen["classes"].items()}
    match task:
        case "multilabel":
            assert all(first[label] in TOPICS[label] for label in TOPICS)
        case "regression":
            assert first == {"value": "great"}


@pytest.mark.parametrize("task", TASKS)
def test_an_onnx_file_predicts_the_same(task: str, runs: dict[str, Path], tmp_path: Path):
    file = tmp_path / "model.onnx"
    done = CliRunner().invoke(app, ["export", str(runs[task]), "--to", "onnx", "--out", str(file)])
    assert done.exit_code == 0, done.output
    texts = [row["text"] for row in predictions(runs[task])[:20]]
    answers = []
    for model in (str(runs[task]), str(file)):
        done = CliRunner().invoke(app, ["predict", model, *texts, "--json"])
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout))
    for ours, theirs in zip(*answers, strict=True):
        if task == "regression":
            assert theirs["label"] == pytest.approx(ours["label"], rel=1e-4)
        else:
            assert theirs["label"] == ours["label"]
            assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-4)


@pytest.mark.parametrize(("task", "kind"), [("multilabel", "multi_label_classification"), ("regression", "regression")])
def test_transformers_gives_the_same_outputs(task: str, kind: str, runs: dict[str, Path], tmp_path: Path):
    from transformers import pipeline

    out = tmp_path / "exported"
    done = CliRunner().invoke(app, ["export", str(runs[task]), "--to", "hf", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "config.json").read_text())["problem_type"] == kind
    texts = [row["text"] for row in predictions(runs[task])[:5]]
    theirs = pipeline("text-classification", str(out), truncation=True, top_k=None)(texts)
    for ours, found in zip(LoadedClassifier.load(runs[task]).predict(texts), theirs, strict=True):
        by_name = {each["label"]: each["score"] for each in found}
        expected = {"value": ours["label"]} if task == "regression" else ours["probabilities"]
        assert by_name == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_ordered_classes_have_no_class_in_transformers(runs: dict[str, Path], tmp_path: Path):
    done = CliRunner().invoke(app, ["export", str(runs["ordinal"]), "--to", "hf", "--out", str(tmp_path / "x")])
    assert done.exit_code != 0
    assert "ordered classes" in done.output


@pytest.mark.parametrize("task", TASKS)
def test_a_study_compares_arms_by_the_score_of_the_task(task: str, tables: dict[str, str], tmp_path: Path):
    base, out = tmp_path / "base", tmp_path / "study"
    lines = [line.partition(",")[0] for line in Path(tables[task]).read_text().splitlines()[1:]]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    pretrain = [
        "pretrain",
        str(tmp_path / "corpus.txt"),
        "--unit",
        "line",
        "--tokenizer",
        "word",
        "--size",
        "nano",
        "--steps",
        "20",
    ]
    done = CliRunner().invoke(app, [*pretrain, "--out", str(base), "--quiet", "--threads", "1"])
    assert done.exit_code == 0, done.output
    few = ["--set", "finetune.epochs=2", "--set", "least_steps=5", "--set", "rates=[0.001]"]
    arms = ["--arms", "constant,tfidf,scratch,frozen,full,hybrid"]
    command = [
        "compare",
        tables[task],
        "--base",
        str(base),
        *arms,
        "--seeds",
        "2",
        "--labels",
        "100",
        "--yes",
        "--quiet",
        "--json",
    ]
    done = CliRunner().invoke(app, [*command, *few, "--out", str(out)])
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    scores = {arm["name"]: arm["mean"] for arm in results["arms"]}
    assert results["failures"] == []
    page = (out / "report.html").read_text()
    sections = {
        "multilabel": "F1 by label",
        "regression": "Predicted against true",
        "ordinal": "What is taken for what",
    }
    assert [t for t, title in sections.items() if f"<h2>{title}</h2>" in page] == [task]
    if task == "regression":
        assert "<bdi>value</bdi>" not in page  # numbers have no rows of a label
        held_out = [float(r["label"]) for r in predictions(out / "cells" / "full-base~100~0")]
        tuned = next(arm for arm in results["arms"] if arm["name"].startswith("full"))
        assert [true for true, _ in tuned["points"]] == pytest.approx(held_out, rel=1e-5)
    if task == "multilabel":
        assert set(results["arms"][1]["types"]) == set(TOPICS)
        _, _, below = page.partition("<h2>F1 by label</h2>")
        tested = results["data"]["labels"]["test"]
        rows = re.findall(r'scope="row"><bdi>(\w+)</bdi></th><td class="n">(\d+)', below.partition("</table>")[0])
        assert rows == [(topic, str(tested[topic])) for topic in sorted(TOPICS)]
    assert (results["task"], set(scores)) == (task, {"constant", "tfidf", "scratch", "frozen", "full", "hybrid"})
    assert scores["tfidf"] > scores["constant"] + 0.2
    assert scores["frozen"] > scores["constant"]
    cell = predictions(out / "cells" / "tfidf~100~0")
    assert len(cell) == results["data"]["rows"]["test"]
    page = (out / "report.html").read_text()
    assert "Other scores" in page


@pytest.mark.parametrize(
    ("rows", "task", "said"),
    [
        (["1", "two", "3"] * 10, "regression", "row 2: the label 'two' is no number"),
        (["1", "two", "3"] * 10, "ordinal", "row 2: the label 'two' is no number"),
        (["[a, b]", "[a]"] * 10, "multilabel", "row 1: the labels are a list"),
        (["", "1.5"] * 10, "regression", "the label is blank"),
    ],
)
def test_labels_that_the_task_cannot_use_are_refused_with_their_row(
    rows: list[str], task: Any, said: str, tmp_path: Path
):
    table = write(tmp_path / "t.csv", "label", [(f"text {i}", label) for i, label in enumerate(rows)])
    with pytest.raises(DataError, match=said):
        split_labelled(LabelledConfig(train=table, task=task))


@pytest.mark.parametrize("arm", ["zero-shot", "contrastive", "lexicon"])
def test_arms_for_one_class_are_refused(arm: str, tables: dict[str, str], runs: dict[str, Path], tmp_path: Path):
    command = ["compare", tables["regression"], "--base", str(runs["regression"]), "--arms", arm, "--yes"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "study")])
    assert done.exit_code != 0
    assert "one class" in done.output


def test_rows_without_labels_are_rows_of_a_multilabel_table(tables: dict[str, str]):
    data = split_labelled(LabelledConfig(train=tables["multilabel"]))
    assert data.target.task == "multilabel"
    assert data.labels == sorted(TOPICS)
    assert any(not example.label for example in data.train)
    few = draw(data, 40, seed=1)
    assert len(few.train) == 40


def test_lists_in_json_lines_are_several_labels(tmp_path: Path):
    rows = [{"text": f"text {i}", "labels": ["a", "b"][: i % 3]} for i in range(30)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = split_labelled(LabelledConfig(train=str(tmp_path / "t.jsonl")))
    assert (data.target.task, data.labels) == ("multilabel", ["a", "b"])
    assert np.allclose(sorted(data.target.encode([e.label for e in data.train]).sum(1).tolist())[-1], 2)


def test_a_task_that_is_named_wins_over_the_one_that_is_found(tables: dict[str, str]):
    assert split_labelled(LabelledConfig(train=tables["ordinal"], task="classify")).target.task == "classify"
    assert split_labelled(LabelledConfig(train=tables["ordinal"], task="regression")).target.task == "regression"


def test_every_head_on_every_external_base_keeps_its_names_on_disk():
    from headstart.models.heads import HEADS, POOLS
    from headstart.models.huggingface import KINDS
    from headstart.models.layout import our_name, their_name
    from headstart.shapes import HuggingFaceConfig

    for model_type in KINDS:
        cfg = HuggingFaceConfig.model_construct(model_type=model_type)
        for make in HEADS.values():
            names = [f"head.{name}" for name, _ in make(8, 4, POOLS["mean"]).named_parameters()]
            assert [our_name(their_name(name, cfg), cfg) for name in names] == names
