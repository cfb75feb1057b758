"""What the commands that people wait for load: as little as their work needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.model_dir import read_model

SLOW = {"torch._dynamo", "transformers", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib"}  # seconds together
CODE = f"""
import contextlib, io, sys
from headstart.cli import app
for words in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            app(words.split("|"))
        except SystemExit as end:
            code = end.code
    print(words, code, *sorted(set(sys.modules) & {SLOW | {"torch"}}))
"""


def test_commands_load_nothing_slow(runs: dict[str, Path]) -> None:
    full, table = str(runs["full"]), str(runs["reviews.csv"])
    words = [
        f"runs|{runs['full'].parent}",
        f"predict|{full}|film 7",
        f"generate|{runs['lm']}|film",
        f"evaluate|{full}|{table}",
    ]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{words[0]} 0", *(f"{line} 0 torch" for line in words[1:])], done.stderr


def test_opening_a_model_draws_no_weights(runs: dict[str, Path]) -> None:
    before = torch.get_rng_state()
    one, other = (read_model(runs["full"] / "model").model for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert fingerprint(weights(one)) == fingerprint(weights(other))
