"""What a student has written in a lab's notebook, as answers.toml and the files of the stubs. Nothing is run. No torch.

Of code cells, imports, functions, classes and constants are taken, so that a cell which plots something does no harm.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from headstart.errors import DataError
from headstart.labs.lab import Lab
from headstart.labs.sheet import PROMPT
from headstart.labs.tasks import ADAPTERS, Choose, Explain, Given, Predict, handed_out_as
from headstart.regular_file import read_regular

MOST_BYTES = 8 << 20  # figures are in it


class Found(BaseModel):
    """A cell; what else Jupyter keeps of it is ignored."""

    cell_type: str
    source: str | list[str] = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else "".join(self.source)

    @property
    def tag(self) -> dict[str, object]:
        tag = self.metadata.get("headstart")
        return tag if isinstance(tag, dict) else {}


_CELLS = TypeAdapter(list[Found])


def read_work(path: Path, lab: Lab) -> tuple[dict[str, Given], dict[str, str]]:
    """The answers of a notebook by task, and its code by the files of the lab's stubs."""
    try:
        cells = _CELLS.validate_python(json.loads(read_regular(path, MOST_BYTES))["cells"])
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DataError(f"{path} is no notebook ({why}).", "LAB_ANSWERS") from None
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no notebook ({type(error).__name__}).", "LAB_ANSWERS") from None
    tagged = {str(cell.tag.get("task")): cell for cell in cells}
    answers: dict[str, Given] = {}
    for task in lab.task:
        cell = tagged.get(task.name)
        if cell and isinstance(task, Choose | Predict):
            answers[task.name] = _answer(cell.text)
        elif cell and isinstance(task, Explain):
            answers[task.name] = "" if cell.text.strip() == PROMPT else cell.text
    files = [file for stub in lab.stubs if (file := handed_out_as(stub)) != ADAPTERS]
    return answers, {file: _code(cells, file) for file in files}


def _answer(text: str) -> Given:
    """What a cell assigns, if it is a number or a text; else what stands there.

    >>> _answer("pairs = 21"), _answer("pairs = ..."), _answer("pairs = 6 * 7 / 2")
    (21, '', '6 * 7 / 2')
    """
    try:
        last = ast.parse(_plain(text)).body[-1]
        value = last.value if isinstance(last, ast.Assign) else None
        if value is None:
            return ""
        try:
            found = ast.literal_eval(value)
        except ValueError:
            return ast.unparse(value)
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return text.partition("=")[2].strip()
    return found if isinstance(found, int | float | str) else ""


def _code(cells: list[Found], file: str) -> str:
    """Cells of a file, and the student's own, in their order."""
    own = [cell for cell in cells if cell.cell_type == "code" and _belongs(cell.tag, file)]
    return "\n\n\n".join(part for cell in own if (part := _definitions(_plain(cell.text)))) + "\n"


def _belongs(tag: dict[str, object], file: str) -> bool:
    return not tag or tag.get("file") == file


def _plain(text: str) -> str:
    """Without the lines that only a notebook understands."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("%", "!")))


def _definitions(text: str) -> str:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text  # whoever imports it reports what is wrong
    return "\n\n\n".join(ast.get_source_segment(text, node) or "" for node in body if _is_definition(node))


def _is_definition(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
