"""Snapshots: arguments of a function and its right output, as JSON; and how another output compares with it. No torch.

    {"causal_mask": [{"what": "three tokens", "args": [3], "expects": {"tensor": [[true, false, ...], ...], "dtype": "bool"}}]}

A tensor is {"tensor": nested lists, "dtype": float32, int64 or bool}; numbers, words, lists, null and other objects (a state
dict) stand for themselves.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from headstart.errors import ConfigError, first_line, shortened
from headstart.regular_file import read_regular
from headstart.schema import Frozen

MOST_BYTES = 16 << 20
DEEPEST = 10  # dimensions


class Case(Frozen):
    what: Annotated[str, Field(max_length=300)]  # what it looks at, for a message
    args: tuple[Any, ...] = ()
    expects: Any
    tolerance: float = Field(1e-5, ge=0)


Snapshots = dict[str, tuple[Case, ...]]
_SNAPSHOTS = TypeAdapter(dict[str, list[Case]])


def read_snapshots(path: Path) -> Snapshots:
    """The cases of each function."""
    try:
        found = _SNAPSHOTS.validate_python(json.loads(read_regular(path, MOST_BYTES)))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}).") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON ({first_line(error)}).") from None
    return {name: tuple(cases) for name, cases in found.items()}


def difference(case: Case, output: Any) -> str:
    """What is wrong with an output, without the right one; "": nothing.

    >>> case = Case(what="x", expects={"tensor": [[1.0, 2.0]], "dtype": "float32"})
    >>> difference(case, {"tensor": [[1.0, 2.0]], "dtype": "float64"}), difference(case, 3)
    ('', 'it returns 3, not a tensor')
    >>> difference(case, {"tensor": [[1.0], [2.0]], "dtype": "float32"})
    'its shape is [2, 1], not [1, 2]'
    >>> difference(case, {"tensor": [[1.0, 5.0]], "dtype": "float32"})
    'its value at [0, 1] is wrong (5.0)'
    >>> difference(Case(what="x", expects={"bias": 1}), {"weight": 1}), difference(Case(what="x", expects={"bias": 1}), {"bias": 2})
    ("it has the keys ['weight'], not ['bias']", "its 'bias' is wrong")
    """
    right = case.expects
    if isinstance(right, dict) and not _is_tensor(right):
        return _table_difference(right, output, case.tolerance)
    if not _is_tensor(right):
        place = _first_difference(right, output, case.tolerance)
        return "" if place is None else f"it returns {_shown(output)}, which is wrong"
    if not _is_tensor(output):
        return f"it returns {_shown(output)}, not a tensor"
    if _shape(output["tensor"]) != _shape(right["tensor"]):
        return f"its shape is {_shape(output['tensor'])}, not {_shape(right['tensor'])}"
    if _kind(output["dtype"]) != _kind(right["dtype"]):
        return f"it is of type {output['dtype']}, not {right['dtype']}"
    place = _first_difference(right["tensor"], output["tensor"], case.tolerance)
    if place is None:
        return ""
    value = output["tensor"]
    for index in place:
        value = value[index]
    return f"its value{f' at {place}' if place else ''} is wrong ({shortened(value)})"


def _table_difference(right: dict[str, Any], output: Any, tolerance: float) -> str:
    if not isinstance(output, dict) or _is_tensor(output):
        return f"it returns {_shown(output)}, not a dict"
    if set(output) != set(right):
        return f"it has the keys {_shown(sorted(output))}, not {_shown(sorted(right))}"
    for name, value in right.items():
        if _is_tensor(value) and _is_tensor(output[name]) and _shape(value["tensor"]) != _shape(output[name]["tensor"]):
            return f"the shape of its '{name}' is {_shape(output[name]['tensor'])}, not {_shape(value['tensor'])}"
        if _first_difference(value, output[name], tolerance) is not None:
            return f"its '{name}' is wrong"
    return ""


def _shown(output: Any) -> str:
    if output is None or isinstance(output, int | float | str):
        return shortened(output)
    whole = str(output)
    return whole if len(whole) <= 100 else f"{whole[:100]}..."


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("dtype"), str) and "tensor" in value


def _kind(dtype: str) -> str:
    return dtype.rstrip("0123456789").removeprefix("b") if dtype != "bool" else dtype


def _shape(value: Any) -> list[int]:
    shape: list[int] = []
    while isinstance(value, list) and len(shape) < DEEPEST:
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _first_difference(right: Any, value: Any, tolerance: float, depth: int = DEEPEST) -> list[int] | None:
    """Where two nested lists, of numbers or of tensors, first differ; None: nowhere."""
    if _is_tensor(right) and _is_tensor(value):
        alike = _shape(right["tensor"]) == _shape(value["tensor"]) and _kind(right["dtype"]) == _kind(value["dtype"])
        return _first_difference(right["tensor"], value["tensor"], tolerance) if alike else []
    lists = isinstance(right, list | tuple) and isinstance(value, list)  # a schema makes tuples of lists
    if lists and len(right) == len(value) and depth:
        for index, (one, other) in enumerate(zip(right, value, strict=True)):
            place = _first_difference(one, other, tolerance, depth - 1)
            if place is not None:
                return [index, *place]
        return None
    return None if _close(right, value, tolerance) else []


def _close(right: Any, value: Any, tolerance: float) -> bool:
    numbers = (int, float)
    if isinstance(right, bool) or isinstance(value, bool) or not isinstance(right, numbers):
        return type(right) is type(value) and right == value
    if not isinstance(value, numbers):
        return False
    return value == right or (
        math.isfinite(value) and math.isfinite(right) and abs(value - right) <= tolerance * max(1.0, abs(right))
    )
