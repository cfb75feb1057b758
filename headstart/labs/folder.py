"""The JSON files in the folder of a lab, read as if somebody had damaged them: whole and sound, or one sentence. No torch.

run.py draws the folder and writes all of them but results.json, which results.py makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic takes typing's from Python 3.12 on
)

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from headstart.errors import ModelError, first_line
from headstart.regular_file import read_regular

MOST_BYTES = 256 << 20  # the largest answers of ours are a few megabytes
DEEPEST = 50  # lists and tables inside each other
LARGEST = 1e300  # beyond it, a mean or a deviation would not be finite
RUN_AGAIN = "Remove {folder}, and the lab runs this step again"


class Versions(TypedDict):
    headstart: Any
    torch: Any


class Machine(TypedDict):
    started: str
    machine: str
    versions: Versions


class Facts(TypedDict):
    """lab.json: which lab it is, and how it is run."""

    lab: str
    quick: bool
    data_dir: str
    environment: Machine


class StepRecord(TypedDict):
    """step.json"""

    words: list[str]
    exit: int
    seconds: Annotated[float, Field(ge=0)]


class StepResult(TypedDict):
    name: str
    command: str
    seconds: float
    shows: NotRequired[str]


class FigureResult(TypedDict):
    """A figure of the reference, and ours beside it."""

    row: str
    what: str
    reference: Any  # a number, or a text
    ours: Any  # what was measured: a number, a text, a table
    interval: list[Any] | None
    sd: float | None  # over seeds
    seeds: Any
    comparison: str
    step: str
    substitute: str
    better: NotRequired[str]
    missing: NotRequired[str]  # why there is no `ours`


class Summary(Facts):
    """results.json, as far as a table of several labs needs it."""

    title: str
    question: str
    seconds: float
    verdict: list[str]
    figures: list[FigureResult]
    steps: list[StepResult]
    stands_in: NotRequired[list[str]]  # packs for files of the reference


def read_facts(out: Path) -> Facts:
    return _read(out / "lab.json", Facts, "Choose another --out")


def read_step(out: Path, step: str) -> StepRecord | None:
    """What is known of a step that has been run."""
    folder = out / "steps" / step
    file = folder / "step.json"
    return _read(file, StepRecord, RUN_AGAIN.format(folder=folder)) if _is_there(file) else None


def read_answer(out: Path, step: str) -> Any:
    """What a step answered."""
    folder = out / "steps" / step
    return _read(folder / "result.json", None, RUN_AGAIN.format(folder=folder))


def read_results(folder: Path) -> Summary:
    """results.json of a lab that was run."""
    file = folder / "results.json"
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder.", "LAB_UNFINISHED")
    if not _is_there(file):
        raise ModelError(f"{folder}: no finished lab is here (it has no results.json).", "LAB_UNFINISHED")
    remedy = "Run the lab again: its steps are kept, and this file is made of them"
    found = _read(file, None, remedy)
    if isinstance(found, dict) and not {"lab", "figures"} & set(found):
        raise ModelError(f"{file} is not the result of a lab.", "LAB_UNFINISHED")
    return _read(file, Summary, remedy)


def _is_there(path: Path) -> bool:
    """Whether something has this name, be it a link that leads nowhere."""
    return path.is_symlink() or path.exists()


def _read(path: Path, shape: Any, remedy: str) -> Any:
    """The JSON in a file, of the shape of a TypedDict; keys that this does not name stay in it."""
    try:
        found = json.loads(read_regular(path, MOST_BYTES), parse_constant=_no_number)
        _check_sound(found)
        if shape is not None:
            TypeAdapter(shape).validate_python(found, strict=True)
    except OSError as error:
        why = error.strerror or str(error)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        why = first_line(error)
    else:
        return found
    raise ModelError(f"{path} is damaged ({why}). {remedy}.", "LAB_DAMAGED")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _check_sound(found: Any) -> None:
    """Reject implausibly large numbers and JSON that is nested too deeply."""
    level = [found]
    for _ in range(DEEPEST):
        if any(isinstance(each, (int, float)) and not abs(each) < LARGEST for each in level):
            raise ValueError("a number is too large")
        level = [
            inside
            for each in level
            if isinstance(each, (dict, list))
            for inside in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} levels")
