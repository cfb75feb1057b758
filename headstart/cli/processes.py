"""`--processes N`: start as many processes on this machine, pass signals on to them, and end all when one fails.

The first one trains and writes; the others follow it. Each runs member.py and finds what to do in a file. What it fails with comes
back in another file, so that one sentence is printed, whoever failed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.errors import StepFailed, UserError
from headstart.runs.parent import PARENT
from headstart.runs.place import ALONE, LISTENING, Place, here
from headstart.strict_json import to_json

POLLED = 0.05  # seconds
PATIENCE = 20.0  # seconds that the others have to end by themselves after one has failed
LOST = "PROCESS_LOST"  # the code of those that another one left alone: not the cause
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def train_here(config: Any, out: str, resume: bool, quiet: bool, processes: int | None) -> Any:
    """The result of a job: in this process, in as many as asked for, or as the first of those that torchrun started."""
    from headstart.runs.place import must_have_parts

    place = here()
    if place.count > 1 and processes not in (None, place.count):
        raise UserError(f"torchrun has started {place.count} processes, not {processes}. Leave out --processes.")
    must_have_parts(processes or place.count, config)
    if (processes or 1) > 1 and place is ALONE:
        return launch(config, out, resume, quiet, processes or 1)
    from headstart.cli.terminal import Bar
    from headstart.jobs.job import run_job

    return run_job(config, out, resume, Bar(quiet), place=place)


def launch(config: Any, out: str, resume: bool, quiet: bool, count: int) -> Any:
    """Run a job in `count` processes of this machine; its result."""
    from headstart.runs.run import Run

    with tempfile.TemporaryDirectory(prefix="headstart-") as folder, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))  # torch's own socket would listen on every interface
        listening.listen(count)
        settings = {"config": config.model_dump(mode="json"), "out": str(out), "resume": resume, "quiet": quiet}
        Path(folder, "job.json").write_text(to_json(settings), "utf-8")
        started = [_start(Place(rank, count, rank, count), Path(folder), listening) for rank in range(count)]
        listening.close()
        try:
            with _passed_on(started):
                first = _first_failure(started)
        finally:
            for process in started:
                process.kill() if process.poll() is None else None
                process.wait()
        if first is not None:
            raise _told(Path(folder), first, started[first].returncode, count)
    return Run(Path(out)).read_json("result.json")


def _start(place: Place, folder: Path, listening: socket.socket) -> subprocess.Popen[bytes]:
    own = {
        **place.environment(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listening.getsockname()[1]),
        LISTENING: str(listening.fileno()), PARENT: str(os.getpid()),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "headstart.cli.member", str(folder)],
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the result is in the run directory
        stderr=None if place.leads else subprocess.DEVNULL,
        pass_fds=[listening.fileno()] if place.leads else (),
        start_new_session=True,  # Ctrl-C at the terminal comes here, once, and is passed on
    )


def _first_failure(started: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait for all; the rank of the one that failed first, where one did: the others then have some time to end."""
    first, deadline = None, float("inf")
    while any(process.poll() is None for process in started) and time.monotonic() < deadline:
        time.sleep(POLLED)
        if first is None and (failed := [rank for rank, p in enumerate(started) if p.poll()]):
            killed = [rank for rank in failed if (started[rank].returncode or 0) < 0]  # the others lost it
            first, deadline = (killed or failed)[0], time.monotonic() + PATIENCE
    return first if first is not None else next((rank for rank, p in enumerate(started) if p.returncode), None)


def _told(folder: Path, rank: int, code: int, count: int) -> UserError:
    """What a process failed with, or that it was killed."""
    reports = [_report(folder, other) for other in (rank, *range(count))]
    cause = next((report for report in reports if report and report["code"] != LOST), reports[0])
    if code < 0 or cause is None:
        how = f"was killed (signal {-code})" if code < 0 else f"ended with exit code {code}"
        return StepFailed(
            f"Process {rank + 1} of {count} {how}, so the others ended too. What was learned up to the last checkpoint is saved: go "
            "on with --resume, on any number of processes.",
            LOST,
            128 - code if code < 0 else code,
        )
    return StepFailed(cause["message"], cause["code"], cause["exit"])


def _report(folder: Path, rank: int) -> Mapping[str, Any] | None:
    path = folder / f"failure-{rank}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


@contextmanager
def _passed_on(started: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Signals go to all processes: those at work save their state; a second Ctrl-C ends them at once."""

    def pass_on(number: int, frame: object) -> None:
        for process in started:
            if process.poll() is None:
                process.send_signal(number)

    before = {n: signal.signal(n, pass_on) for n in STOPS if signal.getsignal(n) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(out: str) -> None:
    """Train beside the first process, as one that torchrun started; what all of them fail with, the first one tells."""
    from headstart.errors import Stopped
    from headstart.jobs.job import follow_job

    try:
        follow_job(out, here())
    except Stopped as stop:
        sys.exit(stop.exit_code)
    except UserError as error:
        if error.code != LOST:
            raise
        sys.exit(error.exit_code)
