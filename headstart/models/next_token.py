"""The next token through a transformer, in as few operations as it takes.

A small model spends a token's time on the number of operations, not on their size: this is `Transformer.forward` for
one new token a text, without modules, masks or dropout, on weights that were looked up once. The same numbers come out.

Shapes: B texts, D width, H heads, K = D // H, S tokens that can be seen, C context.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Cache
from headstart.models.block import Block


class NextToken:
    """Ids (B,) in, states (B, D) out; `cache` grows by one token."""

    def __init__(
        self,
        tokens: Tensor,  # (V, D)
        positions: Tensor | None,  # (C, D)
        scale: float,
        embedding_norm: nn.Module,
        norm: nn.Module,
        blocks: Sequence[Block],
        cache: Cache,
    ) -> None:
        self.tokens, self.positions, self.scale, self.cache = tokens, positions, scale, cache
        self.embedding_norm, self.norm = _norm(embedding_norm), _norm(norm)
        self.layers = [_Layer(block, held) for block, held in zip(blocks, cache.layers, strict=True)]

    def __call__(self, ids: Tensor) -> Tensor:
        place = self.cache.length
        x = self.tokens[ids]
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions[place]
        x = self.embedding_norm(x)
        for layer in self.layers:
            x = layer(x, place)
        self.cache.length = place + 1
        return self.norm(x)


class _Layer:
    def __init__(self, block: Block, held: Tensor) -> None:
        attention = block.attention
        _, batch, heads, context, size = held.shape
        self.held, self.shape, self.scale = held, (batch, 3, heads, size), size**-0.5
        flat = held.view(2, batch * heads, context, size)
        self.keys, self.values = flat[0], flat[1]  # (BH, C, K)
        self.no_bias = held.new_zeros(())
        self.qkv, self.out, self.up, self.down = (
            (linear.weight, linear.bias) for linear in (attention.qkv, attention.out, block.up, block.down)
        )
        self.attention_norm, self.ff_norm = _norm(block.attention_norm), _norm(block.ff_norm)
        self.activation, self.pre_norm = block.activation.forward, block.pre_norm

    def __call__(self, x: Tensor, place: int) -> Tensor:
        if self.pre_norm:
            x = x + self.attend(self.attention_norm(x), place)
            return x + self.feed_forward(self.ff_norm(x))
        x = self.attention_norm(x + self.attend(x, place))
        return self.ff_norm(x + self.feed_forward(x))

    def attend(self, x: Tensor, place: int) -> Tensor:
        qkv = F.linear(x, *self.qkv).view(self.shape)  # (B, 3, H, K)
        self.held[:, :, :, place] = qkv[:, 1:].transpose(0, 1)
        query = qkv[:, 0].reshape(-1, 1, self.shape[3])  # (BH, 1, K)
        keys, values = self.keys[:, : place + 1], self.values[:, : place + 1]  # (BH, S, K)
        scores = torch.baddbmm(self.no_bias, query, keys.transpose(1, 2), beta=0, alpha=self.scale)  # (BH, 1, S)
        return F.linear(torch.bmm(scores.softmax(-1), values).view(x.shape), *self.out)

    def feed_forward(self, x: Tensor) -> Tensor:
        return F.linear(self.activation(F.linear(x, *self.up)), *self.down)


class _norm:
    """A layer norm with its weights looked up; nothing where there is none."""

    def __init__(self, norm: nn.Module) -> None:
        self.given = (
            (norm.normalized_shape, norm.weight, norm.bias, norm.eps) if isinstance(norm, nn.LayerNorm) else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.given) if self.given else x
