"""The lab `leakage` as an assignment: a right solution gets all points, each usual mistake loses exactly its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score
from statsmodels.stats.proportion import proportion_confint

from headstart.labs.assignment import open_course, start, variant_of
from headstart.labs.grade import Grade, grade
from headstart.labs.tasks import Choose, Predict

RIGHT = """
import math
import torch

def macro_f1(labels, predictions):
    scores = []
    for name in set(labels):
        hits = sum(a == b == name for a, b in zip(labels, predictions))
        wrong = sum((a == name) != (b == name) for a, b in zip(labels, predictions))
        scores.append(2 * hits / (2 * hits + wrong))
    return sum(scores) / len(scores)

def accuracy_interval(right, rows):
    z, p = 1.96, right / rows
    below = 1 + z**2 / rows
    centre = (p + z**2 / (2 * rows)) / below
    half = z / below * math.sqrt(p * (1 - p) / rows + z**2 / (4 * rows**2))
    return [centre - half, centre + half]

def key(text):
    return " ".join(text.casefold().split())

def without_leaks(train, test):
    known = {key(text) for text in train}
    return [text for text in test if key(text) not in known]

def standardised(train, test):
    mean, deviation = train.mean(dim=0), train.std(dim=0)
    return [(train - mean) / deviation, (test - mean) / deviation]

def mean_pool(hidden, mask):
    return (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
"""
MISTAKES = {
    "accuracy for macro-F1": ("return sum(scores) / len(scores)", "return sum(a == b for a, b in zip(labels, predictions)) / len(labels)", "macro-f1"),
    "only the classes that are predicted": ("set(labels):", "set(predictions):", "macro-f1"),
    "precision for F1": ("(2 * hits + wrong)", "max(1, 2 * sum(b == name for b in predictions))", "macro-f1"),
    "weighted by the size of the class": ("append(2 * hits", "append(len(set(labels)) * labels.count(name) / len(labels) * 2 * hits", "macro-f1"),
    "the interval of Wald": ("return [centre - half, centre + half]", "half = z * math.sqrt(p * (1 - p) / rows)\n    return [p - half, p + half]", "interval"),
    "around the accuracy itself": ("[centre - half, centre + half]", "[p - half, p + half]", "interval"),
    "case is not folded": ("text.casefold().split()", "text.split()", "leaked-rows"),
    "white space at the ends only": ('" ".join(text.casefold().split())', "text.casefold().strip()", "leaked-rows"),
    "texts handed back in lower case": ("return [text for", "return [key(text) for", "leaked-rows"),
    "copies compared with the test rows": ("for text in train}", "for text in test}", "leaked-rows"),
    "each part by its own statistics": ("(test - mean) / deviation]", "(test - test.mean(dim=0)) / test.std(dim=0)]", "leaked-statistics"),
    "statistics of all rows": ("train.mean(dim=0), train.std(dim=0)", "torch.cat([train, test]).mean(dim=0), torch.cat([train, test]).std(dim=0)", "leaked-statistics"),
    "padding in the mean": ("(hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)", "hidden.mean(dim=1)", "padding"),
    "padding zeroed, but counted": ("/ mask.sum(dim=1, keepdim=True)", "/ hidden.shape[1]", "padding"),
}  # fmt: skip
WRONG_ANSWERS: dict[str, tuple[str, Any]] = {
    "the share of the positives": ("majority", lambda v: v["positive"] / v["rows"]),
    "accuracy again": ("never-found", lambda v: v["share"] / 100),
    "the best on the test rows": ("which-rows", lambda _: "c"),
}
COURSE = open_course("leakage")
POINTS = {task.name: task.points for task in COURSE.lab.task}


def fill(folder: Path, student: str, code: str, wrong: str = "") -> None:
    values = {
        task.name: dict(task.variant[variant_of("leakage", student, task)].values) if task.variant else {}
        for task in COURSE.lab.task
        if isinstance(task, Choose | Predict)
    }
    rows, share = values["majority"], int(values["never-found"]["share"]) / 100
    answers = {
        "majority": 1 - int(rows["positive"]) / int(rows["rows"]),
        "never-found": share / (1 + share),
        "which-rows": "b",
        "too-good": f"{student} "
        + "would look for copies, for the majority class, and for rows that were chosen on. " * 4,
    }
    if wrong:
        task, answer = WRONG_ANSWERS[wrong]
        answers[task] = answer(values[task])
    lines = [f"{name} = {json.dumps(answer)}" for name, answer in answers.items()]
    (folder / "answers.toml").write_text("\n".join([f'student = "{student}"', "[answers]", *lines]))
    (folder / "evaluation.py").write_text(f"# {student}\n{code}")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Grade]:
    root = tmp_path_factory.mktemp("class")
    (root / "key.toml").write_text('lab = "leakage"')
    names = ["right", *MISTAKES, *WRONG_ANSWERS]
    for number, name in enumerate(names):
        before, after, _ = MISTAKES.get(name, ("", "", ""))
        assert not before or RIGHT.count(before) == 1, name
        folder = start("leakage", f"s{number}", root / f"s{number}")
        fill(
            folder,
            f"s{number}",
            RIGHT.replace(before, after) if before else RIGHT,
            name if name in WRONG_ANSWERS else "",
        )
    folders = [root / f"s{number}" for number in range(len(names))]
    return dict(zip(names, grade(folders, root / "key.toml"), strict=True))


@pytest.mark.parametrize("name", ["right", *MISTAKES, *WRONG_ANSWERS])
def test_a_mistake_loses_its_own_points_and_no_others(name: str, graded: dict[str, Grade]) -> None:
    costs = {MISTAKES[name][2]} if name in MISTAKES else {WRONG_ANSWERS[name][0]} if name in WRONG_ANSWERS else set()
    found = graded[name]
    assert {task.task for task in found.tasks if task.points == 0} == costs
    assert found.points == 23 - sum(POINTS[task] for task in costs)
    assert (found.by_hand, found.most, found.findings) == (3, 26, [])


def test_the_stubs_get_no_points_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "key.toml").write_text('lab = "leakage"')
    (found,) = grade([start("leakage", "alice", tmp_path / "alice")], tmp_path / "key.toml")
    assert (found.points, found.by_hand) == (0, 0)


def test_the_snapshots_are_what_others_compute() -> None:
    for case in COURSE.snapshots["macro_f1"]:
        labels, predictions = case.args
        score = f1_score(labels, predictions, labels=sorted(set(labels)), average="macro", zero_division=0)
        assert case.expects == pytest.approx(score, abs=1e-5)
    for case in COURSE.snapshots["accuracy_interval"]:
        assert list(case.expects) == pytest.approx(proportion_confint(*case.args, method="wilson"), abs=1e-4)
    for case in COURSE.snapshots["standardised"]:
        train, test = (torch.tensor(each["tensor"]) for each in case.args)
        for rows, expected in zip((train, test), case.expects, strict=True):
            wanted = (rows - train.mean(dim=0)) / train.std(dim=0)
            torch.testing.assert_close(wanted, torch.tensor(expected["tensor"]), atol=1e-5, rtol=1e-4)
