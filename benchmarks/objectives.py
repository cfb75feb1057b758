"""What an update of each pretraining objective costs at the same width and depth, and how well it uses the processor.

Operations are counted while they are made, a teacher's too; the peak is a large matrix product timed beside.

python -m benchmarks.objectives [--samples 5] [--size micro]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from benchmarks.timing import gemm_peak, timed
from headstart.config import Objective, PretrainConfig
from headstart.hub.packs import get_pack
from headstart.jobs.job import prepare
from headstart.runs.checkpoint import Progress
from headstart.train.loop import apply_gradients, gradients
from headstart.train.optim import build_optimizer

UPDATES = 3  # in one sample
# What torch's counter leaves out: attention without dropout on a CPU, and products added to what is there.
ALSO_COUNTED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten.addmm_: lambda _, a, b, *__, **___: 2 * a[0] * a[1] * b[1],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--size", default="micro")
    args = parser.parse_args()
    lines = [
        f"| objective, {args.size}, vocabulary 8,192, 32 x 128 tokens | tokens a second | GFLOP an update | share of GEMM peak (range) |",
        "|---|---:|---:|---|",
        *rows(args.samples, args.size, str(get_pack("movie-reviews"))),
    ]
    print("\n".join(lines))  # noqa: T201


def rows(samples: int, size: str, corpus: str, objectives: Sequence[str] = get_args(Objective)) -> list[str]:
    return [_row(objective, _settings(objective, size, corpus), samples) for objective in objectives]


def _settings(objective: str, size: str, corpus: str) -> PretrainConfig:
    given: dict[str, Any] = {
        "objective": objective,
        "teacher": "minilm" if objective == "distill" else None,
        "start": "random",
        "data": {"paths": (corpus,), "text_column": "text"},
        "tokenizer": {"vocab": 8192},
        "model": {"size": size, "context": 128},
    }
    return PretrainConfig.model_validate(given)


def _row(objective: str, cfg: PretrainConfig, samples: int) -> str:
    job = prepare(cfg)
    optimizer = build_optimizer(job.model, cfg.train)
    free, now = list(job.model.parameters()), Progress()
    job.model.train()

    def update() -> None:
        apply_gradients(optimizer, gradients(job.model, job.task, job.batches, free, cfg.train, now)["lr"])
        now.step += 1

    def updates(count: int) -> None:
        for _ in range(count):
            update()

    with FlopCounterMode(display=False, custom_mapping=ALSO_COUNTED) as counter:
        update()
    operations, now.tokens = counter.get_total_flops(), 0
    seconds, shares = [], []
    for _ in range(samples):
        peak = gemm_peak()
        seconds.append(timed(lambda: updates(UPDATES)) / UPDATES)
        shares.append(operations / seconds[-1] / 1e9 / peak)
    speed = now.tokens / (UPDATES * sum(seconds))
    share = f"**{statistics.median(shares):.0%}** ({min(shares):.0%} to {max(shares):.0%})"
    return f"| {objective} | {speed:,.0f} | {operations / 1e9:.1f} | {share} |"


if __name__ == "__main__":
    main()
