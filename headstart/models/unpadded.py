"""Texts of different lengths read without their padding, for inference: everything but attention treats tokens alike.

Shapes: B examples, T tokens, N real tokens of all examples together, D width, H heads, K = D // H.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.models.block import Block

SLACK = 96  # padded tokens that attention reads in the time that one more call of it takes


class Group:
    """Examples of similar lengths, whose attention is computed together."""

    def __init__(self, first: Tensor, lengths: Tensor, causal: bool) -> None:
        columns = torch.arange(int(lengths.max()), device=lengths.device)
        real = columns < lengths[:, None]  # (B, T)
        places = (first[:, None] + columns) * real  # (B, T), row numbers; padding reads the first row
        self.shape, self.causal, full = places.shape, causal, bool(real.all())
        self.places = places.flatten()
        self.own = self.places if full else places[real]
        self.real = None if full else real.flatten().nonzero()[:, 0]
        self.allowed = None if full or causal else real[:, None, None, :]

    def attend(self, qkv: Tensor, heads: int, out: Tensor) -> None:
        """The rows of `out` (N, D) that are of this group."""
        qkv = qkv.index_select(0, self.places).view(*self.shape, 3, heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, T, K)
        y = F.scaled_dot_product_attention(q, k, v, self.allowed, is_causal=self.causal)
        rows = y.transpose(1, 2).reshape(len(self.places), -1)
        out.index_copy_(0, self.own, rows if self.real is None else rows.index_select(0, self.real))


def groups_of(lengths: Tensor, causal: bool) -> list[Group]:
    """Examples by length, a new group where padding would take longer than another call."""
    firsts = lengths.cumsum(0) - lengths
    order = lengths.argsort(stable=True)
    sizes, groups, last, padding = lengths[order].tolist(), [], len(order), 0
    for i in range(len(order) - 1, -2, -1):
        padding += sizes[last - 1] - sizes[i]
        if i < 0 or padding > SLACK:
            part = order[i + 1 : last]
            groups.append(Group(firsts[part], lengths[part], causal))
            last, padding = i + 1, 0
    return groups


def read_unpadded(x: Tensor, mask: Tensor, blocks: Iterable[Block], causal: bool) -> Tensor:
    """What the layers make of embeddings (B, T, D) whose real tokens the mask has; 0 at padding."""
    groups, real = groups_of(mask.sum(1), causal), x[mask]  # (N, D)
    rows = F.pad(real, (0, 0, 0, rounded(len(real)) - len(real)))
    for block in blocks:
        if block.pre_norm:
            rows = rows + _attention(block, block.attention_norm(rows), groups)
            rows = rows + _feed_forward(block, block.ff_norm(rows))
        else:
            rows = block.attention_norm(rows + _attention(block, rows, groups))
            rows = block.ff_norm(rows + _feed_forward(block, rows))
    whole = torch.zeros_like(x)
    whole[mask] = rows[: len(real)]
    return whole


def rounded(rows: int) -> int:
    """So many, or up to 6 % more: oneDNN takes 0.5 ms to prepare for a number of rows that it has not met.

    >>> [rounded(n) for n in (7, 31, 33, 100, 1000)]
    [7, 31, 34, 100, 1024]
    """
    step = 1 << max(0, rows.bit_length() - 5)
    return -(-rows // step) * step


def _attention(block: Block, x: Tensor, groups: Iterable[Group]) -> Tensor:
    qkv, out = block.attention.qkv(x), torch.zeros_like(x)  # (N, 3 D) and (N, D)
    for group in groups:
        group.attend(qkv, block.attention.heads, out)
    return block.attention.out(out)


def _feed_forward(block: Block, x: Tensor) -> Tensor:
    return block.down(block.activation(block.up(x)))
