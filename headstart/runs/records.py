"""The JSON files of runs and studies, read with their shape checked: what is damaged is told, never guessed at. No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headstart.errors import ModelError
from headstart.regular_file import open_regular
from headstart.runs.record_shapes import Shape


def read_json(path: Path, shape: type[Shape], code: str = "RUN_DAMAGED") -> Any:
    """What stands in a JSON file, as plain data, once it is known to have `shape`."""
    try:
        with open_regular(path) as file:
            return _checked(file.read(), shape)
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: {path.name} is missing.", code) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({_reason(error)}).", code) from None


def read_lines(path: Path, shapes: dict[str, type[Shape]]) -> Iterator[dict[str, Any]]:
    """The records of a .jsonl file that have the shapes of their kind; a last line cut short by a kill is left out."""
    number = 0
    try:
        with open_regular(path) as file:  # as bytes: a kill can cut a character in two
            for line in file:
                number += 1
                if line.endswith(b"\n"):
                    record = _checked(line, shapes[""])
                    kind = str(record.get("split", ""))
                    yield _fits(record, shapes[kind]) if kind in shapes else record
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: {path.name} is missing.", "RUN_DAMAGED") from None
    except (OSError, ValueError, RecursionError) as error:
        where = f"{path}, line {number}: damaged" if number else f"{path} is damaged"
        raise ModelError(f"{where} ({_reason(error)}).", "RUN_DAMAGED") from None


def _checked(data: bytes, shape: type[Shape]) -> Any:
    value = _fits(json.loads(data), shape)
    if shape is not Shape and b"\\u" in data:
        json.dumps(value, ensure_ascii=False).encode()  # half a character can be read, but not written again
    return value


def _fits(value: Any, shape: type[Shape]) -> Any:
    shape.model_validate(value)
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    if isinstance(error, OSError):
        return error.strerror or os.strerror(error.errno or 0)
    return str(error)
