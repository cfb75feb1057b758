"""Leases: which worker has which piece of work, on a file system that several machines share. No torch.

    leases/<name>/0001/   the first lease on it, made by an exclusive mkdir; 0002 the next, and so on: the last one counts
      owner.json          host and process
      beat                a number that grows while the owner lives
      released            the owner has left it: a JSON object, {"done": true} or what it failed with

No clock is compared with another machine's: a lease is stale when its beat has stayed the same for three beats of whoever looks.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from headstart.errors import ResourceError
from headstart.runs.disk import make_folder, write_file
from headstart.strict_json import to_json

BEAT = 30.0  # seconds; network file systems may show a change half a minute late
MISSED = 3  # beats, after which a lease is taken over


@dataclass
class Seen:
    """The beat of a lease when it was last seen to change."""

    beat: bytes
    at: float


@dataclass
class Leases:
    """The leases of a folder, as one worker sees them."""

    folder: Path
    beat: float = BEAT
    _seen: dict[Path, Seen] = field(default_factory=dict)
    _before: set[Path] = field(default_factory=set)  # left by workers before this one: what failed then is tried again

    def __post_init__(self) -> None:
        make_folder(self.folder)
        self._before = {path.parent for path in self.folder.glob("*/*/released")}

    def outcome(self, name: str) -> Mapping[str, Any] | None:
        """What a worker that left `name` told of it, if it did since this one began."""
        last = self._last(name)
        return _told(last) if last and last not in self._before else None

    def take(self, name: str) -> Lease | None:
        """The lease on `name`, if nobody who lives has it."""
        last = self._last(name)
        if last and _told(last) is None and not self._is_stale(last):
            return None
        place = self.folder / name / f"{int(last.name) + 1 if last else 1:04d}"
        make_folder(place.parent)
        try:
            place.mkdir()  # exclusive: one of several succeeds
        except FileExistsError:
            return None
        write_file(place / "owner.json", to_json({"host": socket.gethostname(), "pid": os.getpid()}).encode())
        return Lease(place, self.beat)

    def _last(self, name: str) -> Path | None:
        found = sorted(path for path in (self.folder / name).glob("[0-9]*") if path.name.isdecimal())
        return found[-1] if found else None

    def _is_stale(self, place: Path) -> bool:
        now, beat = time.monotonic(), b""
        with suppress(FileNotFoundError):
            beat = (place / "beat").read_bytes()
        seen = self._seen.get(place)
        if seen is None or seen.beat != beat:
            self._seen[place] = Seen(beat, now)
            return False
        return now - seen.at > MISSED * self.beat


@dataclass
class Lease:
    """Held from here on; whoever has it tells what became of the work with `leave`, or only that it is free again."""

    place: Path
    seconds: float
    lost: bool = False  # somebody took it for stale, as when this machine was asleep

    @contextmanager
    def held(self, on_loss: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The heart beats while the block runs. Left by an exception, the work is free for others at once."""
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended, on_loss), daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            self.leave({"done": False})
            raise
        finally:
            ended.set()
            thread.join()

    def leave(self, told: Mapping[str, Any]) -> None:
        write_file(self.place / "released", to_json(told).encode())

    def _beat(self, ended: threading.Event, on_loss: Callable[[], None]) -> None:
        for number in count():
            with suppress(ResourceError):  # a file system that is away for a while; for long, and the lease is stale
                write_file(self.place / "beat", str(number).encode())
            self.lost = any(path.name > self.place.name for path in self.place.parent.glob("[0-9]*"))
            if self.lost and not ended.is_set():
                on_loss()
            if self.lost or ended.wait(self.seconds):
                return


def _told(place: Path) -> Mapping[str, Any] | None:
    """What the owner left behind; None: it has not left."""
    try:
        told = json.loads((place / "released").read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return told if isinstance(told, dict) else None
