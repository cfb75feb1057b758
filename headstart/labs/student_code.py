"""What students' functions return, from a process of their own (worker.py), and which snapshots they match. No torch.

Student code is never imported here, and nothing is unpickled: outputs come back as JSON and are compared here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import ResourceError
from headstart.labs.snapshots import Case, difference
from headstart.labs.worker import PATIENCE

STARTING = 120  # seconds to load torch on a busy machine
KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "SYSTEMROOT",
)  # of the environment: no tokens


@dataclass(frozen=True)
class Call:
    """A function of a student's folder, and the cases to call it with."""

    folder: Path
    function: str
    cases: tuple[Case, ...]
    hidden: int = 0  # how many cases at the end are not the student's to see
    seconds: int = 5
    megabytes: int = 1000


def faults(calls: Sequence[Call]) -> list[list[str]]:
    """What is wrong with each function, case by case; an empty list: nothing."""
    found: list[list[str]] = []
    while len(found) < len(calls):
        answers = _answers(calls[len(found) :])
        if not answers:  # the code of this one has stopped the process that calls it
            answers = [{"error": "its process ended early"}]
        found += [_faults(call, answer) for call, answer in zip(calls[len(found) :], answers, strict=False)]
    return found


def told(found: Sequence[str]) -> str:
    """The first fault, and how many others there are.

    >>> told(["a: wrong", "b: wrong"]), told([])
    ('a: wrong (and 1 more)', '')
    """
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _faults(call: Call, answer: Any) -> list[str]:
    if "error" in answer:
        return [str(answer["error"])]
    outputs = answer.get("outputs")
    if not isinstance(outputs, list) or len(outputs) != len(call.cases):
        return ["its process ended early"]
    found = []
    for number, (case, output) in enumerate(zip(call.cases, outputs, strict=True)):
        why = _fault(case, output)
        if why and number >= len(call.cases) - call.hidden:
            found.append("a hidden case fails")
        elif why:
            found.append(why if why == "it is not written yet" else f"{case.what}: {why}")
    return list(dict.fromkeys(found))


def _fault(case: Case, output: Any) -> str:
    if not isinstance(output, dict) or ("value" in output) == ("error" in output):
        return "its process ended early"
    return str(output["error"]) if "error" in output else difference(case, output["value"])


def _answers(calls: Sequence[Call]) -> list[Any]:
    """Of as many calls as were answered before the process ended."""
    jobs = [
        {
            "folder": str(call.folder.absolute()),
            "function": call.function,
            "args": [case.args for case in call.cases],
            "seconds": call.seconds,
            "megabytes": call.megabytes,
        }
        for call in calls
    ]
    limit = STARTING + (PATIENCE + 1) * sum(call.seconds for call in calls)
    argv = [sys.executable, "-m", "headstart.labs.worker"]
    try:
        done = subprocess.run(
            argv, input=json.dumps(jobs).encode(), capture_output=True, timeout=limit, env=_environment()
        )
    except subprocess.TimeoutExpired:
        raise ResourceError("The process that calls students' functions did not end. Grade fewer folders.") from None
    return [json.loads(line) for line in done.stdout.splitlines() if line.endswith(b"}")]


def _environment() -> dict[str, str]:
    modules = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(modules), "OMP_NUM_THREADS": "1"}
