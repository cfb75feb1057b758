"""The verbs about labs that ask: a folder for a student, its checks, grades; a new lab, and whether it is sound."""

from __future__ import annotations

from pathlib import Path

from headstart.cli.app import verb
from headstart.cli.flags import Given
from headstart.cli.lab import lab
from headstart.cli.terminal import show, show_json, show_notes, show_table
from headstart.quantities import counted


@verb(lab, "lab start")
def start(given: Given) -> None:
    """Make a student's folder: tasks, answers to fill in, stubs."""
    from headstart.labs.assignment import read_assignment
    from headstart.labs.assignment import start as begin

    folder = begin(given["name"], given["--student"], given["--out"])
    begun = read_assignment(folder).begun
    if given["--json"]:
        show_json({"folder": str(folder), **begun.model_dump(mode="json", include={"lab", "student", "seed"})})
        return
    show(f"{folder}: read README.md, then fill in answers.toml and the stubs.")
    show(f"headstart lab check {folder} reports what is missing.")


@verb(lab, "lab check")
def check(given: Given) -> None:
    """Report which tasks are answered and which functions pass."""
    from dataclasses import asdict

    from headstart.labs.check import check as checked

    found = checked(given["DIR"])
    if given["--json"]:
        show_json([asdict(each) for each in found])
        return
    rows = [[each.task, each.kind, str(each.points), each.state, each.note] for each in found]
    show_table(["task", "kind", "points", "state", ""], rows, right=(2,))
    show()
    for each in found:
        if each.reveal:
            show(f"{each.task}: {each.reveal}")
    left = sum(each.state in ("missing", "wrong") for each in found)
    show(f"{left} of {len(found)} tasks are left." if left else "Nothing is left to do. Hand in the whole folder.")
    if any(each.state == "answered" for each in found):
        show("Whether an answer is right is decided when it is graded.")


@verb(lab, "lab grade")
def grade(given: Given) -> None:
    """Grade students' folders with a key; report copies and edits."""
    from dataclasses import asdict

    from headstart.labs.grade import grade as graded
    from headstart.labs.gradebook import write_csv, write_gradescope

    grades, out = graded(given["DIR..."], given["--key"]), given["--out"]
    write_csv(grades, out / "grades.csv")
    if given["--gradescope"]:
        write_gradescope(grades, out)
    if given["--json"]:
        show_json(
            [{**asdict(each), "folder": str(each.folder), "points": each.points, "of": each.most} for each in grades]
        )
        return
    header = ["student", *(task.task for task in grades[0].tasks), "points", "of", "by hand"]
    rows = [
        [
            each.student,
            *("?" if task.points is None else f"{task.points:g}" for task in each.tasks),
            *(f"{each.points:g}", str(each.most), str(each.by_hand)),
        ]
        for each in grades
    ]
    show_table(header, rows, right=range(1, len(header)))
    for each in grades:
        for finding in each.findings:
            show(f"! {each.student}: {finding}")
    show(f"\n{out / 'grades.csv'}")


@verb(lab, "lab new")
def new(given: Given) -> None:
    """Write the template of a lab, with comments."""
    from headstart.labs.new import new_lab

    name, out = given["name"], given["--out"] or Path()
    made = new_lab(name, out)
    if given["--json"]:
        show_json({"files": [str(path) for path in made]})
        return
    for path in made:
        show(str(path))
    show(f"headstart lab validate {made[0]} checks it.")


@verb(lab, "lab validate")
def validate(given: Given) -> None:
    """Check that a lab finds everything that it names."""
    from headstart.labs.validate import hashes
    from headstart.labs.validate import validate as validated

    name, key = given["name"], given["--key"]
    found, notes = validated(name, given["--run"])
    answers = hashes(name, key) if key else []
    if given["--json"]:
        show_json({"steps": len(found.step), "tasks": len(found.task), "notes": notes, "hashes": dict(answers)})
        return
    points = sum(task.points for task in found.task)
    parts = {"step": len(found.step), "figure": len(found.figure), "task": len(found.task), "point": points}
    show(f"{name}: {', '.join(counted(count, thing) for thing, count in parts.items())}. Nothing is missing.")
    show_notes(notes)
    for task, digest in answers:
        show(f'{task}: sha256 = "{digest}"')


@verb(lab, "lab notebook")
def notebook(given: Given) -> None:
    """Write the tasks of a lab as notebooks."""
    from headstart.labs.notebook import write_notebooks

    made = write_notebooks(given["name"], given["--student"], given["--key"], given["--out"] or Path())
    if given["--json"]:
        show_json({"files": [str(path) for path in made]})
        return
    for path in made:
        show(str(path))
