"""Training speed of `gpt` against transformers' GPT-2 (and nanoGPT, where someone has it), and of `classic` against
torch's own nn.TransformerEncoder with the plain cross-entropy: same shape, same tokens, same dropout.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.timing import compare, memory_now, memory_peak, peak_memory
from headstart.models.heads import Model
from headstart.models.layout import to_disk
from headstart.models.transformer import sinusoids
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.text.batch import Batch

SHAPES: dict[str, dict[str, Any]] = {
    "gpt, large vocabulary": {
        "preset": "gpt", "layers": 3, "heads": 3, "width": 48, "ff": 192, "vocab": 50257, "context": 128, "batch": 16,
    },
    "gpt, wider": {
        "preset": "gpt", "layers": 6, "heads": 6, "width": 384, "ff": 1536, "vocab": 8192, "context": 256, "batch": 8,
    },
    "classic": {
        "preset": "classic", "layers": 4, "heads": 2, "width": 200, "ff": 200, "vocab": 50001, "context": 256, "batch": 16,
    },
}  # fmt: skip
Step = Callable[[], float]


def our_step(model: Model, batch: Batch) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    parameters = list(model.parameters())

    def step() -> float:
        total, count = model.head.loss(model.features(batch.ids, batch.mask), batch.target)
        total.backward()
        torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1 / count)
        optimizer.step()
        optimizer.zero_grad()
        return float(total.detach()) / count

    return step


def plain_step(logits: Callable[[Tensor], Tensor], module: nn.Module, batch: Batch) -> Step:
    """The loop that a tutorial writes."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def step() -> float:
        loss = F.cross_entropy(logits(batch.ids).flatten(0, 1), batch.target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


class Tutorial(nn.Module):
    """The language model of PyTorch's transformer tutorial."""

    positions: Tensor

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, cfg.ff, cfg.dropout, batch_first=True)
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.drop = nn.Dropout(cfg.dropout)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.width, cfg.vocab)
        self.register_buffer("positions", sinusoids(cfg.context, cfg.width))
        self.scale = cfg.width**0.5

    def forward(self, ids: Tensor) -> Tensor:
        square = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        x = self.drop(self.tokens(ids) * self.scale + self.positions[: ids.size(1)])
        return self.head(self.encoder(x, mask=square, is_causal=True))


def build(shape: dict[str, Any]) -> tuple[Model, TransformerConfig, Batch]:
    torch.manual_seed(0)
    cfg = TransformerConfig.model_validate({k: v for k, v in shape.items() if k != "batch"})
    ids = torch.randint(cfg.vocab, (shape["batch"], cfg.context + 1))
    mask = torch.ones_like(ids[:, :-1], dtype=torch.bool)
    return build_model(cfg, HeadSpec("language")), cfg, Batch(ids[:, :-1].contiguous(), mask, ids[:, 1:].contiguous())


def peer(model: Model, cfg: TransformerConfig) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """Torch's or transformers' own model with the weights of ours."""
    if cfg.preset == "classic":
        theirs: nn.Module = Tutorial(cfg)
        state = theirs.state_dict()
        ours = weights(model)
        names = {"tokens.weight": "base.tokens.weight", "head.weight": "head.weight", "head.bias": "head.bias"}
        for i in range(cfg.layers):
            for a, b in {
                "self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.out.", "linear1.": "up.",
                "linear2.": "down.", "norm1.": "attention_norm.", "norm2.": "ff_norm.",
            }.items():  # fmt: skip
                for kind in ("weight", "bias"):
                    names[f"encoder.layers.{i}.{a}{kind}"] = f"base.layers.{i}.{b}{kind}"
        theirs.load_state_dict({**state, **{a: ours[b] for a, b in names.items()}})
        return theirs, theirs
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=cfg.vocab, n_positions=cfg.context, n_embd=cfg.width, n_layer=cfg.layers, n_head=cfg.heads,
            n_inner=cfg.ff, resid_pdrop=cfg.dropout, embd_pdrop=cfg.dropout, attn_pdrop=cfg.dropout,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    theirs.load_state_dict(to_disk(weights(model), cfg), strict=False)
    theirs.tie_weights()
    return theirs, lambda ids: theirs(input_ids=ids, use_cache=False).logits


def nanogpt(folder: Path, cfg: TransformerConfig) -> nn.Module:
    """nanoGPT's own model, from a folder where someone has it."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=cfg.context, vocab_size=cfg.vocab, n_layer=cfg.layers, n_head=cfg.heads, n_embd=cfg.width,
        dropout=cfg.dropout, bias=True,
    )  # fmt: skip
    return module.GPT(config)


def nanogpt_step(model: nn.Module, batch: Batch) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        _, loss = model(batch.ids, batch.target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def flops(shape: dict[str, Any]) -> float:
    """Operations of one update: six for each matrix weight and token, and the attention products."""
    tokens = shape["batch"] * shape["context"]
    layer = 4 * shape["width"] ** 2 + 2 * shape["width"] * shape["ff"]
    matrices = shape["layers"] * layer + shape["vocab"] * shape["width"]
    return 6 * tokens * (matrices + shape["layers"] * 2 * shape["context"] * shape["width"])


def rows(samples: int, folder: Path | None) -> list[str]:
    """One line of the table for each shape and peer."""
    lines = []
    for name, shape in SHAPES.items():
        model, cfg, batch = build(shape)
        theirs, logits = peer(model, cfg)
        with torch.no_grad():  # the same numbers, before anything is timed
            total, count = model.eval().head.loss(model.features(batch.ids, batch.mask), batch.target)
            theirs.eval()
            gap = abs(
                float(total) / count - float(F.cross_entropy(logits(batch.ids).flatten(0, 1), batch.target.flatten()))
            )
        assert gap < 1e-4, f"{name}: the losses differ by {gap}"
        peers = {
            "GPT2LMHeadModel" if cfg.preset == "gpt" else "nn.TransformerEncoder": plain_step(
                logits, theirs.train(), batch
            )
        }
        if folder and cfg.preset == "gpt":
            peers["nanoGPT"] = nanogpt_step(nanogpt(folder, cfg).train(), batch)
        ours = our_step(model.train(), batch)
        tokens = shape["batch"] * shape["context"]
        for other, step in peers.items():
            c = compare(ours, step, samples)
            shares = [flops(shape) / seconds / 1e9 / c.peak for seconds in (c.ours, c.theirs)]
            lines.append(
                f"| {name} | {other} | {tokens / c.ours:,.0f} | {tokens / c.theirs:,.0f} | {c.cell()} | "
                f"{shares[0]:.0%} / {shares[1]:.0%} |"
            )
    return lines


def memory_row() -> str:
    """Peak memory of three updates of `classic`, ours and the plain way, each in a process of its own."""
    ours, theirs = (peak_memory("benchmarks.language", ["--memory", who]) for who in ("ours", "theirs"))
    return f"| classic, peak memory above the start | nn.TransformerEncoder | {ours:,.0f} MB | {theirs:,.0f} MB | **{theirs / ours:.2f}** | |"


def _measure_memory(who: str) -> None:
    model, cfg, batch = build(SHAPES["classic"])
    if who == "theirs":
        theirs, logits = peer(model, cfg)
        del model
    before = memory_now()
    step = our_step(model.train(), batch) if who == "ours" else plain_step(logits, theirs.train(), batch)
    for _ in range(3):
        step()
    print(json.dumps(memory_peak() - before))  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", choices=["ours", "theirs"], required=True)
    _measure_memory(parser.parse_args().memory)
