"""Grades as files: grades.csv for a spreadsheet, results.json for Gradescope. No torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from headstart.labs.grade import Grade
from headstart.runs.disk import write_file
from headstart.strict_json import to_json

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def write_csv(grades: Sequence[Grade], path: Path) -> None:
    """One row per student: points per task, the sum, points that are still to be given by hand, findings."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    tasks = [task.task for task in grades[0].tasks]
    writer.writerow(["student", "folder", *tasks, "points", "of", "by_hand", "findings"])
    for grade in grades:
        points = ["" if task.points is None else f"{task.points:g}" for task in grade.tasks]
        findings = "; ".join(grade.findings)
        sums = [f"{grade.points:g}", grade.most, grade.by_hand]
        writer.writerow([_cell(grade.student), _cell(str(grade.folder)), *points, *sums, _cell(findings)])
    write_file(path, file.getvalue().encode(errors="backslashreplace"))


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def write_gradescope(grades: Sequence[Grade], out: Path) -> None:
    """STUDENT/results.json for each; two folders of one id do not share one."""
    seen: list[str] = []
    for grade in grades:
        again = seen.count(grade.student)
        seen.append(grade.student)
        _write_results(grade, out / (f"{grade.student}-{again + 1}" if again else grade.student) / "results.json")


def _write_results(grade: Grade, path: Path) -> None:
    """results.json as Gradescope's autograder reads it: what was found is for the teacher's eyes."""
    tests = [
        {
            "name": f"{task.task} ({task.kind})",
            "max_score": task.most,
            **({} if task.points is None else {"score": task.points}),
            "output": task.note,
            "visibility": "visible",
        }
        for task in grade.tasks
    ]
    told = [{"name": "findings", "output": "\n".join(grade.findings), "visibility": "hidden"}] if grade.findings else []
    by_hand = f"{grade.by_hand} points are graded by hand." if grade.by_hand else ""
    found = {"score": grade.points, "output": by_hand, "visibility": "visible", "tests": [*tests, *told]}
    write_file(path, (to_json(found, indent=1) + "\n").encode(errors="backslashreplace"))
