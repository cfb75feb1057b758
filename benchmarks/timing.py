"""How things are timed here: peers take turns in one process, and the ratio is what counts.

A machine's speed drifts by half within minutes; two things timed one after the other in the same second do not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True)
class Comparison:
    ours: float  # seconds, median
    theirs: float
    ratio: float  # theirs / ours, median of the pairs
    low: float
    high: float
    peak: float  # GFLOP/s of a large product, median of what was measured beside

    def cell(self) -> str:
        return f"**{self.ratio:.2f}** ({self.low:.2f} to {self.high:.2f})"


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(ours: Callable[[], object], theirs: Callable[[], object], samples: int) -> Comparison:
    """Each once unmeasured, then in turn, the one that goes first changing every time."""
    ours(), theirs()
    pairs: list[tuple[float, float]] = []
    peaks: list[float] = []
    for i in range(samples):
        peaks.append(gemm_peak())
        if i % 2:
            b, a = timed(theirs), timed(ours)
        else:
            a, b = timed(ours), timed(theirs)
        pairs.append((a, b))
    ratios = [b / a for a, b in pairs]
    return Comparison(
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(peaks),
    )


def gemm_peak() -> float:
    """GFLOP/s of a large square product by the fastest library at hand, the best of three."""
    import torch  # here, so that what needs none starts without it

    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    return max(2 * 1536**3 / timed(partial(way, a, b)) / 1e9 for way in ways_to_multiply() for _ in range(3))


def ways_to_multiply() -> list[Callable[..., object]]:
    """Those that a model takes here: torch's own, and that of `headstart/models/products.py` where it is used."""
    import torch

    from headstart.models.products import prefers_onednn, product

    return [torch.mm, product] if prefers_onednn() else [torch.mm]


def spent_by(words: Sequence[str]) -> tuple[str, tuple[float, float, float]]:
    """What a process prints, its seconds, its processor seconds and its peak memory in megabytes."""
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, " ".join(words)
    return shown, (time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def peak_memory(module: str, arguments: Sequence[str]) -> float:
    """The megabytes that `module`, run in a fresh process, prints last."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def memory_now() -> float:
    """Megabytes in use; the high-water mark is set back to it (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def memory_peak() -> float:
    """Megabytes in use at most since `memory_now`."""
    return _status("VmHWM")


def _status(name: str) -> float:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) / 1024
