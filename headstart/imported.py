"""What a table names as module:name, imported when it is used, so that reading the table loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def imported(place: str) -> Any:
    """The class or function at module:name.

    >>> imported("headstart.quantities:counted")(2, "row")
    '2 rows'
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def subclass_at(place: str, cls: type[T]) -> type[T]:
    """The class at module:name, where it is made of `cls`; elsewhere `cls`, which is more special."""
    found = imported(place)
    return found if issubclass(found, cls) else cls
