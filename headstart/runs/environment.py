"""What a run or a study was made with: versions, machine, command. No torch is loaded to find out."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any, TypedDict

from headstart.quantities import counted

NAMED = ("headstart", "torch", "tokenizers", "numpy", "safetensors", "scikit-learn")


class Environment(TypedDict):
    versions: dict[str, str]
    platform: str
    machine: str
    processor: str  # the last bits of weights depend on its instructions
    git_commit: str | None  # of the folder that the user works in
    command: list[str]
    folder: str
    started: str


def environment() -> Environment:
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "machine": f"{platform.system()} {platform.machine()}, {counted(os.cpu_count() or 1, 'core')}",
        "processor": processor(),
        "git_commit": _git_commit(),
        "command": sys.argv,
        "folder": os.getcwd(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in NAMED}}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two env.json differ in that decides the last bits of the weights: `threads 2 -> 1`."""
    pairs = {
        name: (before.get(name), now[name])
        for name in ("threads", "device", "processor", "gradients")
        if name in now and name in before
    }
    versions = before.get("versions", {})
    pairs |= {name: (versions.get(name), now["versions"][name]) for name in ("headstart", "torch", "numpy")}
    return [f"{name} {then} -> {today}" for name, (then, today) in pairs.items() if then != today]


@cache
def processor() -> str:
    """Its name, as far as the system tells: with the version of torch it decides the last bits of a product."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


@cache
def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _git_commit() -> str | None:
    """The commit of the folder the user works in, if it is a repository."""
    with suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        return found.stdout.strip()
    return None
