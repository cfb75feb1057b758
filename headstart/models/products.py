"""Products with a weight matrix, by the library that is fastest on this processor.

torch takes MKL for matrices of 32 bits. On processors with AVX-512 that are not Intel's, MKL leaves half of the arithmetic units
unused; oneDNN, which torch has too, does not. Both compute in 32 bits: the results differ by rounding.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MANY = 64  # rows, from which on oneDNN's are faster


class Linear(nn.Linear):
    """torch's own, but for the library that computes it."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        return linear(input, self.weight, self.bias)


def use_fast_products(model: nn.Module) -> None:
    """Let every linear layer of a model that was built elsewhere be a `Linear`."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear  # the same attributes; only `forward` differs


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear(x, weight, bias)."""
    if not fast(x, weight) or x.numel() < MANY * x.shape[-1]:
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        y: Tensor = _Product.apply(x, weight, bias)
        return y
    return product(x, weight, bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by oneDNN; the matrices may be transposed views."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def fast(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is to compute with these: numbers of 32 bits on such a processor, not a graph that is being recorded."""
    return (
        prefers_onednn()
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and type(weight) in (nn.Parameter, Tensor)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


@cache
def prefers_onednn() -> bool:
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    file = Path("/proc/cpuinfo")
    vendor = re.search(r"^vendor_id\s*: (\w+)", file.read_text("utf-8"), re.MULTILINE) if file.exists() else None
    return vendor is not None and vendor[1] != "GenuineIntel"


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        learn_x, learn_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if learn_weight else None, weight if learn_x else None)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)  # (N, M)
        d_x = None if weight is None else product(rows, weight.T).view(*grad.shape[:-1], -1)
        d_weight = None if x is None else product(rows.T, x.flatten(0, -2).T)
        return d_x, d_weight, rows.sum(0) if ctx.needs_input_grad[2] else None
