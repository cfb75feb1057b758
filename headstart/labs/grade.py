"""Points for students' folders: answers against the key, functions against snapshots, runs against their receipts. No torch.

    key.toml
      lab = "attention"            a name, or a .toml beside the key
      cases = "hidden.json"        more cases, in the form of snapshots
      solution = "solution.py"     the functions, for the notebook with solutions (notebook.py)
      [answers]                    of predict and choose; of a task with variants a list. They win over the hashes in the lab.
                                   Of explain, a model answer for the notebook
      [marks.alice]                points for explain tasks, given by hand

The lab and the snapshots are the teacher's, never those in a student's folder. Findings are for the teacher to judge; the
only points that they cost are those of a run whose receipt does not hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from headstart.errors import ConfigError, did_you_mean
from headstart.labs.assignment import Assignment, Course, open_course, read_assignment, read_begun, seed_of, variant_of
from headstart.labs.check import answered, calls, explained, unpack
from headstart.labs.receipts import reached
from headstart.labs.snapshots import Snapshots, read_snapshots
from headstart.labs.student_code import faults, told
from headstart.labs.tasks import OWN, Choose, Explain, Given, Predict, Reach, Task, Written, is_right, normalised
from headstart.regular_file import read_regular
from headstart.schema import Frozen, parse, read_toml

Right = int | float | str


class Key(Frozen):
    lab: str = Field(max_length=300)
    cases: str = Field("", max_length=300)
    solution: str = Field("", max_length=300)
    answers: dict[str, Right | list[Right]] = Field(default_factory=dict)
    marks: dict[str, dict[str, int | float]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Graded:
    task: str
    kind: str
    points: float | None  # None: to be graded by hand
    most: int
    note: str


@dataclass(frozen=True)
class Grade:
    """What a student's folder is worth."""

    student: str
    folder: Path
    tasks: list[Graded]
    findings: list[str]

    @property
    def points(self) -> float:
        return sum(task.points or 0 for task in self.tasks)

    @property
    def most(self) -> int:
        return sum(task.most for task in self.tasks)

    @property
    def by_hand(self) -> int:
        """Points that are still to be given by hand."""
        return sum(task.most for task in self.tasks if task.points is None)


def read_key(path: Path) -> tuple[Key, Course, Snapshots]:
    """A key, the lab that it is for, and its hidden cases; an answer for no task of the lab is an error."""
    key = parse(Key, read_toml(path), str(path))
    own = path.parent / key.lab
    course = open_course(str(own) if own.suffix == ".toml" else key.lab)
    tasks = {task.name: task for task in course.lab.task}
    for name in [*key.answers, *(name for marks in key.marks.values() for name in marks)]:
        if name not in tasks:
            raise ConfigError(f"{path}: the lab {course.name} has no task '{name}'.{did_you_mean(name, tasks)}")
    for task in course.lab.task:
        if isinstance(task, Choose | Predict):
            _must_be_answered(path, task, key)
    for student, marks in key.marks.items():
        for name, points in marks.items():
            if not isinstance(tasks[name], Explain) or not 0 <= points <= tasks[name].points:
                raise ConfigError(
                    f"{path}: marks.{student}.{name} is {points}; marks are for explain tasks, from 0 to their points."
                )
    return key, course, read_snapshots(path.parent / key.cases) if key.cases else {}


def _must_be_answered(path: Path, task: Choose | Predict, key: Key) -> None:
    """The right answer is in the key, once per variant, or hashed in the lab."""
    numbers = range(len(task.variant) or 1)
    rights = [right_answer(task, key, number) for number in numbers]
    given = key.answers.get(task.name)
    if isinstance(given, list) and len(given) != len(task.variant):
        raise ConfigError(f"{path}: answers.{task.name} has {len(given)} answers for {len(task.variant)} variants.")
    for number, right in zip(numbers, rights, strict=True):
        if right is None and not task.digest(number):
            raise ConfigError(f"{path}: the answer to '{task.name}' is neither in the key nor hashed in the lab.")
        try:
            _ = right is None or normalised(task, right)
        except ValueError as error:
            raise ConfigError(f"{path}: answers.{task.name}: {error}.") from None


def right_answer(task: Choose | Predict, key: Key, number: int) -> Right | None:
    """The key's answer to a variant of a question; None: it has none."""
    given = key.answers.get(task.name)
    return (given[number] if number < len(given) else None) if isinstance(given, list) else given


def grade(folders: Sequence[Path], key_file: Path) -> list[Grade]:
    """The points of each folder, task by task, and what is odd about it."""
    key, course, hidden = read_key(key_file)
    for folder in folders:
        begun = read_begun(folder)
        if begun.lab != course.name:
            raise ConfigError(f"{folder} is a folder of the lab {begun.lab}; the key is for {course.name}.")
        unpack(folder, begun, course.lab)
    handed_in = [read_assignment(folder) for folder in folders]
    written = [task for task in course.lab.task if isinstance(task, Written)]
    found = faults([call for each in handed_in for call in calls(course, each, written, hidden)])
    grades = []
    for number, each in enumerate(handed_in):
        own = found[number * len(written) : (number + 1) * len(written)]
        wrong = dict(zip([task.name for task in written], own, strict=True))
        findings = [*_edited(course, each), *_copied(each, handed_in)]
        tasks = [_graded(task, course, each, key, wrong, findings) for task in course.lab.task]
        grades.append(Grade(each.begun.student, each.folder, tasks, list(dict.fromkeys(findings))))
    return grades


def _graded(
    task: Task, course: Course, handed_in: Assignment, key: Key, wrong: dict[str, list[str]], findings: list[str]
) -> Graded:
    student, given = handed_in.begun.student, handed_in.filled.answers.get(task.name)
    points: float | None
    match task:
        case Written():
            points, note = 0 if wrong[task.name] else task.points, told(wrong[task.name])
        case Reach():
            good, note, odd = reached(task, handed_in.folder, seed_of(course.name, student), again=True)
            findings += odd
            points = task.points if good else 0
        case Explain():
            state, note = explained(task, given)
            mark = key.marks.get(student, {}).get(task.name)
            points = mark if mark is not None else None if state == "answered" else 0
            note = "graded by hand" if mark is not None else note or state
        case _:
            points, note = _answer(task, course, handed_in, key, findings)
    return Graded(task.name, task.kind, points, task.points, note)


def _answer(
    task: Choose | Predict, course: Course, handed_in: Assignment, key: Key, findings: list[str]
) -> tuple[int, str]:
    given: Given | None = handed_in.filled.answers.get(task.name)
    first = handed_in.predicted.get(task.name)
    if isinstance(task, Predict) and first is not None and first != given:
        findings.append(f"the prediction '{task.name}' was changed after its result was shown; the first one counts")
        given = first
    state, note = answered(task, given)
    if given is None or state != "answered":
        return 0, note or state
    number = variant_of(course.name, handed_in.begun.student, task)
    right = is_right(task, given, task.digest(number), right_answer(task, key, number))
    return (task.points, "") if right else (0, "wrong")


# --- Findings


def _edited(course: Course, handed_in: Assignment) -> Iterator[str]:
    """Files that were handed out and are others now."""
    begun = handed_in.begun
    for name, data in course.kept.items():
        digest = hashlib.sha256(data).hexdigest()
        try:
            there = hashlib.sha256(read_regular(handed_in.folder / name)).hexdigest()
        except OSError:
            there = ""
        if there != digest or begun.files.get(name) != digest:
            yield f"{name} was edited, or is of another version of the lab; the teacher's was used"
    if begun.seed != seed_of(course.name, begun.student):
        yield f"the seed {begun.seed} in assignment.json is not that of {begun.student}: it was edited, or copied"
    if handed_in.filled.student != begun.student:
        yield f"answers.toml is that of '{handed_in.filled.student}', not of {begun.student}"


def _copied(handed_in: Assignment, everyone: Sequence[Assignment]) -> Iterator[str]:
    """What is the same in another folder; code without comments of one's own may be so by chance."""
    for other in everyone:
        if other is handed_in:
            continue
        name = other.begun.student
        if name == handed_in.begun.student:
            yield f"{other.folder} has the same student's id"
        if handed_in.begun.seed == seed_of(handed_in.begun.lab, name) and name != handed_in.begun.student:
            yield f"the seed is that of {name}"
        for path in sorted(handed_in.folder.glob("*.py")):
            if path.name not in OWN and _same_file(path, other.folder / path.name) and not _is_stub(path):
                yield f"{path.name} is, byte for byte, that of {name}"
        longest = [answer for answer in handed_in.filled.answers.values() if len(str(answer).split()) >= 10]
        if any(answer in other.filled.answers.values() for answer in longest):
            yield f"an explanation is, word for word, that of {name}"


def _same_file(one: Path, other: Path) -> bool:
    try:
        return read_regular(one, 1 << 20) == read_regular(other, 1 << 20)
    except OSError:
        return False


def _is_stub(path: Path) -> bool:
    """Adapters are the same for everyone who left them alone."""
    return path.name == "adapters.py" or b"NotImplementedError" in read_regular(path, 1 << 20)
