"""Dropout from few random numbers.

torch draws numbers on a processor one after the other, with more bits for each than dropout needs: of a small model a tenth of
a step. Here four numbers of a tensor share 64 bits, so a probability is a multiple of 1 / 65,536, and what is kept is
scaled by exactly that. All bits come from torch's own generator: a seed gives the same dropout wherever it is drawn.

Shapes: B examples, T tokens, S tokens that can be seen, H heads, K numbers of each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16  # of 16 bits
NEVER = -1e38  # as a score: no number beside it counts, and a row of nothing else is no NaN


class Dropout(nn.Dropout):
    """torch's own, but for the bits."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        return dropout(input, self.p) if self.training else input


def use_fast_dropout(model: nn.Module) -> None:
    """Let every dropout of a model that was built elsewhere be a `Dropout`."""
    for module in model.modules():
        if type(module) is nn.Dropout and not module.inplace:
            module.__class__ = Dropout  # the same attributes; only `forward` differs


def dropout(x: Tensor, p: float) -> Tensor:
    """F.dropout(x, p) while training."""
    return x * noise(x, p) if _here(x) and 0 < _dropped(p) < LEVELS else F.dropout(x, p)


def attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, p: float, causal: bool = False) -> Tensor:
    """F.scaled_dot_product_attention, (B, H, T, K), whose kernel for processors has no dropout."""
    if not p or not _here(q):
        return F.scaled_dot_product_attention(q, k, v, allowed, p, is_causal=causal)
    queries, keys, values = (each.flatten(0, 1) for each in (q, k, v))  # (BH, T, K), (BH, S, K)
    scores = torch.bmm(queries * q.size(-1) ** -0.5, keys.transpose(1, 2)).unflatten(0, q.shape[:2])  # (B, H, T, S)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if allowed is not None:
        scores = scores + torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill_(~allowed, NEVER)
    return torch.bmm(dropout(scores.softmax(-1), p).flatten(0, 1), values).unflatten(0, q.shape[:2])


def noise(x: Tensor, p: float) -> Tensor:
    """What numbers of `x` are multiplied by: 0 with probability p, and else what keeps their mean."""
    dropped, count = _dropped(p), x.numel()
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(1 << 63), None)
    drawn = bits.view(torch.int16)[:count].view(x.shape)
    kept = torch.ge(drawn, dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return kept.mul_(LEVELS / (LEVELS - dropped))


def _dropped(p: float) -> int:
    """How many of the levels are dropped."""
    return round(p * LEVELS)


def _here(x: Tensor) -> bool:
    """Whether the numbers are on a processor, and not in a graph that is being recorded."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
