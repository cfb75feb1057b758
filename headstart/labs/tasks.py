"""[[task]] of a lab: what a student is asked, and how an answer is compared with the right one. No torch.

    predict     a number, or one of several options, given before the result is shown
    choose      one of several options
    explain     free text with a minimum of words; graded by hand
    implement   a function to write in a stub, compared with snapshots
    repair      the same, with a function that has a planted bug
    reach       a score, read from a run directory

The right answer of predict and choose stands in the public file as a salted SHA-256, or in the teacher's key alone. The hash
keeps the answer from being read by accident. It is no secret: whoever tries all answers finds it.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import string
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headstart.errors import shortened
from headstart.labs.rules import check_command
from headstart.schema import Frozen

Line = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=10_000)]
Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{16,64}:[0-9a-f]{64})?$")]  # salt:SHA-256; "": in the key
Given = int | float | str  # an answer, as answers.toml or a key has it
MOST_STEPS = 1000  # hashes that are tried for a number within its tolerance
ADAPTERS = "adapters.py"  # the only module of a student's that is imported
OWN = ("README.md", "answers.toml", "assignment.json", "lab.toml", "predicted.json", "snapshots.json")
_HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")


class Variant(Frozen):
    """One version of a question: each student gets one, by the id."""

    values: dict[Line, int | float | Line] = Field(min_length=1)  # for {name} in the question
    sha256: Digest = ""


class _Task(Frozen):
    name: str = Field(pattern=r"^[a-z0-9-]+$", max_length=100)
    ask: Text
    points: int = Field(ge=1, le=1000)
    minutes: int | None = Field(None, ge=1, le=10_000)
    goal: Line = ""  # what it teaches
    hint: Line = ""


class _Question(_Task):
    sha256: Digest = ""
    variant: tuple[Variant, ...] = Field((), max_length=100)
    reveal: Text = ""  # what `lab check` shows once there is an answer

    @model_validator(mode="after")
    def holes_have_values(self) -> Self:
        holes = set(_HOLE.findall(self.ask))
        for variant in self.variant:
            if missing := holes - set(variant.values):
                raise ValueError(f"the question has {{{min(missing)}}}, which a variant of it does not give")
        if self.variant and self.sha256:
            raise ValueError(
                "a task with variants has the hash of its answer in each [[task.variant]], not beside them"
            )
        return self

    def asked(self, number: int) -> str:
        """The question with the values of a variant."""
        values = self.variant[number].values if self.variant else {}
        return _HOLE.sub(lambda hole: str(values.get(hole[1], hole[0])), self.ask)

    def digest(self, number: int) -> str:
        return self.variant[number].sha256 if self.variant else self.sha256


class Choose(_Question):
    kind: Literal["choose"] = "choose"
    options: tuple[Line, ...] = Field(min_length=2, max_length=26)  # answered by a letter: a, b, c


class Predict(_Question):
    kind: Literal["predict"] = "predict"
    options: tuple[Line, ...] = Field((), max_length=26)  # none: a number
    tolerance: float = Field(0.0, ge=0)
    step: float = Field(1.0, gt=0)  # numbers are rounded to a multiple of it before they are hashed

    @model_validator(mode="after")
    def tolerance_is_a_few_steps(self) -> Self:
        if self.tolerance / self.step > MOST_STEPS:
            raise ValueError(f"the tolerance is more than {MOST_STEPS} times the step; choose a larger step")
        return self


class Explain(_Task):
    kind: Literal["explain"] = "explain"
    words: int = Field(20, ge=1, le=2000)  # at least


class Written(_Task):
    """A task whose answer is a function."""

    function: str = Field(pattern=r"^[A-Za-z_]\w*$", max_length=100)  # of adapters.py
    seconds: int = Field(5, ge=1, le=600)  # CPU seconds for all of its cases
    megabytes: int = Field(1000, ge=10, le=64_000)  # beside what torch takes


class Implement(Written):
    kind: Literal["implement"] = "implement"


class Repair(Written):
    kind: Literal["repair"] = "repair"


class Reach(_Task):
    kind: Literal["reach"] = "reach"
    command: str = Field(pattern=r"^headstart \S", max_length=10_000)  # with {seed}, that of the student
    run: Line  # the run directory, below the student's folder
    score: Line  # a path in its result.json: test.accuracy
    least: float | None = None
    most: float | None = None

    @model_validator(mode="after")
    def has_a_bound(self) -> Self:
        if (self.least is None) == (self.most is None):
            raise ValueError("a task of kind reach has either least or most")
        if "{seed}" not in self.command:
            raise ValueError(
                "the command of a reach task has --seed {seed}, so that each student has a run of their own"
            )
        must_be_below(self.run, "the run")
        try:
            check_command(shlex.split(self.command.replace("{seed}", "0"))[1:])
        except ValueError as error:
            raise ValueError(f"{shortened(self.command)} is not allowed: {error}") from None
        return self


Task = Annotated[Choose | Predict | Explain | Implement | Repair | Reach, Field(discriminator="kind")]


def check_tasks(tasks: Sequence[Task], stubs: Sequence[str], snapshots: str) -> None:
    """A ValueError where the tasks of a lab do not go together with one another or with its files."""
    names = [task.name for task in tasks]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two tasks have the same name ({twice[0]})")
    for file in (*stubs, *filter(None, [snapshots])):
        must_be_below(file, "the file")
    handed = [handed_out_as(stub) for stub in stubs]
    if taken := [name for name in handed if name in OWN or handed.count(name) > 1]:
        raise ValueError(f"the stub {taken[0]} has the name of another file in the student's folder")
    functions = [task.name for task in tasks if isinstance(task, Written)]
    if functions and not (snapshots and ADAPTERS in handed):
        raise ValueError(
            f"the task {functions[0]} is checked by its function, so the lab needs `snapshots` and a stub {ADAPTERS}"
        )


def must_be_below(file: str, what: str) -> None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or file.startswith("~") or not path.parts:
        raise ValueError(f"{what} {shortened(file)} is not below the folder that it belongs to")


def handed_out_as(stub: str) -> str:
    """The name of a stub in the student's folder.

    >>> handed_out_as("attention/adapters.py.stub")
    'adapters.py'
    """
    return PurePosixPath(stub).name.removesuffix(".stub")


# --- Answers


def is_blank(given: Given | None) -> bool:
    return given is None or (isinstance(given, str) and not given.strip())


def normalised(task: Choose | Predict, given: Given) -> str | float:
    """An answer as a letter, or as a number; a ValueError says what is expected.

    >>> normalised(Choose(name="a", ask="?", points=1, options=("x", "y")), " B ")
    'b'
    """
    if task.options:
        letters = string.ascii_lowercase[: len(task.options)]
        letter = str(given).strip().rstrip(").").lower()
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"the answer is a letter from a to {letters[-1]}, not {shortened(given)}")
        return letter
    try:
        number = float(given)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(given, bool) or abs(number) > 1e15:
        raise ValueError(f"the answer is a number, not {shortened(given)}")
    return number


def hashed(task: Choose | Predict, answer: Given, salt: str) -> str:
    """The right answer as it stands in a public lab file.

    >>> hashed(Choose(name="a", ask="?", points=1, options=("x", "y")), "a", "00" * 8)[:25]
    '0000000000000000:5c8858f9'
    """
    return _hash(task, salt, next(_spelled(task, normalised(task, answer), 0.0)))


def is_right(task: Choose | Predict, given: Given, digest: str, answer: Given | None) -> bool:
    """Whether an answer is right: by the key's, else by its hash."""
    found = normalised(task, given)
    tolerance = task.tolerance if isinstance(task, Predict) else 0.0
    if answer is not None:
        right = normalised(task, answer)
        if isinstance(found, float) and isinstance(right, float):
            return abs(found - right) <= tolerance + 1e-9 * max(1.0, abs(right))
        return found == right
    salt = digest.partition(":")[0]
    return any(_hash(task, salt, spelled) == digest for spelled in _spelled(task, found, tolerance))


def _spelled(task: Choose | Predict, found: str | float, tolerance: float) -> Iterator[str]:
    """What an answer is hashed as: a letter, or each multiple of the step within the tolerance, the nearest first."""
    if isinstance(found, str) or isinstance(task, Choose):
        yield str(found)
        return
    middle, around = round(found / task.step), math.floor(tolerance / task.step + 1e-9)
    yield from (str(middle + away) for away in sorted(range(-around, around + 1), key=abs))


def _hash(task: Choose | Predict, salt: str, spelled: str) -> str:
    return f"{salt}:{hashlib.sha256(f'{salt}:{task.name}:{spelled}'.encode()).hexdigest()}"
