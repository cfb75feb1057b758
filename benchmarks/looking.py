"""`headstart inspect` from the shell, imports included: a 4-layer model, a text of 30 tokens.

python -m benchmarks.looking [--samples 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import timed

TEXT = " ".join(f"word{i}" for i in range(29))  # and the start token
MADE = "pretrain corpus.txt --out run --unit line --tokenizer word --steps 2 --quiet --set data.valid_fraction=0"
HEADSTART = [sys.executable, "-m", "headstart"]


def line(samples: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus.txt").write_text("\n".join([TEXT] * 100), "utf-8")
        subprocess.run([*HEADSTART, *MADE.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        told = []
        for flags in ([], ["--html", "seen.html"], ["--png", "seen.png"]):
            command = [*HEADSTART, "inspect", "run", TEXT, *flags]
            took = [
                timed(lambda c=command: subprocess.run(c, cwd=folder, check=True, stdout=subprocess.DEVNULL))  # type: ignore[misc]
                for _ in range(samples)
            ]
            told.append(f"{statistics.median(took):.1f} s{' with ' + flags[0] if flags else ''}")
    return f"`headstart inspect`, 4 layers, 30 tokens, imports included: {', '.join(told)}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    print(line(parser.parse_args().samples))  # noqa: T201
