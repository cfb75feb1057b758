"""The public checks of a student's folder: what is answered, and which functions match their snapshots. No torch.

Whether an answer to a question is right is not told; only grading tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.labs.assignment import (
    Assignment,
    Begun,
    Course,
    Filled,
    keep_predictions,
    open_course,
    read_assignment,
    read_begun,
)
from headstart.labs.lab import Lab
from headstart.labs.notebook_work import read_work
from headstart.labs.receipts import reached
from headstart.labs.snapshots import Case
from headstart.labs.student_code import Call, faults, told
from headstart.labs.tasks import Choose, Explain, Given, Predict, Reach, Task, Written, is_blank, normalised
from headstart.runs.disk import write_file
from headstart.schema import to_toml


@dataclass(frozen=True)
class Checked:
    """A task, and how far it has got: missing, answered, wrong, passed; `note` says more."""

    task: str
    kind: str
    points: int
    state: str
    note: str = ""
    reveal: str = ""  # of a prediction that has been made


def check(folder: Path) -> list[Checked]:
    """The tasks of a student's folder; first answers to predictions are kept."""
    begun = read_begun(folder)
    course = open_course(str(folder / "lab.toml"), handed_out=True)
    unpack(folder, begun, course.lab)
    assignment = read_assignment(folder)
    written = [task for task in course.lab.task if isinstance(task, Written)]
    names = [task.name for task in written]
    found = dict(zip(names, faults(calls(course, assignment, written)), strict=True))
    checked = [_checked(task, assignment, found) for task in course.lab.task]
    kinds = {task.name: task for task in course.lab.task if isinstance(task, Predict)}
    done = {each.task for each in checked if each.state == "answered"}
    keep_predictions(assignment, {name: assignment.filled.answers[name] for name in kinds if name in done})
    return checked


def unpack(folder: Path, begun: Begun, lab: Lab) -> None:
    """Answers and functions of the notebook in a student's folder, if there is one, in place of those beside it."""
    path = folder / f"{begun.lab}.ipynb"
    if path.exists() or path.is_symlink():
        answers, code = read_work(path, lab)
        write_file(folder / "answers.toml", to_toml(Filled(student=begun.student, answers=answers)).encode())
        for file, text in code.items():
            write_file(folder / file, text.encode(errors="replace"))


def calls(
    course: Course, assignment: Assignment, tasks: Sequence[Written], hidden: dict[str, tuple[Case, ...]] | None = None
) -> list[Call]:
    """What is to be called in a folder, with the cases of the lab and those of the key."""
    more = hidden or {}
    return [
        Call(
            assignment.folder,
            task.function,
            (*course.snapshots.get(task.function, ()), *more.get(task.function, ())),
            len(more.get(task.function, ())),
            task.seconds,
            task.megabytes,
        )
        for task in tasks
    ]


def _checked(task: Task, assignment: Assignment, found: dict[str, list[str]]) -> Checked:
    given = assignment.filled.answers.get(task.name)
    match task:
        case Written():
            wrong = found[task.name]
            blank = wrong == ["it is not written yet"]
            state, note = ("missing" if blank else "wrong" if wrong else "passed"), "" if blank else told(wrong)
        case Reach():
            good, note, wrong = reached(task, assignment.folder, assignment.begun.seed)
            state, note = "passed" if good else "missing", "; ".join([note, *wrong])
        case Explain():
            state, note = explained(task, given)
        case _:
            state, note = answered(task, given)
    reveal = ""
    if isinstance(task, Predict) and state == "answered":
        reveal = task.reveal
    return Checked(task.name, task.kind, task.points, state, note, reveal)


def explained(task: Explain, given: Given | None) -> tuple[str, str]:
    words = len(str(given or "").split())
    if not words:
        return "missing", ""
    return ("answered", "graded by hand") if words >= task.words else ("missing", f"{words} of {task.words} words")


def answered(task: Choose | Predict, given: Given | None) -> tuple[str, str]:
    if given is None or is_blank(given):
        return "missing", ""
    try:
        normalised(task, given)
    except ValueError as error:
        return "wrong", str(error)
    return "answered", ""
