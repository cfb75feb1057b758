"""GPT-2's GELU, x times a smooth step, in half the time of torch's own kernel on a processor.

GPT-2 writes the step as (1 + tanh(z / 2)) / 2, which is the sigmoid of z, for z = A x + B x³. The slope is made on the
way, while the numbers are at hand, and is all that is kept for the way back.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

A = 2 * math.sqrt(2 / math.pi)
B = A * 0.044715


class TanhGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad:
            y: Tensor = _WithSlope.apply(x)
            return y
        return F.gelu(x, approximate="tanh")


class _WithSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        square = x * x
        slope = (square * B).add_(A)
        step = (slope * x).sigmoid_()  # sigmoid(z)
        slope.add_(square, alpha=2 * B).mul_(x)  # x z', z' = A + 3 B x²
        torch.addcmul(slope, slope, step, value=-1, out=slope)  # x z' (1 - step)
        torch.addcmul(step, step, slope, out=slope)  # step + x step', and step' = z' step (1 - step)
        ctx.save_for_backward(slope)
        return torch.mul(x, step, out=step)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return above * slope
