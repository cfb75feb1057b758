"""Training a head on a frozen base: its vectors kept, against running the base again in every epoch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.timing import compare
from headstart.models.base import freeze
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.tasks.classify import ClassBatch, Classify, PooledBatch, pooled
from headstart.text.batch import Batch, bucketed, pad
from headstart.text.tokenizer import TokenRows

ROWS, BATCH, EPOCHS = 256, 16, 10


def rows(samples: int) -> list[str]:
    return [line for size in ("micro", "mini") for line in _rows(size, samples)]


def _rows(size: str, samples: int) -> list[str]:
    """A further epoch, and a whole arm of ten with the first reading; texts of 8 tokens up to the context."""
    cfg = TransformerConfig.model_validate({"preset": "gpt", "size": size, "vocab": 8192})
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(np.log(80), 0.8, ROWS)), 8, cfg.context).astype(np.int64)
    texts = TokenRows.of(rng.integers(5, 8192, n) for n in lengths)
    target = torch.from_numpy(rng.integers(0, 2, ROWS))
    torch.manual_seed(0)
    spec = HeadSpec("classify", ("a", "b"))
    model, task = build_model(cfg, spec), Classify(spec.target, "accuracy")
    freeze(model.base, "head")
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3, fused=True)
    kept = pooled(model, texts, 0)
    model.train()  # the base stays in eval mode: it is frozen

    def epochs(count: int, batch: Callable[[torch.Tensor], ClassBatch]) -> None:
        for _ in range(count):
            for part in bucketed(lengths, BATCH, rng):
                total, number = task.loss(model, batch(torch.from_numpy(part)))
                (total / number).backward()
                optimizer.step()
                optimizer.zero_grad()

    def again(part: torch.Tensor) -> Batch:
        ids, mask = pad([texts[int(i)] for i in part])
        return Batch(ids, mask, target[part])

    def read_before(part: torch.Tensor) -> PooledBatch:
        return PooledBatch(kept[part], target[part], 0)

    def whole_arm() -> None:
        pooled(model, texts, 0)
        model.train()
        epochs(EPOCHS, read_before)

    one = compare(lambda: epochs(1, read_before), lambda: epochs(1, again), samples)
    ten = compare(whole_arm, lambda: epochs(EPOCHS, again), samples)
    return [
        f"| frozen {size}, {what} | running the base again | {n * ROWS / c.ours:,.0f} | {n * ROWS / c.theirs:,.0f} | {c.cell()} | |"
        for what, n, c in (("a further epoch", 1, one), (f"{EPOCHS} epochs, reading included", EPOCHS, ten))
    ]
