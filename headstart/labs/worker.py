"""The process that calls students' functions. It imports their code in one forked process per task, never in itself.

`python -m headstart.labs.worker` reads jobs as JSON from stdin and writes one line of JSON per job to stdout. It gets
arguments alone: the right outputs stay with whoever started it. A forked process has a limit of CPU seconds, wall-clock
time, memory, and bytes per file that it writes. This is no sandbox: the code can read and write what the user can.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

MOST_BYTES = 8 << 20  # of the outputs of one task
MOST_FILE = 8 << 20  # of a file that the code writes
PATIENCE = 3  # times the CPU seconds, until a process that waits is stopped


def main() -> None:
    import torch

    torch.set_num_threads(1)
    jobs = json.load(sys.stdin)
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    for job in jobs:
        _write(answers, json.dumps(_forked(job, answers)).encode() + b"\n")


def _forked(job: Any, answers: int) -> Any:
    """What the functions of a job return, called in a process of their own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for stream in (ours, answers):
                os.close(stream)
            os.dup2(1, 2)
            _limit(job["seconds"], job["megabytes"])
            _write(theirs, json.dumps(_called(job)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    data = _read(ours, time.monotonic() + PATIENCE * job["seconds"])
    os.close(ours)
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return _answer(job, data, status)


def _answer(job: Any, data: bytes | None, status: int) -> Any:
    if data is None:
        return {"error": f"it took longer than {PATIENCE * job['seconds']} seconds"}
    if not data and os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return {"error": f"it used more than {job['seconds']} CPU seconds"}
    try:
        found = json.loads(data)
    except ValueError:
        return {"error": "its process ended early"}
    return found if isinstance(found, dict) else {"error": "its process ended early"}


def _limit(seconds: int, megabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    with suppress(OSError, ValueError):  # where there is no /proc, memory has no limit
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = taken + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _called(job: Any) -> Any:
    os.chdir(job["folder"])
    sys.path.insert(0, job["folder"])
    sys.dont_write_bytecode = True
    try:
        function = getattr(importlib.import_module("adapters"), job["function"])
    except BaseException as error:
        return {"error": _told(error)}
    return {"outputs": [output_of(function, args) for args in job["args"]]}


def output_of(function: Any, args: Any) -> Any:
    """What a function returns, as JSON has it, or why it does not."""
    import torch

    torch.manual_seed(0)
    try:
        return {"value": _plain(function(*map(_built, args)))}
    except BaseException as error:
        return {"error": _told(error)}


def _built(value: Any) -> Any:
    import torch

    if isinstance(value, dict) and "tensor" in value:
        return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"]))
    if isinstance(value, dict):
        return {name: _built(each) for name, each in value.items()}
    return [_built(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """An output as JSON has it."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return {"tensor": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)[:200]


def _told(error: BaseException) -> str:
    if isinstance(error, NotImplementedError):
        return "it is not written yet"
    line = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _read(stream: int, deadline: float) -> bytes | None:
    """All that is written, up to a size; None: not in time."""
    data = b""
    while len(data) < MOST_BYTES:
        ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(stream, 1 << 16)
        if not piece:
            break
        data += piece
    return data


def _write(stream: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(stream, left) :]


if __name__ == "__main__":
    main()
