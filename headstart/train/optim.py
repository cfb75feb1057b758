"""AdamW over the weights that learn, and the learning rate at each step."""

from __future__ import annotations

import math

import torch
from torch import nn

from headstart.config import TrainConfig


def build_optimizer(model: nn.Module, cfg: TrainConfig) -> torch.optim.AdamW:
    """Decay on matrices only: biases and norms have nothing to gain from being small."""
    free = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in free if p.dim() >= 2], "weight_decay": cfg.weight_decay},
        {"params": [p for p in free if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=cfg.lr, betas=(0.9, cfg.beta2), fused=True)


def learning_rate(step: int, cfg: TrainConfig) -> float:
    """Straight up to the peak, then half a cosine down to `final_lr` of it."""
    warmup = int(cfg.warmup * cfg.steps)
    if step < warmup:
        return cfg.lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, cfg.steps - warmup)
    return cfg.lr * (cfg.final_lr + (1 - cfg.final_lr) * 0.5 * (1 + math.cos(math.pi * progress)))
