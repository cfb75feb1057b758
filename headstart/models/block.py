"""One layer of a transformer: attention and a feed-forward network.

Shapes: B examples, T tokens, S tokens that can be seen (T, or more with a cache), D width, H heads, K = D // H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.models.base import Cache
from headstart.models.dropout import Dropout, attention
from headstart.models.gelu import TanhGELU
from headstart.models.products import Linear
from headstart.shapes import TransformerConfig


@dataclass(frozen=True)
class AttentionMask:
    """Where a query may look: wherever `allowed` (broadcast to (B, H, T, S)) is True, and if `causal` not ahead."""

    allowed: Tensor | None = None
    causal: bool = False

    def tensor(self, queries: int, keys: int) -> Tensor:
        if self.allowed is not None:
            return self.allowed
        return causal_mask(queries, keys) if self.causal else torch.ones(queries, keys, dtype=torch.bool)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)

    def forward(
        self, x: Tensor, attention_mask: AttentionMask, cache: Cache | None = None, layer: int = 0, look: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        batch, new, width = x.shape
        qkv = self.qkv(x).view(batch, new, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)  # (3, B, H, T, K)
        if cache is None:
            q, k, v = qkv.unbind(0)
        else:
            held, stop = cache.layers[layer], cache.length + new
            held[..., cache.length : stop, :] = qkv[1:]
            q, (k, v) = qkv[0], held[..., :stop, :].unbind(0)  # (B, H, T, K) and (B, H, S, K)
        weights = None
        if look:  # the same numbers the slow way, because the fused kernel keeps no weights
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5  # (B, H, T, S)
            weights = scores.masked_fill(~attention_mask.tensor(*scores.shape[-2:]).to(x.device), -math.inf).softmax(-1)
            y = weights @ v  # (B, H, T, K)
        else:
            drop = self.dropout if self.training else 0.0
            y = attention(q, k, v, attention_mask.allowed, drop, attention_mask.causal)
        return self.out(y.transpose(1, 2).flatten(2)), weights  # (B, T, D)


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what came in."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.pre_norm = cfg.norm == "pre"
        self.attention = Attention(cfg.width, cfg.heads, cfg.dropout)
        self.attention_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps)
        self.up = Linear(cfg.width, cfg.ff)
        self.activation = activation(cfg.activation)
        self.inner_drop = Dropout(cfg.ff_dropout)
        self.down = Linear(cfg.ff, cfg.width)
        self.ff_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps)
        self.drop = Dropout(cfg.dropout)

    def forward(
        self, x: Tensor, attention_mask: AttentionMask, cache: Cache | None = None, layer: int = 0, look: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        if self.pre_norm:
            y, weights = self.attention(self.attention_norm(x), attention_mask, cache, layer, look)
            x = x + self.drop(y)
            return x + self.drop(self.feed_forward(self.ff_norm(x))), weights
        y, weights = self.attention(x, attention_mask, cache, layer, look)
        x = self.attention_norm(x + self.drop(y))
        return self.ff_norm(x + self.drop(self.feed_forward(x))), weights

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(self.inner_drop(self.activation(self.up(x))))


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """True where a position may look: at itself and at what stands before it.

    >>> causal_mask(3, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def activation(name: str) -> nn.Module:
    return {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": TanhGELU()}[name]
