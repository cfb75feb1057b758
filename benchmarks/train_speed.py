"""Training speed of the `gpt` preset against transformers' GPT-2 in a plain loop: same shape, same batches, same dropout.

    python benchmarks/train_speed.py [--samples 5] [--quick]

Both take their steps in turn, so that a machine that slows down slows both; the ratio is what counts. Beside each
stands the share of the machine's own matrix-product peak that the step reaches.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headstart.config import TransformerConfig
from headstart.models.layout import to_disk
from headstart.text.batch import Batch
from headstart.train.checkpoint import weights
from headstart.train.model_dir import HeadSpec, build_model

SHAPES: dict[str, dict[str, int]] = {
    "small": {"layers": 3, "heads": 3, "width": 48, "ff": 192, "vocab": 50257, "context": 128, "batch": 16},
    "mid": {"layers": 6, "heads": 6, "width": 384, "ff": 1536, "vocab": 8192, "context": 256, "batch": 8},
}


def gemm_peak() -> float:
    """GFLOP/s of a large square product, the best of five."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return max(2 * 2048**3 / timed(lambda: a @ b) / 1e9 for _ in range(5))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def steppers(shape: dict[str, int]) -> tuple[Callable[[], float], Callable[[], float]]:
    """One update of ours and one of theirs, on the same weights and tokens; each returns its loss."""
    torch.manual_seed(0)
    keys = ("layers", "heads", "width", "ff", "vocab", "context")
    cfg = TransformerConfig.model_validate({"preset": "gpt", **{key: shape[key] for key in keys}})
    ours = build_model(cfg, HeadSpec("language")).train()
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=cfg.vocab, n_positions=cfg.context, n_embd=cfg.width, n_layer=cfg.layers, n_head=cfg.heads,
            n_inner=cfg.ff, resid_pdrop=cfg.dropout, embd_pdrop=cfg.dropout, attn_pdrop=cfg.dropout,
        )
    )  # fmt: skip
    theirs.load_state_dict(to_disk(weights(ours), cfg), strict=False)
    theirs.tie_weights()
    theirs.train()
    ids = torch.randint(cfg.vocab, (shape["batch"], cfg.context + 1))
    batch = Batch(ids[:, :-1], torch.ones_like(ids[:, :-1], dtype=torch.bool), ids[:, 1:].contiguous())
    our_optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-4, fused=True)
    their_optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-4)

    def our_step() -> float:
        total, count = ours.head.loss(ours.features(batch.ids, batch.mask), batch.target)
        total.backward()
        torch._foreach_mul_([p.grad for p in ours.parameters()], 1 / count)
        our_optimizer.step()
        our_optimizer.zero_grad()
        return float(total.detach()) / count

    def their_step() -> float:
        logits = theirs(input_ids=batch.ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.target.flatten())
        loss.backward()
        their_optimizer.step()
        their_optimizer.zero_grad()
        return float(loss.detach())

    return our_step, their_step


def flops(shape: dict[str, int]) -> float:
    """Floating-point operations of one update: six for each matrix weight and token, and the attention products."""
    tokens = shape["batch"] * shape["context"]
    matrices = (
        shape["layers"] * (4 * shape["width"] ** 2 + 2 * shape["width"] * shape["ff"]) + shape["vocab"] * shape["width"]
    )
    attention = shape["layers"] * 2 * shape["context"] * shape["width"]
    return 6 * tokens * (matrices + attention)


def measure(shape: dict[str, int], samples: int, steps: int) -> dict[str, Any]:
    ours, theirs = steppers(shape)
    gap = abs(ours() - theirs())  # also the warm-up
    assert gap < 0.1, f"the two do not compute the same loss: {gap}"
    rows = []
    for _ in range(samples):
        peak = gemm_peak()
        a, b = (timed(lambda step=step: [step() for _ in range(steps)]) / steps for step in (ours, theirs))
        rows.append((a, b, peak))
    tokens = shape["batch"] * shape["context"]
    return {
        "ours": tokens / statistics.median(a for a, _, _ in rows),
        "theirs": tokens / statistics.median(b for _, b, _ in rows),
        "ratio": statistics.median(b / a for a, b, _ in rows),
        "low": min(b / a for a, b, _ in rows),
        "high": max(b / a for a, b, _ in rows),
        "our_peak": statistics.median(flops(shape) / a / 1e9 / peak for a, _, peak in rows),
        "their_peak": statistics.median(flops(shape) / b / 1e9 / peak for _, b, peak in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / f"train_speed_{date.today()}.md")
    args = parser.parse_args()
    lines = [
        f"# Training speed, {date.today()}",
        "",
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}. Tokens a second;",
        f"median of {args.samples} samples of {args.steps} updates each, taken in turn. Same weights, tokens and dropout.",
        "",
        "| shape | Headstart | GPT2LMHeadModel, plain loop | ratio (range) | share of GEMM peak, ours / theirs |",
        "|---|---|---|---|---|",
    ]
    for name, shape in SHAPES.items():
        r = measure(shape, args.samples, args.steps)
        text = ", ".join(f"{key} {value}" for key, value in shape.items())
        lines.append(
            f"| {name}: {text} | {r['ours']:,.0f} | {r['theirs']:,.0f} | **{r['ratio']:.2f}** ({r['low']:.2f} to "
            f"{r['high']:.2f}) | {r['our_peak']:.0%} / {r['their_peak']:.0%} |"
        )
        print(lines[-1], flush=True)  # noqa: T201
    args.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
