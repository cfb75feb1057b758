"""Processes and cells beside each other, and a cost model fitted to them: for a quiet machine of two cores.

python -m benchmarks.scaling [--steps 20] [--turns 2] [--cell-steps 1000] [--skip-cells]

1. `pretrain` on 1 process x 1 thread, 1 x 2 and 2 x 1: tokens/s, and the part of the time that goes into communication. The
   settings take turns; of each the fastest turn counts.
2. The cost model of docs/scale.md, t = tokens x flops per token / rate + bytes / bandwidth + messages x latency: rate, bandwidth and
   latency are fitted to two settings, and a third one that was held out is predicted.
3. Eight cells of a study, one at a time and two at once; and the seconds of each study that its cells do not account for: start-up, plan,
   report. Cells at once do not shorten them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLOAT = 4  # bytes
MICROS = 4  # micro-batches of a step
HEADSTART = (sys.executable, "-m", "headstart")


@dataclass(frozen=True)
class Setting:
    size: str
    processes: int
    threads: int
    micros: int = MICROS


@dataclass(frozen=True)
class Measured:
    """One run, per step."""

    parameters: int
    tokens: float
    seconds: float
    waiting: float
    tokens_per_second: float


@dataclass(frozen=True)
class Model:
    """What a step costs: docs/scale.md has the formula."""

    rate: float  # floating-point operations per second of a process
    bandwidth: float  # bytes per second
    latency: float  # seconds per message

    def compute(self, parameters: int, tokens: float, processes: int) -> float:
        return 6 * parameters * tokens / processes / self.rate

    def communication(self, parameters: int, processes: int, micros: int) -> float:
        sent, messages = ordered(parameters, processes, micros)
        return sent / self.bandwidth + messages * self.latency


def ordered(parameters: int, processes: int, micros: int) -> tuple[float, int]:
    """Bytes and messages of a process in a step whose gradients are added in order."""
    rounds = -(-micros // processes)
    return (rounds + 1) * (processes - 1) / processes * FLOAT * parameters, rounds + 5


def pretraining(setting: Setting, corpus: Path, out: Path, steps: int) -> list[str]:
    return ["pretrain", str(corpus), "--out", str(out), "--size", setting.size, "--context", "64", "--batch-size", "8",
             "--steps", str(steps), "--set", "start=random", "--set", f"train.accumulate={setting.micros}", "--set", "train.log_every=1", "--set",
             "train.tensorboard=false", "--set", f"train.eval_every={steps}", "--threads", str(setting.threads), "--processes", str(setting.processes), "--quiet"]  # fmt: skip


def run(setting: Setting, corpus: Path, folder: Path, steps: int) -> Measured:
    out = folder / "-".join(map(str, (setting.size, setting.processes, setting.threads, setting.micros)))
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([*HEADSTART, *pretraining(setting, corpus, out, steps)], check=True, stdout=subprocess.DEVNULL)
    result = json.loads((out / "result.json").read_text())
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    walls = [(r["step"], r["wall"]["seconds"]) for r in log if r["split"] == "train"]
    (first, began), (last, ended) = walls[1], walls[-1]  # the first step warms up
    seconds = (ended - began) / (last - first)
    tokens = result["tokens"] / result["steps"]
    waiting = result.get("communication_seconds", 0.0) / result["steps"]
    return Measured(result["trained_parameters"], tokens, seconds, waiting, tokens / seconds)


def fit(alone: Measured, one: Measured, other: Measured) -> Model:
    """The rate of one process, and what the waiting of two pairs of processes says of the wire."""
    rate = 6 * alone.parameters * alone.tokens / alone.seconds
    sent = [ordered(m.parameters, 2, MICROS) for m in (one, other)]
    (a, b), (c, d) = sent
    slope = (one.waiting * d - other.waiting * b) / (a * d - b * c)  # seconds per byte
    latency = max(0.0, (one.waiting - a * slope) / b)
    return Model(rate, 1 / max(slope, 1e-12), latency)


def study(rows: Path, folder: Path, jobs: int, steps: int) -> list[str]:
    """Eight cells, `jobs` at once."""
    return ["compare", str(rows), "--base", "bert", "--arms", "scratch", "--seeds", "8", "--rates", "0.001", "--set",
             "finetune.model.size=micro", "--set", f"finetune.train.steps={steps}", "--set", "finetune.train.threads=1", "--jobs", str(jobs), "--yes", "--quiet",
             "--out", str(folder / f"jobs-{jobs}")]  # fmt: skip


def cells(rows: Path, folder: Path, jobs: int, steps: int) -> tuple[float, float]:
    """Seconds of eight cells, `jobs` at once, and how many of them are no cell's."""
    began = time.perf_counter()
    subprocess.run([*HEADSTART, *study(rows, folder, jobs, steps)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    results = [json.loads(path.read_text()) for path in (folder / f"jobs-{jobs}").glob("cells/*/result.json")]
    inside = sum(r["seconds"] + r["preparing_seconds"] for r in results if "preparing_seconds" in r)
    return seconds, seconds - inside / jobs


def tell(**facts: Any) -> None:
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}), flush=True)  # noqa: T201  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--cell-steps", type=int, default=1000)
    parser.add_argument("--skip-cells", action="store_true")
    args = parser.parse_args()
    tell(cores=os.cpu_count(), load=os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus, rows = folder / "corpus.txt", folder / "rows.csv"
        corpus.write_text("".join(f"the {i % 97}th film of {i % 89} was {('dull', 'fine', 'long')[i % 3]} to the end .\n" for i in range(20_000)))  # fmt: skip
        texts = [f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[i % 2]}" for i in range(200)]
        rows.write_text("\n".join(["text,label", *texts]))
        settings = [Setting("micro", 1, 1), Setting("micro", 1, 2), Setting("micro", 2, 1), Setting("nano", 2, 1), Setting("micro", 2, 1, 8)]  # fmt: skip
        turns = [[run(setting, corpus, folder, args.steps) for setting in settings] for _ in range(args.turns)]
        found = {setting: min(some, key=lambda m: m.seconds) for setting, *some in zip(settings, *turns, strict=True)}
        for setting, m in found.items():
            tell(**vars(setting), parameters=m.parameters, tokens_per_second=m.tokens_per_second, communication=m.waiting / m.seconds)  # fmt: skip
        alone, _, pair, small, unseen = found.values()
        model = fit(alone, pair, small)
        tell(**vars(model))
        predicted = model.compute(unseen.parameters, unseen.tokens, 2) + model.communication(unseen.parameters, 2, 8)
        tell(held_out_predicted=predicted, held_out_measured=unseen.seconds, ratio=unseen.seconds / predicted)
        if not args.skip_cells:
            (one, apart), (two, beside) = (cells(rows, folder, jobs, args.cell_steps) for jobs in (1, 2))
            tell(
                one_at_a_time=one, two_at_once=two, faster=one / two, outside_cells=[round(apart, 2), round(beside, 2)]
            )


if __name__ == "__main__":
    main()
