"""Learning rates by layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headstart.config import TrainConfig
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.train.loop import apply_gradients
from headstart.train.optim import build_optimizer


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_each_layer_learns_at_a_part_of_the_rate_of_the_one_above(
    tiny: Callable[..., TransformerConfig], decay: float
) -> None:
    torch.manual_seed(0)
    model = build_model(tiny("gpt"), HeadSpec("classify", ("a", "b")))
    optimizer = build_optimizer(model, TrainConfig(layer_decay=decay, weight_decay=0.0))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    apply_gradients(optimizer, 0.01)  # AdamW's first step is as long as the rate
    step = {name: float((before[name] - p.detach()).abs().mean()) for name, p in model.named_parameters()}
    expected = {
        "head.linear.weight": 0.01,
        "base.norm.weight": 0.01 * decay,
        "base.layers.1.up.weight": 0.01 * decay**2,
        "base.layers.0.up.bias": 0.01 * decay**3,
        "base.tokens.weight": 0.01 * decay**4,
    }
    assert {name: step[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before)
