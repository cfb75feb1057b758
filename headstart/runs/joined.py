"""A run directory as the other processes of its job see it: the first one writes, these read. No torch."""

from __future__ import annotations

from typing import Any

from headstart.runs.run import Run


class JoinedRun(Run):
    """Begun by the first process, whose checkpoint this one goes on from; nothing is written."""

    writes = False
    begun = True

    def log(self, record: dict[str, Any]) -> None: ...

    def cut_log(self, length: int) -> None: ...
