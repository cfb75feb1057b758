"""What a step frees is there for the next: in processes of their own, since malloc is set for good."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="another C library"
)
STEPS = """
import torch
from pathlib import Path
from headstart.config import TrainConfig
from headstart.train.loop import prepare_device
held = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
{prepare}
torch.ones(1 << 20).sum()
before = held()
torch.ones(6 << 20)  # 25 MB, and freed; glibc maps the first block of a size from the system, and unmaps it
print(held() - before)
"""


def kept(prepare: str, **environment: str) -> float:
    """Megabytes that the process still has when all is freed."""
    env = {name: value for name, value in os.environ.items() if "MALLOC" not in name} | environment
    words = [sys.executable, "-c", STEPS.format(prepare=prepare)]
    return int(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout) / 1e6


def test_a_step_leaves_its_memory_to_the_next_one() -> None:
    assert kept("prepare_device(TrainConfig())") > 20 > 10 > kept("")


def test_what_the_environment_says_of_malloc_is_heeded() -> None:
    assert kept("prepare_device(TrainConfig())", MALLOC_TRIM_THRESHOLD_="131072") < 10
