"""Greedy generation, one text at a time, against transformers' generate with its cache, on the same weights."""

from __future__ import annotations

import torch

from benchmarks.language import SHAPES, build, peer
from benchmarks.timing import compare
from headstart.models.decode import LanguageStep, Sampling, generate

PROMPT, NEW = 8, 100
TEXTS = 3  # in one sample: a single one takes a tenth of a second, and the machine stumbles as often


def rows(samples: int) -> list[str]:
    """A small model, and a medium one."""
    return [row(samples, shape) for shape in ("gpt, large vocabulary", "gpt, wider")]


def row(samples: int, shape: str) -> str:
    model, cfg, _ = build({**SHAPES[shape], "context": 128})
    theirs, _ = peer(model, cfg)
    model.eval(), theirs.eval()
    prompt = torch.randint(cfg.vocab, (1, PROMPT))
    options = {"do_sample": False, "use_cache": True, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 0}

    def ours() -> list[int]:
        return [choice.id for choice in generate(LanguageStep(model), prompt, NEW, None, Sampling())]

    def transformers() -> list[int]:
        mask = torch.ones_like(prompt)
        with torch.inference_mode():
            return theirs.generate(prompt, attention_mask=mask, **options)[0, PROMPT:].tolist()

    assert ours() == transformers(), "the two do not write the same text"
    c = compare(lambda: [ours() for _ in range(TEXTS)], lambda: [transformers() for _ in range(TEXTS)], samples)
    size = f"{cfg.layers} layers, width {cfg.width}, vocabulary {cfg.vocab:,}"
    return f"| greedy generation, {size} | transformers.generate | {TEXTS * NEW / c.ours:,.0f} | {TEXTS * NEW / c.theirs:,.0f} | {c.cell()} | |"
