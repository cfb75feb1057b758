"""The log of a job as server-sent events. The id of an event is where it ends in the log, so that a reader can go on from it.

event: record   a line of log.jsonl, as it stands; id: BYTES of a run, FOLDER/CELL:BYTES of a study
event: job      the state of the job, when it changed
event: end      the job runs no more; nothing follows
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

from headstart.regular_file import open_regular
from headstart.serve.jobs import Jobs
from headstart.strict_json import to_json
from headstart.study.progress import running_cell

EVERY = 0.5  # seconds between two looks at the log
AT_ONCE = 256 << 10  # bytes of the log in one go
_PLACE = re.compile(r"(?:((?:cells|bases)/[\w.~-]{1,200}):)?(\d{1,15})")


def event(kind: str, data: str, mark: str = "") -> str:
    """One event; JSON has no line break in it that could begin another."""
    return f"{f'id: {mark}' + chr(10) if mark else ''}event: {kind}\ndata: {data}\n\n"


async def follow(jobs: Jobs, wanted: str, last: str | None) -> AsyncIterator[str]:
    """The events of a job from `last` on; of a new reader, from the start of the log that is being written."""
    out = jobs.place(wanted)
    found = _PLACE.fullmatch(last or "")
    cell, offset = (found[1] or "", int(found[2])) if found else (None, 0)
    told = ""
    while True:
        job = await asyncio.to_thread(jobs.get, wanted)
        over = job["state"] not in ("starting", "running")
        is_study = (out / "study.toml").exists()
        now = await asyncio.to_thread(running_cell, out) if is_study else ""
        for name in dict.fromkeys([cell if is_study else "", now if is_study else ""]):
            if name is None:
                continue
            if name != cell:
                cell, offset = name, 0
            async for text, end in _records(out / name / "log.jsonl", offset):
                offset = end
                yield event("record", text, f"{name}:{offset}" if name else str(offset))
        state = to_json(job)
        if state != told:
            told = state
            yield event("job", state)
        if over:
            yield event("end", to_json({"state": job["state"]}))
            return
        await asyncio.sleep(EVERY)


async def _records(log: Path, offset: int) -> AsyncIterator[tuple[str, int]]:
    """The whole lines after `offset`, each with where it ends; a log that was cut is read from where it ends now."""
    while True:
        lines = await asyncio.to_thread(_lines, log, offset)
        for line in lines:
            offset += len(line)
            yield line.decode("utf-8", "replace").strip(), offset
        if not lines:
            return


def _lines(log: Path, offset: int) -> list[bytes]:
    try:
        with open_regular(log) as file:
            file.seek(offset)
            found = file.read(AT_ONCE)
    except OSError:
        return []
    whole = found[: found.rfind(b"\n") + 1]
    return whole.splitlines(keepends=True) if whole else []
