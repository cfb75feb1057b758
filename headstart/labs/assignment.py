"""The folder of a student: made from a lab by `lab start`, read by `lab check` and `lab grade`. No torch.

    attention-alice/
      README.md         the tasks, with points, minutes, goals and hints
      answers.toml      for the student to fill in
      adapters.py ...   stubs of functions to write; the checks import adapters.py alone
      assignment.json   lab, student, seed, SHA-256 of the files that are not to be edited
      lab.toml  snapshots.json   copies of the lab's, for `lab check`
      attention.ipynb   if it is there (`lab notebook`), answers.toml and the functions are taken from it
      predicted.json    the first answers to `predict` tasks that `lab check` saw

The seed and the variants of questions are derived from the student's id, so a copied folder does not fit another id.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from headstart.errors import ConfigError, DataError, ModelError, UserError, did_you_mean, first_line
from headstart.labs.lab import Lab, lab_files, lab_path, open_lab
from headstart.labs.sheet import answers_toml, readme
from headstart.labs.snapshots import Snapshots, read_snapshots
from headstart.labs.tasks import Choose, Given, Predict, handed_out_as
from headstart.regular_file import read_regular
from headstart.runs.disk import write_file, write_folder
from headstart.runs.environment import version
from headstart.schema import Frozen, parse, read_toml
from headstart.strict_json import to_json

STUDENT = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
MOST_BYTES = 1 << 20  # of a file of a student
MOST_STUB = 256 << 10


class Begun(Frozen):
    """assignment.json"""

    format: Literal[1]
    lab: str = Field(max_length=300)
    student: Annotated[str, Field(pattern=STUDENT)]
    seed: int
    files: dict[str, str]  # SHA-256 of those that are not to be edited
    started: str
    headstart: str


class Filled(Frozen):
    """answers.toml"""

    student: str = Field(max_length=100)
    answers: dict[str, int | float | str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """A student's folder, as it was found."""

    folder: Path
    begun: Begun
    filled: Filled
    predicted: dict[str, Given]  # the first answers that `lab check` saw


@dataclass(frozen=True)
class Course:
    """A lab with its files, as the teacher or the package has it."""

    name: str
    lab: Lab
    path: Path
    snapshots: Snapshots

    @property
    def kept(self) -> dict[str, bytes]:
        """The files of a student's folder that are not to be edited."""
        files = {"lab.toml": self.path}
        if self.lab.snapshots:
            files["snapshots.json"] = self.path.parent / self.lab.snapshots
        return {name: read_regular(path) for name, path in files.items()}


def open_course(name: str, handed_out: bool = False) -> Course:
    """A lab that asks something; its snapshots are read. `handed_out`: its copy in a student's folder."""
    stem, lab = open_lab(name)
    path = lab_path(name)
    file = "snapshots.json" if handed_out else lab.snapshots
    if not lab.task:
        asks = [known for known in lab_files() if open_lab(known)[1].task]
        raise ConfigError(
            f"The lab {stem} has no tasks: `headstart lab {name}` runs it. With tasks: {', '.join(asks)}.",
            "LAB_NO_TASKS",
        )
    snapshots = read_snapshots(path.parent / file) if lab.snapshots else {}
    return Course(stem, lab, path, snapshots)


def seed_of(lab: str, student: str) -> int:
    """The seed of a student's runs.

    >>> seed_of("attention", "alice") == seed_of("attention", "alice") != seed_of("attention", "bob")
    True
    """
    return _derived(lab, student, "seed") % 1_000_000


def variant_of(lab: str, student: str, task: Choose | Predict) -> int:
    """Which version of a question a student gets."""
    return _derived(lab, student, task.name) % len(task.variant) if task.variant else 0


def _derived(*words: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:8])


def start(name: str, student: str, out: Path | None) -> Path:
    """A folder for a student; one that is there stays as it is."""
    if not re.fullmatch(STUDENT, student):
        raise ConfigError(
            f"'{student[:80]}' is no id for a student: 1 to 64 letters, digits, dots, hyphens, underscores or @, the first a "
            "letter or digit.",
            "LAB_STUDENT",
        )
    course = open_course(name)
    folder = out or Path(f"{course.name}-{student}")
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} already exists. Choose another --out.", "RUN_EXISTS")
    seed = seed_of(course.name, student)
    variants = {t.name: variant_of(course.name, student, t) for t in course.lab.task if isinstance(t, Choose | Predict)}
    stubs = {handed_out_as(stub): _stub(course.path.parent / stub, course.path.parent) for stub in course.lab.stubs}
    kept = course.kept
    begun = Begun(
        format=1,
        lab=course.name,
        student=student,
        seed=seed,
        files={file: hashlib.sha256(data).hexdigest() for file, data in kept.items()},
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        headstart=version("headstart"),
    )
    texts = {
        "README.md": readme(course.lab, student, seed, variants, list(stubs)),
        "answers.toml": answers_toml(course.lab, student, variants),
        "assignment.json": to_json(begun.model_dump(mode="json"), indent=1) + "\n",
    }
    write_folder(folder, {**kept, **stubs, **{file: text.encode() for file, text in texts.items()}})
    return folder


def _stub(path: Path, home: Path) -> bytes:
    """A file that is handed out; a lab may come from a stranger, so a link must not lead to a file of the user's."""
    if not path.resolve().is_relative_to(home.resolve()):
        raise ConfigError(f"{path}, a stub of this lab, is a link that leads out of its folder.", "LAB_REFUSED")
    try:
        return read_regular(path, MOST_STUB)
    except OSError as error:
        beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, beside)
        raise ConfigError(f"{path}, a stub of this lab, cannot be read ({error.strerror}).{hint}") from None


def read_begun(folder: Path) -> Begun:
    """How a student's folder began; one sentence where it is none."""
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise DataError(f"{folder}: no such folder.{did_you_mean(folder.name, beside)}", "LAB_FOLDER")
    if not (folder / "assignment.json").exists():
        raise DataError(
            f"{folder}: this is not a student's folder (it has no assignment.json). `headstart lab start NAME` makes one.",
            "LAB_FOLDER",
        )
    return _json(folder / "assignment.json", TypeAdapter(Begun))


def read_assignment(folder: Path) -> Assignment:
    """What a student has handed in; one sentence where it cannot be read."""
    begun = read_begun(folder)
    path = folder / "answers.toml"
    if not path.exists():
        raise DataError(f"{folder}: answers.toml is missing.", "LAB_FOLDER")
    try:
        filled = parse(Filled, read_toml(path), str(path))
    except ConfigError as error:
        raise DataError(str(error), "LAB_ANSWERS") from None
    predicted = folder / "predicted.json"
    found = _json(predicted, TypeAdapter(dict[str, int | float | str])) if predicted.exists() else {}
    return Assignment(folder, begun, filled, found)


def keep_predictions(assignment: Assignment, given: dict[str, Given]) -> None:
    """The first answer to each `predict` task; later ones do not replace it."""
    if fresh := {name: answer for name, answer in given.items() if name not in assignment.predicted}:
        text = to_json({**assignment.predicted, **fresh}, indent=1) + "\n"
        write_file(assignment.folder / "predicted.json", text.encode())


def _json(path: Path, shape: TypeAdapter[Any]) -> Any:
    try:
        return shape.validate_python(json.loads(read_regular(path, MOST_BYTES)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = first_line(error)
    raise ModelError(f"{path} is damaged ({why}). `headstart lab start` makes a new folder.", "LAB_DAMAGED")
