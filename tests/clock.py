"""What two runs of the same work may differ in, left out of what they wrote."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def without(keys: Collection[str], told: Any) -> Any:
    """`told` without these keys, at any depth."""
    match told:
        case dict():
            return {key: without(keys, value) for key, value in told.items() if key not in keys}
        case list():
            return [without(keys, value) for value in told]
    return told
