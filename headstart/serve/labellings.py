"""The labelling sessions of the folder by their ids, and which rows each tab has before it.

A row that one tab shows is not shown to another for a while. This is kept in memory only: if it is lost, two tabs may label
the same row, and both answers are in the journal.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import ModelError
from headstart.labelling.session import RECORD, Item, Session, sessions_in
from headstart.serve.registry import Registry

HELD = 600.0  # seconds that a row waits for the tab that shows it
OPEN = 4  # sessions that stay loaded


@dataclass
class Opened:
    session: Session
    made: float  # when the folder was made: another may stand there later
    held: dict[int, tuple[str, float]] = field(default_factory=dict)  # row: the tab, and until when
    turn: threading.Lock = field(default_factory=threading.Lock)


class Labellings:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def all(self) -> dict[str, Path]:
        """The folders by id."""
        found = sessions_in(self.registry.folder) if self.registry.folder.is_dir() else []
        root = self.registry.folder.resolve()
        return {self.registry.id_of(path): path for path in found if path.resolve().is_relative_to(root)}

    def open(self, wanted: str) -> Opened:
        with self._lock:
            known = self._opened.get(wanted)
            if known:
                with suppress(OSError):
                    if (known.session.path / RECORD).stat().st_mtime == known.made:
                        self._opened.move_to_end(wanted)
                        return known
            path = self.all().get(wanted)
            if path is None:
                raise ModelError("There is no labelling session of this id.", "LABELLING_MISSING")
            opened = self._opened[wanted] = Opened(Session.open(path), (path / RECORD).stat().st_mtime)
            while len(self._opened) > OPEN:
                self._opened.popitem(last=False)
            return opened

    def next(self, wanted: str, by: str, count: int, holding: Sequence[int]) -> list[Item]:
        """Rows for a tab: not those that it has `holding`, nor those that others have."""
        opened, now = self.open(wanted), time.monotonic()
        with opened.turn:  # one tab after the other, so that no two get the same row
            opened.held = {row: (tab, until) for row, (tab, until) in opened.held.items() if until > now}
            others = [row for row, (tab, _) in opened.held.items() if tab != by]
            found = opened.session.next(count, [*others, *holding])
            opened.held |= {item.row: (by, now + HELD) for item in found}
        return found
