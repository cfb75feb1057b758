"""A transformer over token ids: causal for language models, two-way for encoders.

Shapes: B examples, T tokens, S tokens that can be seen (T, or more with a cache), D width, H heads, K = D // H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Base, Cache, States
from headstart.models.gelu import TanhGELU
from headstart.models.next_token import NextToken
from headstart.shapes import TransformerConfig


@dataclass(frozen=True)
class Sight:
    """Where a query may look: wherever `allowed` (broadcast to (B, H, T, S)) is True, and under `square` not ahead."""

    allowed: Tensor | None = None
    square: bool = False

    def mask(self, queries: int, keys: int) -> Tensor:
        if self.allowed is not None:
            return self.allowed
        return square_mask(queries, keys) if self.square else torch.ones(queries, keys, dtype=torch.bool)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Tensor, sight: Sight, cache: Cache | None = None, layer: int = 0, look: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        batch, new, width = x.shape
        qkv = self.qkv(x).view(batch, new, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)  # (3, B, H, T, K)
        if cache is None:
            q, k, v = qkv.unbind(0)
        else:
            held, stop = cache.layers[layer], cache.length + new
            held[..., cache.length : stop, :] = qkv[1:]
            q, (k, v) = qkv[0], held[..., :stop, :].unbind(0)
        weights = None
        if look:  # the same numbers the slow way, because the fused kernel keeps no weights
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5  # (B, H, T, S)
            weights = scores.masked_fill(~sight.mask(*scores.shape[-2:]).to(x.device), -math.inf).softmax(-1)
            y = weights @ v
        else:
            drop = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, sight.allowed, drop, is_causal=sight.square)
        return self.out(y.transpose(1, 2).flatten(2)), weights


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what came in."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.pre_norm = cfg.norm == "pre"
        self.attention = Attention(cfg.width, cfg.heads, cfg.dropout)
        self.attention_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps)
        self.up = nn.Linear(cfg.width, cfg.ff)
        self.activation = activation(cfg.activation)
        self.inner_drop = nn.Dropout(cfg.ff_dropout)
        self.down = nn.Linear(cfg.ff, cfg.width)
        self.ff_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps)
        self.drop = nn.Dropout(cfg.dropout)

    def forward(
        self, x: Tensor, sight: Sight, cache: Cache | None = None, layer: int = 0, look: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        if self.pre_norm:
            y, weights = self.attention(self.attention_norm(x), sight, cache, layer, look)
            x = x + self.drop(y)
            return x + self.drop(self.feed_forward(self.ff_norm(x))), weights
        y, weights = self.attention(x, sight, cache, layer, look)
        x = self.attention_norm(x + self.drop(y))
        return self.ff_norm(x + self.drop(self.feed_forward(x))), weights

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(self.inner_drop(self.activation(self.up(x))))


class Transformer(Base):
    waves: Tensor

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.width, self.max_len, self.causal = cfg.width, cfg.context, cfg.causal
        self.scale = cfg.width**0.5 if cfg.scale_embedding else 1.0
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.positions = nn.Embedding(cfg.context, cfg.width) if cfg.positions == "learned" else None
        self.sinusoidal = cfg.positions == "sinusoidal"
        waves = sinusoids(cfg.context, cfg.width) if self.sinusoidal else torch.empty(0)
        self.register_buffer("waves", waves, persistent=False)  # not weights, and in no file
        self.embedding_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps) if cfg.embedding_norm else nn.Identity()
        self.drop = nn.Dropout(cfg.dropout)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps) if cfg.norm == "pre" else nn.Identity()
        self.heads = cfg.heads
        self._initialize(cfg)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.layers

    @property
    def embedding(self) -> nn.Embedding:
        return self.tokens

    def forward(self, ids: Tensor, mask: Tensor, look: bool = False) -> States:
        # Padding stands on the right, so under the square mask no real token can see it.
        sight = Sight(square=True) if self.causal else Sight(allowed=mask[:, None, None, :])
        return self._run(self._embed(ids, 0), sight, None, look)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)

    def new_cache(self, batch: int) -> Cache:
        assert self.causal, "a two-way base reads the whole text at once"
        shape = (2, batch, self.heads, self.max_len, self.width // self.heads)
        return Cache([self.tokens.weight.new_zeros(shape) for _ in self.layers])

    def step(self, ids: Tensor, cache: Cache) -> States:
        new, old = ids.size(1), cache.length
        assert old + new <= self.max_len, f"{old + new} tokens do not fit into a context of {self.max_len}"
        if new == 1 and not self.training:
            if cache.next is None:
                cache.next = NextToken(self, cache)
            return States(cache.next(ids[:, 0]).unsqueeze(1))
        # A single new token may look at everything before it.
        sight = Sight(allowed=square_mask(new, old + new, ids.device)) if old and new > 1 else Sight(square=new > 1)
        states = self._run(self._embed(ids, old), sight, cache, look=False)
        cache.length += new
        return states

    @property
    def position_codes(self) -> Tensor | None:
        """What is added at each position, (context, D); None where positions are not told apart."""
        if self.positions is not None:
            return self.positions.weight
        return self.waves if self.sinusoidal else None

    def _embed(self, ids: Tensor, first: int) -> Tensor:
        x = self.tokens(ids) * self.scale
        if self.position_codes is not None:
            x = x + self.position_codes[first : first + ids.size(1)]
        return self.drop(self.embedding_norm(x))

    def _run(self, x: Tensor, sight: Sight, cache: Cache | None, look: bool) -> States:
        layers, attention = [x], []
        for i, block in enumerate(self.layers):
            x, weights = block(x, sight, cache, i, look)
            if look:
                layers.append(x)
                attention.append(weights)
        return States(self.finish(x), tuple(layers) if look else (), tuple(attention))

    def _initialize(self, cfg: TransformerConfig) -> None:
        """classic starts as PyTorch's encoder does; gpt and bert as their papers say."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
            elif cfg.preset == "classic":
                if name == "tokens.weight":
                    nn.init.uniform_(parameter, -0.1, 0.1)
                else:
                    nn.init.xavier_uniform_(parameter)
            else:
                # GPT-2 shrinks what is added to the residual stream by its depth.
                residual = cfg.norm == "pre" and name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * cfg.layers) ** 0.5 if residual else 0.02)


def square_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """True where a position may look: at itself and at what stands before it.

    >>> square_mask(3, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def sinusoids(length: int, width: int) -> Tensor:
    """Position codes (length, width) of "Attention is all you need": sines and cosines of falling frequency."""
    position = torch.arange(length)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack([torch.sin(position * frequency), torch.cos(position * frequency)], dim=-1).flatten(1)


def activation(name: str) -> nn.Module:
    return {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": TanhGELU()}[name]
