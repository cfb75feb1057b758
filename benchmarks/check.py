"""Whether something has become slower: the ratios of a fresh run beside those of the last dated table.

python -m benchmarks.check [--last FILE] [--fresh FILE] [--samples 5] [--nanogpt DIR]

A ratio has fallen if it is below the last one by more than the noise seen: by more than the last one varied downwards and more than the
fresh one varies upwards, and by more than 5 %, because a range of a few samples can be narrow by chance. Exit code 1 if any has. Run it
on a quiet machine with the processor of the last table; gains differ between processors.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST = 0.05  # of the last ratio
CELL = re.compile(r"\*\*([\d.]+)\*\*(?: \(([\d.]+) to ([\d.]+)\))?")
Row = tuple[str, str]  # what is measured, and the peer


@dataclass(frozen=True)
class Ratio:
    median: float
    low: float
    high: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--last", type=Path, help="the table to compare with; the last dated one")
    parser.add_argument("--fresh", type=Path, help="a table that has been measured already")
    parser.add_argument("--samples", default="5")
    parser.add_argument("--nanogpt")
    args = parser.parse_args()
    last = args.last or latest(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        fresh = args.fresh or Path(folder) / "fresh.md"
        if not args.fresh:
            words = ["--samples", args.samples, *(["--nanogpt", args.nanogpt] if args.nanogpt else [])]
            subprocess.run([sys.executable, "-m", "benchmarks", "--out", str(fresh), *words], check=True)
        fell, told = judged(last.read_text("utf-8"), fresh.read_text("utf-8"))
    print(f"beside {last.name}:", *told, sep="\n")  # noqa: T201
    sys.exit(1 if fell else 0)


def latest(folder: Path) -> Path:
    """The table with the last date in its name."""
    return max(folder.glob("speed_*.md"), key=lambda file: file.name)


def ratios(table: str) -> dict[Row, Ratio]:
    """The rows of a table that have a ratio; one without a range was measured once."""
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("|") and (cell := CELL.search(line)):
            median, low, high = (float(number or cell[1]) for number in cell.groups())
            found[cells[1], cells[2]] = Ratio(median, low, high)
    return found


def judged(last: str, fresh: str) -> tuple[list[Row], list[str]]:
    """The rows that fell, and a line about each row of the last table that fell or was not measured."""
    before, now = ratios(last), ratios(fresh)
    fell = [row for row, ratio in before.items() if row in now and has_fallen(ratio, now[row])]
    lines = [f"fell: {_told(row, before, now)}" for row in fell]
    lines += [f"not measured: {', '.join(row)}" for row in before if row not in now]
    if _machine(last) != _machine(fresh):
        lines.append(f"another machine: {_machine(fresh)}, before {_machine(last)}. Ratios may differ for that alone.")
    compared = sum(row in now for row in before)
    return fell, [*lines, f"{compared} ratios compared, {len(fell)} fell by more than the noise seen"]


def has_fallen(last: Ratio, fresh: Ratio) -> bool:
    """
    >>> has_fallen(Ratio(2.0, 1.8, 2.1), Ratio(1.7, 1.6, 1.8)), has_fallen(Ratio(2.0, 1.6, 2.1), Ratio(1.7, 1.6, 1.8))
    (True, False)
    """
    fall = last.median - fresh.median
    return fall > max(last.median - last.low, fresh.high - fresh.median, LEAST * last.median)


def _told(row: Row, before: Mapping[Row, Ratio], now: Mapping[Row, Ratio]) -> str:
    texts = [f"{r.median:.2f} ({r.low:.2f} to {r.high:.2f})" for r in (before[row], now[row])]
    return f"{', '.join(row)}: {' -> '.join(texts)}"


def _machine(table: str) -> str:
    """What the table tells of the processor, the threads and the versions."""
    return next((line.partition(". Median")[0] for line in table.splitlines() if ", torch " in line), "unknown")


if __name__ == "__main__":
    main()
