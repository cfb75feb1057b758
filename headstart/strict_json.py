"""JSON that every reader takes: a number that is not finite, for which JSON has no word, is written as null."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """
    >>> to_json({"loss": float("nan"), "labels": ["é"]})
    '{"loss": null, "labels": ["é"]}'
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:  # rare, so that what is sound is not gone through twice
        return json.dumps(_without_nan(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value
