"""Whether a lab finds what it names: files of its commands, places in a run of it, functions and snapshots of its tasks. No torch.

The schema (lab.py) says whether a lab file is well formed. This says whether it works, as far as that is known without running it.
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from headstart.errors import ConfigError, UserError, did_you_mean
from headstart.hub.pack_contents import PACKS
from headstart.labs.assignment import Course, open_course
from headstart.labs.folder import read_answer, read_facts, read_step
from headstart.labs.grade import read_key
from headstart.labs.lab import Lab, lab_path, open_lab
from headstart.labs.results import NotFound, pick
from headstart.labs.rules import check_command
from headstart.labs.tasks import ADAPTERS, Choose, Predict, Written, handed_out_as, hashed
from headstart.regular_file import read_regular

FILES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".gz")  # what is a file, whatever packs are called


def validate(name: str, run: Path | None) -> tuple[Lab, list[str]]:
    """A lab, and notes on what could not be checked; a ConfigError lists all that it names and does not find."""
    stem, lab = open_lab(name)
    path = lab_path(name)
    problems = [*_commands(lab, path.parent)]
    notes: list[str] = []
    if lab.task:
        problems += _tasks(open_course(name), path.parent)
    if run is None:
        run = next((each for each in _usual(stem) if each.is_dir()), None)
    if run is not None:
        problems += _places(lab, run)
    elif lab.places():
        notes.append(
            "The places of its figures, tables and answers were not looked up: the lab was not run here. "
            f"Run `headstart lab {name} --quick`, or give --run DIR."
        )
    if problems:
        raise ConfigError(f"{path}: {' '.join(dict.fromkeys(problems))}")
    return lab, notes


def hashes(name: str, key_file: Path) -> list[tuple[str, str]]:
    """The answers of a key as a public lab file has them: the task, with its variant, and the salted hash."""
    key, course, _ = read_key(key_file)
    if course.path.resolve() != lab_path(name).resolve():
        raise ConfigError(f"{key_file} is the key of {course.path}, not of {lab_path(name)}.")
    found = []
    for task in course.lab.task:
        if not isinstance(task, Choose | Predict) or task.name not in key.answers:
            continue
        given = key.answers[task.name]
        for number, answer in enumerate(given if isinstance(given, list) else [given]):
            where = f"{task.name}, variant {number + 1}" if task.variant else task.name
            found.append((where, hashed(task, answer, secrets.token_hex(8))))
    return found


def _usual(stem: str) -> list[Path]:
    return [Path("runs/labs") / stem, Path("runs/labs") / f"{stem}-quick"]


def _places(lab: Lab, run: Path) -> Iterator[str]:
    """Every place of the lab, looked up in what its steps answered."""
    if not (run / "lab.json").exists():
        raise UserError(f"{run}: no lab was run here (it has no lab.json).", "LAB_UNFINISHED")
    facts = read_facts(run)
    left_out = {step.name for step in lab.step} - {
        step.name for step in lab.steps(facts["quick"], bool(facts["data_dir"]))
    }
    for place in dict.fromkeys(lab.places()):
        step, _, path = place.partition(": ")
        record = read_step(run, step) if step not in left_out else None
        if record is None or record["exit"]:
            continue
        try:
            pick(read_answer(run, step), path)
        except NotFound as error:
            yield f"'{place}' finds nothing: {error}.{error.hint}"


def _commands(lab: Lab, home: Path) -> Iterator[str]:
    """Files that steps read: below the lab's file, named by [[data]], or written by a step before."""
    for quick, given in ((False, True), (False, False), (True, False)):
        written: list[str] = []
        for step in lab.steps(quick, given):
            values = check_command(step.words(quick, given))
            for kind, _, value in values:
                if kind == "read" and (why := _missing(value, lab, home, written)):
                    yield f"step '{step.name}': {why}"
            written += [value for kind, _, value in values if kind == "write"]


def _missing(value: str, lab: Lab, home: Path, written: list[str]) -> str:
    if value.startswith("{out}/"):
        made = any(_below(value, each) or _below(each, value) for each in written)
        return "" if made else f"'{value}' is written by no step before it.{did_you_mean(value, written)}"
    if value.startswith("{data}/"):
        file, named = value.removeprefix("{data}/"), [file for needed in lab.data for file in needed.files]
        found = any(_below(file, each) or _below(each, file) for each in named)
        return "" if found else f"'{file}' is not among the files of [[data]].{did_you_mean(file, named)}"
    is_file = "/" in value or PurePosixPath(value).suffix in FILES
    if not is_file or value in PACKS or (home / value).exists():
        return ""
    beside = [str(path.relative_to(home)) for path in home.glob("*")] if home.is_dir() else []
    return f"'{value}' is not beside the lab's file.{did_you_mean(value, [*beside, *PACKS])}"


def _below(file: str, folder: str) -> bool:
    return PurePosixPath(file).is_relative_to(PurePosixPath(folder))


def _tasks(course: Course, home: Path) -> Iterator[str]:
    """Stubs that are Python, functions that adapters.py has, and cases for each."""
    names: set[str] = set()
    for stub in course.lab.stubs:
        try:
            tree = ast.parse(read_regular(home / stub, 1 << 20))
        except OSError as error:
            beside = [str(path.relative_to(home)) for path in (home / stub).parent.glob("*")]
            yield f"the stub {stub} cannot be read ({error.strerror}).{did_you_mean(stub, beside)}"
            continue
        except (SyntaxError, ValueError) as error:
            yield f"the stub {stub} is not Python ({error})."
            continue
        if handed_out_as(stub) == ADAPTERS:
            names = set(_defined(tree))
    written = {task.function: task.name for task in course.lab.task if isinstance(task, Written)}
    for function, task in written.items():
        if function not in names:
            yield f"task '{task}': {ADAPTERS} has no {function}.{did_you_mean(function, names)}"
        if not course.snapshots.get(function):
            hint = did_you_mean(function, course.snapshots)
            yield f"task '{task}': {course.lab.snapshots} has no case for {function}.{hint}"


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
