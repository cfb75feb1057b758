"""The server under load: python -m tests.nightly.load [--out DIR] trains a small classifier and runs benchmarks.serving on it.

It fails if our server, in any setting, answers a request with an error, or with another refusal than 429.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import subprocess
import sys
from pathlib import Path

SECONDS = os.environ.get("HEADSTART_LOAD_SECONDS", "5")
GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("runs/load"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rows, run, dice = out / "rows.csv", out / "classifier", random.Random(0)
    lines = [" ".join(dice.choices(GOOD if i % 2 else BAD, k=dice.randint(3, 60))) + f",{i % 2}" for i in range(2000)]
    rows.write_text("\n".join(["text,label", *lines]) + "\n", "utf-8")
    headstart = [sys.executable, "-m", "headstart"]
    if not (run / "result.json").exists():
        made = ["--base", "gpt", "--init", "scratch", "--size", "micro", "--epochs", "1", "--quiet", "--out", str(run)]
        going_on = ["--resume"] if (run / "env.json").exists() else []
        subprocess.run([*headstart, "finetune", str(rows), *made, *going_on], check=True)
    words = [sys.executable, "-m", "benchmarks.serving", str(run), "--texts", str(rows), "--seconds", SECONDS]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    sys.stdout.write(done.stdout)
    found = faults(done.stdout)
    sys.stdout.write("; ".join(found) or counts(done.stdout))
    sys.stdout.write("\n")
    return int(bool(found))


def ours(page: str) -> dict[str, list[str]]:
    """The cells of the table about our servers, by their names."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    return {name: cells for name, *cells in rows if name.startswith("Headstart")}


def answers(page: str) -> dict[int, int]:
    """How many answers had which status when there were far too many clients."""
    found = re.search(r"answers by status (\{[^}]*\})", page)
    return ast.literal_eval(found[1]) if found else {}


def faults(page: str) -> list[str]:
    found = [
        f"{name}: {cells[4]} errors at {cells[1]} requests/s"
        for name, cells in ours(page).items()
        if cells[4] != "0" or cells[1] == "0"
    ]
    strange = answers(page).keys() - {200, 429}
    found += [f"{answers(page)[status]} answers with the status {status}" for status in sorted(strange)]
    return found if ours(page) and answers(page) else ["the benchmark printed no table"]


def counts(page: str) -> str:
    served = ", ".join(f"{name.removeprefix('Headstart, ')} {cells[1]}" for name, cells in ours(page).items())
    many = answers(page)
    return f"requests/s: {served}; no errors; with too many clients {many.get(200, 0):,} answered, {many.get(429, 0):,} refused"


if __name__ == "__main__":
    sys.exit(main())
