"""What each of several processes of test_processes.py does, with RANK, WORLD_SIZE and so on in its environment: a list of jobs.

A job is {"words": [...], "out": DIR, "fault": NAME}; a fault is planted for that job alone, to see that a test would find it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from typer.testing import CliRunner

from headstart.cli import app
from headstart.runs.place import here
from headstart.train import processes
from headstart.train.processes import Group, Micro


def mean_of_means(group: Group, backward: Callable[[int], Micro], micros: int, free: Sequence[nn.Parameter]) -> Any:
    """Every micro-batch counts alike, however many tokens it has."""

    def divided(micro: int) -> Micro:
        loss, count, tokens = backward(micro)
        for p in free:
            if p.grad is not None:
                p.grad /= count
        return loss / count, 1.0, tokens

    return right_accumulate(group, divided, micros, free)


def another_order(received: Tensor, sent: Tensor) -> None:
    """The micro-batches of a round come in from the last process to the first."""
    right_exchange(received, sent)
    parts = received.view(here().count, -1)
    parts.copy_(parts.flip(0))


right_accumulate, right_exchange = Group.accumulate, dist.all_to_all_single
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "": (Group, "accumulate", right_accumulate),
    "mean of means": (Group, "accumulate", mean_of_means),
    "another order": (dist, "all_to_all_single", another_order),
}


def run_all(jobs: list[dict[str, Any]]) -> None:
    shared, store = processes._store(here()), processes.PrefixStore
    for number, job in enumerate(jobs):
        processes._store = lambda place, number=number: store(f"job {number}", shared)  # type: ignore[assignment,misc]
        where, name, fault = FAULTS[job["fault"]]
        before = getattr(where, name)
        setattr(where, name, fault)
        done = CliRunner().invoke(app, [*job["words"], "--out", job["out"]])
        setattr(where, name, before)
        if done.exit_code:
            sys.exit(f"{job['words']}: {done.output} {done.exception!r}")
