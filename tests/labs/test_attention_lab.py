"""The lab `attention` as an assignment: a right solution gets all points, each usual mistake loses exactly its own."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

from headstart.cli import app
from headstart.labs.assignment import open_course, start, variant_of
from headstart.labs.grade import Grade, grade
from headstart.labs.snapshots import Case
from headstart.labs.tasks import Choose, Predict

MASK = "torch.ones(tokens, tokens, dtype=torch.bool).tril()"
SCORES = "query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5"
MASKED = "scores if mask is None else scores.masked_fill(~mask, float('-inf'))"
WEIGHTS = "scores.softmax(dim=-1)"
LAST = "(mask * torch.arange(1, mask.shape[1] + 1)).argmax(dim=1)"
LOGITS, TARGETS = "logits[:, :-1]", "ids[:, 1:]"
IGNORED = ", ignore_index=padding"
RIGHT = f"""
import torch
from torch.nn import functional as F

def causal_mask(tokens):
    return {MASK}

def attention(query, key, value, mask=None):
    scores = {SCORES}
    scores = {MASKED}
    weights = {WEIGHTS}
    return weights @ value

def last_real_token(hidden, mask):
    last = {LAST}
    return hidden[torch.arange(len(hidden)), last]

def next_token_loss(logits, ids, padding):
    logits, ids = {LOGITS}, {TARGETS}
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten(){IGNORED})
"""
EXPLANATION = (
    "Without the shift the target at a position is the token that was read there, so copying the input is enough: " * 3
)
MISTAKES = {  # what is put in place of what, and the tasks that it costs
    "scores not scaled": ((SCORES, "query @ key.transpose(-2, -1)"), {"attention"}),
    "scaled by the width itself": (("** 0.5", ""), {"attention"}),
    "softmax over the queries": (("dim=-1)", "dim=-2)"), {"attention"}),
    "masked only after the softmax": ((f"    scores = {MASKED}\n    weights = {WEIGHTS}", f"    weights = {WEIGHTS} * (1 if mask is None else mask)"), {"attention"}),
    "the mask not used": ((MASKED, "scores"), {"attention"}),
    "the mask inverted": (("~mask", "mask"), {"attention"}),
    "the upper triangle": ((".tril()", ".triu()"), {"causal-mask"}),
    "a token does not see itself": ((".tril()", ".tril(-1)"), {"causal-mask"}),
    "a mask of numbers": (("dtype=torch.bool", "dtype=torch.float32"), {"causal-mask"}),
    "position -1, padding or not": ((LAST, "-1"), {"last-token"}),
    "counts tokens, so padding on the left is read": ((LAST, "mask.sum(dim=1) - 1"), {"last-token"}),
    "the target not shifted": ((f"{LOGITS}, {TARGETS}", "logits, ids"), {"shifted-target"}),
    "shifted the wrong way": ((f"{LOGITS}, {TARGETS}", "logits[:, 1:], ids[:, :-1]"), {"shifted-target"}),
    "padding counted in the loss": ((IGNORED, ""), {"shifted-target"}),
    "a sum for a mean": ((IGNORED, f"{IGNORED}, reduction='sum'"), {"shifted-target"}),
    "no Python": (("def attention", "def def"), {"causal-mask", "attention", "last-token", "shifted-target"}),
    "an endless loop": (("    last = ", "    while True: pass\n    last = "), {"last-token"}),
}  # fmt: skip
WRONG_ANSWERS = {
    "pairs without the diagonal": ("allowed-pairs", lambda n: n * (n - 1) // 2),
    "all pairs": ("allowed-pairs", lambda n: n * n),
    "bits for nats": ("first-loss", lambda v: math.log2(v)),
    "outside the tolerance": ("first-loss", lambda v: math.log(v) + 0.08),
}
COURSE = open_course("attention")
POINTS = {task.name: task.points for task in COURSE.lab.task}
BY_HAND = POINTS["why-zero"]
KEY = 'lab = "attention"\n'


def values(student: str) -> dict[str, int]:
    """The numbers in a student's version of the questions."""
    tasks = [task for task in COURSE.lab.task if isinstance(task, Choose | Predict) and task.variant]
    return {
        task.name: int(next(iter(task.variant[variant_of("attention", student, task)].values.values())))
        for task in tasks
    }


def fill(folder: Path, student: str, code: str = RIGHT, **others: object) -> Path:
    """A folder with right answers, apart from `others`."""
    own = values(student)
    n = own["allowed-pairs"]
    answers: dict[str, object] = {
        "allowed-pairs": n * (n + 1) // 2,
        "first-loss": round(math.log(own["first-loss"]), 2),
        "why-scale": "c",
        "why-zero": EXPLANATION + student,
        **others,
    }
    lines = [f"{name} = {json.dumps(answer)}" for name, answer in answers.items()]
    (folder / "answers.toml").write_text("\n".join([f'student = "{student}"', "[answers]", *lines]))
    (folder / "attention.py").write_text(f"# {student}\n{code}")
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Grade]:
    """The right solution and every wrong one, graded together; by what is wrong with them."""
    root = tmp_path_factory.mktemp("class")
    (root / "key.toml").write_text(KEY)
    folders = {}
    for number, name in enumerate(["right", *MISTAKES, *WRONG_ANSWERS]):
        student = f"s{number}"
        folder = start("attention", student, root / student)
        if name in MISTAKES:
            (before, after), _ = MISTAKES[name]
            assert RIGHT.count(before) == 1, name
            fill(folder, student, RIGHT.replace(before, after))
        elif name in WRONG_ANSWERS:
            task, answer = WRONG_ANSWERS[name]
            fill(folder, student, **{task: answer(values(student)[task])})
        else:
            fill(folder, student)
        folders[name] = folder
    return dict(zip(folders, grade(list(folders.values()), root / "key.toml"), strict=True))


def lost(found: Grade) -> set[str]:
    return {task.task for task in found.tasks if task.points == 0}


def test_a_right_solution_gets_every_point_that_is_not_given_by_hand(graded: dict[str, Grade]) -> None:
    found = graded["right"]
    assert lost(found) == set()
    assert (found.points, found.by_hand, found.most) == (21, BY_HAND, 24)
    assert not found.findings


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_loses_its_own_points_and_no_others(mistake: str, graded: dict[str, Grade]) -> None:
    costs = MISTAKES[mistake][1]
    assert lost(graded[mistake]) == costs
    assert graded[mistake].points == 21 - sum(POINTS[name] for name in costs)


@pytest.mark.parametrize("mistake", WRONG_ANSWERS)
def test_a_wrong_answer_loses_its_own_points(mistake: str, graded: dict[str, Grade]) -> None:
    assert lost(graded[mistake]) == {WRONG_ANSWERS[mistake][0]}


def test_the_snapshots_are_what_torch_computes() -> None:
    def built(value: object) -> object:
        return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"])) if isinstance(value, dict) else value

    def cases(function: str) -> list[tuple[list[object], torch.Tensor, Case]]:
        return [([built(arg) for arg in case.args], built(case.expects), case) for case in COURSE.snapshots[function]]  # type: ignore[misc]

    for (query, key, value, mask), expected, _ in cases("attention"):
        torch.testing.assert_close(
            functional.scaled_dot_product_attention(query, key, value, attn_mask=mask), expected, atol=1e-5, rtol=1e-4
        )
    for (tokens,), expected, _ in cases("causal_mask"):
        assert torch.equal(expected, torch.ones(tokens, tokens, dtype=torch.bool).tril())  # type: ignore[call-overload]
    for (logits, ids, padding), expected, _ in cases("next_token_loss"):
        rows = [
            functional.cross_entropy(logits[b, t], ids[b, t + 1])
            for b in range(len(ids))
            for t in range(ids.shape[1] - 1)
            if ids[b, t + 1] != padding
        ]
        torch.testing.assert_close(torch.stack(rows).mean(), expected, atol=1e-5, rtol=1e-4)
    for (hidden, mask), expected, _ in cases("last_real_token"):
        last = [max(i for i, there in enumerate(row) if there) for row in mask.tolist()]
        assert torch.equal(expected, torch.stack([row[i] for row, i in zip(hidden, last, strict=True)]))


# --- From start to grade, as a student and a teacher would


def invoke(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_from_start_to_a_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("lab", "start", "attention", "--student", "alice")
    assert "headstart lab check attention-alice" in shown
    assert sorted(path.name for path in Path("attention-alice").iterdir()) == [
        "README.md", "adapters.py", "answers.toml", "assignment.json", "attention.py", "lab.toml", "snapshots.json"
    ]  # fmt: skip
    page = Path("attention-alice/README.md").read_text("utf-8")
    assert f"A text has {values('alice')['allowed-pairs']} tokens." in page
    assert "24 points, about 90 minutes" in page
    assert not re.search(r"\{\w+\}", page)

    shown = invoke("lab", "check", "attention-alice")
    assert re.search(r"causal-mask +implement +3 +missing", shown)
    assert re.search(r"shifted-target +repair +4 +wrong +one text: its value is wrong", shown)
    assert "8 of 8 tasks are left." in shown
    assert not Path("attention-alice/predicted.json").exists()

    fill(Path("attention-alice"), "alice")
    shown = invoke("lab", "check", "attention-alice")
    assert "Nothing is left to do." in shown
    assert "allowed-pairs: Once your causal_mask works" in shown
    assert not list(Path("attention-alice").glob("__pycache__"))

    Path("key.toml").write_text(KEY + "[marks.alice]\nwhy-zero = 2\n")
    shown = invoke("lab", "grade", "attention-alice", "--key", "key.toml", "--gradescope")
    assert "!" not in shown
    with open("grades/grades.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["student"], row["points"], row["of"], row["why-zero"], row["by_hand"]) == (
        "alice",
        "23",
        "24",
        "2",
        "0",
    )
    results = json.loads(Path("grades/alice/results.json").read_text("utf-8"))
    assert results["score"] == 23 == sum(test["score"] for test in results["tests"])
    assert sum(test["max_score"] for test in results["tests"]) == 24


# --- What a teacher has to know


@pytest.fixture
def classroom(tmp_path: Path) -> Path:
    """alice, who did the work, and a key."""
    fill(start("attention", "alice", tmp_path / "alice"), "alice")
    (tmp_path / "key.toml").write_text(KEY)
    return tmp_path


def findings(classroom: Path, *students: str) -> list[list[str]]:
    return [found.findings for found in grade([classroom / student for student in students], classroom / "key.toml")]


def test_a_copied_folder_is_found(classroom: Path) -> None:
    shutil.copytree(classroom / "alice", classroom / "bob")
    key, out = classroom / "key.toml", classroom / "grades"
    invoke("lab", "grade", classroom / "alice", classroom / "bob", "--key", key, "--out", out, "--gradescope")
    assert sorted(path.parent.name for path in out.rglob("results.json")) == ["alice", "alice-2"]
    same = findings(classroom, "alice", "bob")
    assert all(any("same student's id" in each for each in found) for found in same)
    for file in ("assignment.json", "answers.toml"):
        path = classroom / "bob" / file
        path.write_text(path.read_text("utf-8").replace('"alice"', '"bob"'))
    alice, bob = findings(classroom, "alice", "bob")
    assert not any("seed" in each for each in alice)  # whose work it is
    assert "the seed is that of alice" in bob
    assert any("is not that of bob" in each for each in bob)
    assert any("attention.py is, byte for byte, that of alice" in each for each in bob)
    assert any("an explanation is, word for word, that of alice" in each for each in bob)


def test_copied_answers_are_answers_to_other_questions(classroom: Path) -> None:
    other = next(f"b{n}" for n in range(99) if all(values(f"b{n}")[k] != v for k, v in values("alice").items()))
    start("attention", other, classroom / other)
    for file in ("answers.toml", "attention.py"):
        shutil.copy(classroom / "alice" / file, classroom / other / file)
    _, found = grade([classroom / "alice", classroom / other], classroom / "key.toml")
    assert lost(found) == {"allowed-pairs", "first-loss"}
    assert any("answers.toml is that of 'alice'" in each for each in found.findings)


def test_an_edited_hash_is_found_and_does_not_count(classroom: Path) -> None:
    """The hash of another answer, from the file of the student's own choice."""
    path = classroom / "alice" / "lab.toml"
    text = path.read_text("utf-8")
    digest = COURSE.lab.task[2].sha256  # type: ignore[union-attr]
    assert text.count(digest) == 1
    path.write_text(text.replace(digest, "0" * 16 + ":" + "0" * 64))
    fill(classroom / "alice", "alice", **{"why-scale": "d"})
    (found,) = grade([classroom / "alice"], classroom / "key.toml")
    assert lost(found) == {"why-scale"}
    assert found.findings == ["lab.toml was edited, or is of another version of the lab; the teacher's was used"]


def test_edited_snapshots_are_found_and_do_not_count(classroom: Path) -> None:
    path = classroom / "alice" / "snapshots.json"
    path.write_text(path.read_text("utf-8").replace("true", "1"))
    (found,) = grade([classroom / "alice"], classroom / "key.toml")
    assert not lost(found)
    assert ["snapshots.json was edited" in each for each in found.findings] == [True]


def test_a_prediction_that_was_changed_after_its_result_counts_as_it_was(classroom: Path) -> None:
    fill(classroom / "alice", "alice", **{"allowed-pairs": 1})
    invoke("lab", "check", classroom / "alice")
    fill(classroom / "alice", "alice")
    (found,) = grade([classroom / "alice"], classroom / "key.toml")
    assert lost(found) == {"allowed-pairs"}
    assert any("'allowed-pairs' was changed after" in each for each in found.findings)


def test_hidden_cases_find_outputs_that_were_written_down(classroom: Path) -> None:
    """The snapshots are public, so a function may know them by heart."""
    known = "{1: [[True]], 3: [[True, False, False], [True, True, False], [True, True, True]]}.get(tokens, " + (
        "[[i >= j for j in range(5)] for i in range(5)])"
    )
    fill(classroom / "alice", "alice", RIGHT.replace(MASK, f"torch.tensor({known})"))
    assert not lost(grade([classroom / "alice"], classroom / "key.toml")[0])
    expects = {"tensor": torch.ones(2, 2).tril().bool().tolist(), "dtype": "bool"}
    (classroom / "hidden.json").write_text(
        json.dumps({"causal_mask": [{"what": "two", "args": [2], "expects": expects}]})
    )
    (classroom / "key.toml").write_text(KEY + 'cases = "hidden.json"\n')
    (found,) = grade([classroom / "alice"], classroom / "key.toml")
    assert lost(found) == {"causal-mask"}
    assert [task.note for task in found.tasks if task.task == "causal-mask"] == ["a hidden case fails"]
