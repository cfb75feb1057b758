"""`check` of a lab's notebook: a function against its snapshots, in the student's own kernel; whether a question is answered."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from headstart.labs.assignment import open_course, variant_of
from headstart.labs.check import answered
from headstart.labs.snapshots import difference
from headstart.labs.student_code import told
from headstart.labs.tasks import Choose, Predict, Task, Written, is_right
from headstart.labs.worker import output_of


class Checks:
    """The checks of a lab for one student; a check that fails raises AssertionError, one that passes prints a line."""

    def __init__(self, lab: str, student: str = "student") -> None:
        self.course, self.student = open_course(lab), student
        self.tasks: dict[str, Task] = {task.name: task for task in self.course.lab.task}

    def __call__(self, name: str, given: Any) -> None:
        task = self.tasks[name]
        if isinstance(task, Written):
            assert not (found := self._faults(task, given)), f"{name}: {told(found)}"
            _show(f"{name}: passed")
            return
        assert isinstance(task, Choose | Predict), f"{name} is not checked in the notebook"
        state, note = answered(task, None if given is ... else given)
        assert state == "answered", f"{name}: {note or state}"
        reveal = f" {task.reveal}" if isinstance(task, Predict) and task.reveal else ""
        _show(f"{name}: answered.{reveal}")

    def right(self, name: str, given: Any) -> None:
        """Whether an answer is that of the hash in the lab file."""
        task = self.tasks[name]
        assert isinstance(task, Choose | Predict), f"{name} is not a question"
        assert given is not ..., f"{name}: missing"
        digest = task.digest(variant_of(self.course.name, self.student, task))
        assert digest, f"{name}: the right answer is in the teacher's key alone"
        assert is_right(task, given, digest, None), f"{name}: wrong"
        _show(f"{name}: right")

    def _faults(self, task: Written, function: Callable[..., Any]) -> list[str]:
        found = []
        for case in self.course.snapshots[task.function]:
            output = output_of(function, case.args)
            why = output["error"] if "error" in output else difference(case, output["value"])
            if why:
                found.append(why if why == "it is not written yet" else f"{case.what}: {why}")
        return list(dict.fromkeys(found))


def _show(line: str) -> None:
    builtins.print(line)  # noqa: T201 - the output of a cell
