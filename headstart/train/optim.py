"""AdamW over the weights that learn, and the learning rate at each step."""

from __future__ import annotations

import math

import torch
from torch import nn

from headstart.config import TrainConfig
from headstart.models.base import Base, layer_groups


def build_optimizer(model: nn.Module, cfg: TrainConfig) -> torch.optim.AdamW:
    """Decay on matrices only: biases and norms have nothing to gain from being small."""
    free = [p for p in model.parameters() if p.requires_grad]
    scale = _layer_scales(model, cfg.layer_decay)
    groups = [
        {"params": [p for p in free if scale.get(id(p), 1.0) == s and (p.dim() >= 2) == matrix],
         "weight_decay": cfg.weight_decay if matrix else 0.0, "scale": s}
        for s in sorted({1.0, *scale.values()}, reverse=True)
        for matrix in (True, False)
    ]  # fmt: skip
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=cfg.lr, betas=(0.9, cfg.beta2), fused=True)


def _layer_scales(model: nn.Module, decay: float) -> dict[int, float]:
    """The part of the learning rate that each parameter of the base gets, by its id: less the nearer to the input."""
    base = getattr(model, "base", None)
    if decay == 1.0 or not isinstance(base, Base):
        return {}
    groups = layer_groups(base)
    return {id(p): decay ** (len(groups) - i) for i, (_, parameters) in enumerate(groups) for p in parameters}


def learning_rate(step: int, cfg: TrainConfig) -> float:
    """Straight up to the peak, then half a cosine down to `final_lr` of it."""
    warmup = int(cfg.warmup * cfg.steps)
    if step < warmup:
        return cfg.lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, cfg.steps - warmup)
    return cfg.lr * (cfg.final_lr + (1 - cfg.final_lr) * 0.5 * (1 + math.cos(math.pi * progress)))
