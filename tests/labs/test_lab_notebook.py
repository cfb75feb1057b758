"""Labs as notebooks: both are executed, the student's has no solution in it, and what is written in it can be graded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import UserError
from headstart.labs.assignment import open_course, start
from headstart.labs.check import check
from headstart.labs.grade import grade
from headstart.labs.notebook import write_notebooks
from headstart.labs.sheet import PROMPT
from headstart.labs.tasks import Choose, Explain, Predict, Written

KEYS = Path(__file__).parents[2] / "examples" / "keys"
LABS = sorted(path.parent.name for path in KEYS.glob("*/key.toml"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("notebooks")
    for lab in LABS:
        done = CliRunner().invoke(
            app,
            ["lab", "notebook", lab, "--student", "alice", "--key", str(KEYS / lab / "key.toml"), "--out", str(out)],
        )
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines() == [str(out / f"{lab}{part}.ipynb") for part in ("", "-solution", "-otter")]
    return out


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_every_assignment_has_a_key_with_its_solution() -> None:
    assert LABS == ["attention", "leakage", "transfer"]


@pytest.mark.parametrize("lab", LABS)
def test_the_notebook_with_solutions_runs_and_shows_what_it_says(
    lab: str, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for cell in cells(written / f"{lab}-solution.ipynb"):
        exec(source(cell), names)  # noqa: S102
        assert capsys.readouterr().out == "".join(text for output in cell["outputs"] for text in output["text"])
    checked = [source(cell) for cell in cells(written / f"{lab}-solution.ipynb") if "check" in source(cell)]
    for task in open_course(lab).lab.task:
        asked = sum(f'("{task.name}",' in text and "Checks" not in text for text in checked)
        assert asked == (2 if isinstance(task, Choose | Predict) else 1 if isinstance(task, Written) else 0)


@pytest.mark.parametrize("lab", LABS)
def test_the_notebook_of_a_student_runs_until_its_checks_and_each_of_them_fails(lab: str, written: Path) -> None:
    names: dict[str, Any] = {}
    failed = []
    for cell in cells(written / f"{lab}.ipynb"):
        try:
            exec(source(cell), names)  # noqa: S102
        except AssertionError as error:
            failed.append(str(error).partition(":")[0])
    asked = [task.name for task in open_course(lab).lab.task if isinstance(task, Written | Choose | Predict)]
    assert failed == asked


@pytest.mark.parametrize("lab", LABS)
def test_the_notebook_of_a_student_has_no_solution_in_it(lab: str, written: Path) -> None:
    text = (written / f"{lab}.ipynb").read_text("utf-8")
    assert not any(mark in text for mark in ("SOLUTION", "BEGIN", "PROMPT", "HIDDEN", ".right("))
    solved = {line.strip() for cell in cells(written / f"{lab}-solution.ipynb") for line in source(cell).splitlines()}
    own = {line.strip() for cell in cells(written / f"{lab}.ipynb") for line in source(cell).splitlines()}
    stubs = open_course(lab)
    given = {line.strip() for stub in stubs.lab.stubs for line in (stubs.path.parent / stub).read_text().splitlines()}
    assert len(solved - own) > 10
    assert not {line for line in own & solved if line not in given and "check" not in line.lower()} - {""}


@pytest.mark.parametrize("lab", LABS)
def test_the_source_has_one_question_of_otters_per_task(lab: str, written: Path) -> None:
    raw = [source(cell) for cell in cells(written / f"{lab}-otter.ipynb", "raw")]
    assert raw[0].startswith("# ASSIGNMENT CONFIG\n")
    tasks = open_course(lab).lab.task
    begun = [text.splitlines() for text in raw if text.startswith("# BEGIN QUESTION")]
    assert begun == [
        ["# BEGIN QUESTION", f"name: {task.name}", f"points: {task.points}", f"manual: {str(isinstance(task, Explain)).lower()}"]
        for task in tasks
    ]  # fmt: skip
    for part in ("QUESTION", "SOLUTION", "TESTS"):
        assert sum(text.startswith(f"# BEGIN {part}") for text in raw) == raw.count(f"# END {part}") > 0


# --- Handed in


def change(path: Path, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    found = json.loads(path.read_text("utf-8"))
    edit(found["cells"])
    path.write_text(json.dumps(found))


@pytest.fixture
def folder(tmp_path: Path, written: Path) -> Path:
    """The folder of alice, with her notebook."""
    made = start("attention", "alice", tmp_path / "alice")
    made.joinpath("attention.ipynb").write_bytes((written / "attention-solution.ipynb").read_bytes())
    return made


def states(folder: Path) -> dict[str, tuple[str, str]]:
    return {each.task: (each.state, each.note) for each in check(folder)}


def test_a_notebook_is_graded_like_files(folder: Path) -> None:
    def experiment(cells: list[dict[str, Any]]) -> None:
        cells.append({"cell_type": "code", "source": "%matplotlib inline\nimport math\n1 / 0\nx = causal_mask(3)"})
        cells.insert(0, {"cell_type": "code", "source": ["def mine(n):\n", "    return math.sqrt(n)"]})

    change(folder / "attention.ipynb", experiment)
    (found,) = grade([folder], KEYS / "attention" / "key.toml")
    assert (found.points, found.by_hand, found.findings) == (21, 3, [])
    assert "1 / 0" not in (folder / "attention.py").read_text()
    assert "def mine" in (folder / "attention.py").read_text()


def test_an_empty_notebook_has_nothing_done(folder: Path, written: Path) -> None:
    (folder / "attention.ipynb").write_bytes((written / "attention.ipynb").read_bytes())
    found = states(folder)
    assert {name for name, (state, _) in found.items() if state == "missing"} == set(found) - {"shifted-target"}


def test_what_is_wrong_in_a_notebook_is_told_task_by_task(folder: Path) -> None:
    def spoil(cells: list[dict[str, Any]]) -> None:
        for cell in cells:
            task = cell["metadata"].get("headstart", {}).get("task")
            text = source(cell)
            cell["source"] = {
                "allowed-pairs": "allowed_pairs = 6 * 7 / 2",
                "why-scale": "why_scale = 'z'",
                "causal-mask": text.replace("tril()", "triu()"),
                "why-zero": PROMPT,
            }.get(task, text)

    change(folder / "attention.ipynb", spoil)
    found = states(folder)
    assert found["allowed-pairs"] == ("wrong", "the answer is a number, not '6 * 7 / 2'")
    assert found["why-scale"][0] == "wrong"
    assert found["causal-mask"][0] == "wrong"
    assert found["why-zero"] == ("missing", "")
    assert found["attention"] == ("passed", "")


def test_a_notebook_writes_no_file_that_the_lab_does_not_hand_out(folder: Path) -> None:
    def lead_out(cells: list[dict[str, Any]]) -> None:
        for cell in cells:
            if "file" in cell["metadata"].get("headstart", {}):
                cell["metadata"]["headstart"]["file"] = "../outside.py"

    change(folder / "attention.ipynb", lead_out)
    assert states(folder)["causal-mask"][0] == "wrong"
    assert not (folder.parent / "outside.py").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [{"cell_type": 1}]}'])
def test_a_damaged_notebook_is_reported(folder: Path, text: str) -> None:
    (folder / "attention.ipynb").write_text(text)
    with pytest.raises(UserError, match=r"attention\.ipynb is no notebook"):
        check(folder)


def test_a_key_without_a_solution_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.toml").write_text('lab = "attention"')
    with pytest.raises(UserError, match="has no `solution"):
        write_notebooks("attention", "alice", tmp_path / "key.toml", tmp_path)
    with pytest.raises(UserError, match=r"is the key of .*not of"):
        write_notebooks("leakage", "alice", KEYS / "attention" / "key.toml", tmp_path)
