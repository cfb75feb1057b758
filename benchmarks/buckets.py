"""Fine-tuning in batches of similar length against batches in random order, padded to their longest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from benchmarks.timing import compare
from headstart.models.heads import Model
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.tasks.classify import Classify
from headstart.text.batch import Batch, Numbers, bucketed, pad

ROWS, CONTEXT, BATCH = 512, 256, 16


def row(samples: int) -> str:
    """Lengths as of film reviews: log-normal, median 100 tokens, cut at 256."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(np.log(100), 0.8, ROWS)), 8, CONTEXT).astype(np.int64)
    rows = [rng.integers(5, 8192, n).astype(np.int32) for n in lengths]
    target = torch.from_numpy(rng.integers(0, 2, ROWS))
    cfg = TransformerConfig.model_validate({"preset": "gpt", "size": "micro", "vocab": 8192, "context": CONTEXT})
    torch.manual_seed(0)
    spec = HeadSpec("classify", ("a", "b"))
    model, task = build_model(cfg, spec).train(), Classify(spec.target, "accuracy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def epoch(plan: Callable[[], Sequence[Numbers]]) -> None:
        for part in plan():
            ids, mask = pad([rows[int(i)] for i in part])
            _update(model, task, Batch(ids, mask, target[torch.from_numpy(np.asarray(part))]), optimizer)

    def random_order() -> Sequence[Numbers]:
        order = rng.permutation(ROWS)
        return [order[i : i + BATCH] for i in range(0, ROWS, BATCH)]

    c = compare(lambda: epoch(lambda: bucketed(lengths, BATCH, rng)), lambda: epoch(random_order), samples)
    return f"| fine-tuning micro, {ROWS} texts of 8 to 256 tokens | random order, padded | {ROWS / c.ours:,.1f} | {ROWS / c.theirs:,.1f} | {c.cell()} | |"


def _update(model: Model, task: Classify, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
    total, count = task.loss(model, batch)
    (total / count).backward()
    optimizer.step()
    optimizer.zero_grad()
