"""What every part of results.json is, and the part that `headstart data check` makes. No torch."""

from __future__ import annotations

from math import isfinite
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

Number = int | float  # a count, or the mean of counts


class Part(BaseModel):
    """A part of the results. Keys that a later version adds are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        absent = {k for k, v in data.items() if v is None or (isinstance(v, float) and not isfinite(v))}
        return {k: v for k, v in data.items() if k not in absent or k not in cls.model_fields}


class Open(Part):
    """A part of a report that is made elsewhere: what else stands there is kept."""

    model_config = ConfigDict(extra="allow")


class Alike(Open):
    within: dict[str, int] = {}
    leaked: dict[str, int] = {}  # rows of a later part that are like one of an earlier part


class Described(Open):
    rows: int = 0
    words: dict[str, Number] = {}


class Conflict(Open):
    text: str
    labels: dict[str, int] = {}


class Conflicts(Open):
    texts: int = 0
    examples: list[Conflict] = []


class Hygiene(Open):
    """The report of `headstart data check`."""

    splits: dict[str, Described] = {}
    exact: Alike | None = None
    contained: Alike | None = None
    near: Alike | None = None
    conflicts: Conflicts = Conflicts()
    warnings: list[str] = []
