"""How many runs of a study go on at once where nobody says: by sizes alone, before torch is loaded.

The steps of a small model are too short for two threads to share. Two processes with a thread each train it sooner, but each takes some
seconds to start, and holds a model of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from headstart.study.plan import StudyConfig

SMALL = 48 << 20  # bytes of weights: a larger model keeps several threads busy
STEPS = 2000  # of all runs together, from which on starting processes pays: they take half a minute or more
READS = ("frozen", "hybrid", "bi-encoder", "zero-shot", "stack", "ensemble")  # arms whose base takes no steps
SELF, PER_WEIGHT = (
    1 << 30,
    12,
)  # bytes that a process takes at least, and per byte of weights: moments, gradients, activations


def runs_at_once(cfg: StudyConfig) -> int:
    """As many as there are cores, each with one thread, for many short steps of small bases; else one, with all threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sizes, train = [_weights(Path(base)) for base in cfg.bases], cfg.finetune.get("train", {})
    tuned = [arm for arm in cfg.trained if arm not in READS]
    runs = len(tuned) * len(sizes) * len(cfg.labels) * cfg.seeds
    asked = cfg.pretrain or train.get("threads") or train.get("device", "cpu") != "cpu"
    short = runs * (train.get("steps") or cfg.least_steps) < STEPS
    if asked or short or not all(0 < size <= SMALL for size in sizes):
        return 1
    return max(1, min(cores, _free_memory() // 2 // (SELF + PER_WEIGHT * max(sizes))))


def _weights(base: Path) -> int:
    """Bytes of the weights in the folder of a run; 0, if it is none."""
    file = base / "model" / "model.safetensors"
    return file.stat().st_size if file.is_file() else 0


def _free_memory() -> int:
    """Bytes; none where the system does not say."""
    file = Path("/proc/meminfo")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
