"""All benchmarks in one run; writes benchmarks/speed_<date>.md.

python -m benchmarks [--samples 5] [--nanogpt DIR]
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch
import transformers

from benchmarks import buckets, frozen, generation, images, language, looking, minilm, translation
from benchmarks.timing import timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--nanogpt", type=Path, help="a folder with nanoGPT's model.py, to put beside ours")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / f"speed_{date.today()}.md")
    args = parser.parse_args()
    helped = min(
        timed(lambda: subprocess.run([sys.executable, "-m", "headstart", "--help"], stdout=subprocess.DEVNULL))
        for _ in range(5)
    )
    lines = [
        f"# Speed, {date.today()}",
        "",
        f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}, transformers {transformers.__version__}. Median of {args.samples} samples, the two taken in turn in one",
        "process; the ratio is the peer's time over ours, median and range. Tokens a second (training, generation) or texts",
        "a second (fine-tuning). Same weights, tokens and dropout; losses compared before timing (within 0.0001).",
        "",
        "| what | peer | Headstart | peer | ratio (range) | share of GEMM peak, ours / peer |",
        "|---|---|---|---|---|---|",
        *language.rows(args.samples, args.nanogpt),
        language.memory_row(),
        *generation.rows(args.samples),
        buckets.row(max(3, args.samples // 2)),
        *minilm.rows(max(3, args.samples // 2)),
        *frozen.rows(max(3, args.samples // 2)),
        *translation.rows(args.samples),
        "",
        f"`headstart --help`: {helped:.2f} s.",
        "",
        looking.line(args.samples),
        "",
        images.line(args.samples),
    ]
    args.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))  # noqa: T201


def processor() -> str:
    """Its name, and the widest vectors that it has: gains of one need not hold on another."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    return " ".join(filter(None, (facts.get("model name", platform.machine()).replace(",", ""), vectors)))


if __name__ == "__main__":
    main()
