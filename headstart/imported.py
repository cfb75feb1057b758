"""What a table names as module:name, imported when it is used, so that reading the table loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def imported(place: str) -> Any:
    """The class or function at module:name.

    >>> imported("headstart.quantities:counted")(2, "row")
    '2 rows'
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
