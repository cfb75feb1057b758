"""A transformer over token ids: causal for language models, bidirectional for encoders.

Shapes: B examples, T tokens, S tokens that can be seen (T, or more with a cache), D width, H heads, K = D // H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headstart.models.base import Base, Cache, States
from headstart.models.block import AttentionMask, Block, causal_mask
from headstart.models.dropout import Dropout
from headstart.models.next_token import NextToken
from headstart.models.products import MANY
from headstart.models.unpadded import read_unpadded
from headstart.shapes import TransformerConfig


class Transformer(Base):
    sinusoidal_positions: Tensor
    skips_padding = True

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.width, self.max_len, self.causal = cfg.width, cfg.context, cfg.causal
        self.scale = cfg.width**0.5 if cfg.scale_embedding else 1.0
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.positions = nn.Embedding(cfg.context, cfg.width) if cfg.positions == "learned" else None
        self.sinusoidal = cfg.positions == "sinusoidal"
        fixed = sinusoids(cfg.context, cfg.width) if self.sinusoidal else torch.empty(0)
        self.register_buffer("sinusoidal_positions", fixed, persistent=False)  # not weights, and in no file
        self.embedding_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps) if cfg.embedding_norm else nn.Identity()
        self.drop = Dropout(cfg.dropout)
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
        # Padding stands on the right, so under the causal mask no real token can see it.
        attention_mask = AttentionMask(causal=True) if self.causal else AttentionMask(allowed=mask[:, None, None, :])
        return self._run(self._embed(ids, 0), attention_mask, None, look)

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        if self.training or (ids.numel() < MANY and bool(mask.all())):
            return self(ids, mask).last
        return self.finish(read_unpadded(self._embed(ids, 0), mask, self.layers, self.causal))  # type: ignore[arg-type]

    def finish(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)

    def new_cache(self, batch: int) -> Cache:
        assert self.causal, "a bidirectional base reads the whole text at once"
        shape = (2, batch, self.heads, self.max_len, self.width // self.heads)
        return Cache([self.tokens.weight.new_zeros(shape) for _ in self.layers])

    def step(self, ids: Tensor, cache: Cache) -> States:
        new, old = ids.size(1), cache.length
        assert old + new <= self.max_len, f"{old + new} tokens do not fit into a context of {self.max_len}"
        if new == 1 and not self.training:
            if cache.next is None:
                around = (self.scale, self.embedding_norm, self.norm)
                cache.next = NextToken(self.tokens.weight, self.position_codes, *around, self.layers, cache)  # type: ignore[arg-type]
            return States(cache.next(ids[:, 0]).unsqueeze(1))
        # A single new token may look at everything before it.
        attention_mask = (
            AttentionMask(allowed=causal_mask(new, old + new, ids.device))
            if old and new > 1
            else AttentionMask(causal=new > 1)
        )
        states = self._run(self._embed(ids, old), attention_mask, cache, look=False)
        cache.length += new
        return states

    @property
    def position_codes(self) -> Tensor | None:
        """What is added at each position, (context, D); None where positions are not distinguished."""
        if self.positions is not None:
            return self.positions.weight
        return self.sinusoidal_positions if self.sinusoidal else None

    def _embed(self, ids: Tensor, first: int) -> Tensor:
        x = self.tokens(ids) * self.scale
        if self.position_codes is not None:
            x = x + self.position_codes[first : first + ids.size(1)]
        return self.drop(self.embedding_norm(x))

    def _run(self, x: Tensor, attention_mask: AttentionMask, cache: Cache | None, look: bool) -> States:
        layers, attention = [x], []
        for i, block in enumerate(self.layers):
            x, weights = block(x, attention_mask, cache, i, look)
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


def sinusoids(length: int, width: int) -> Tensor:
    """Position codes (length, width) of "Attention is all you need": sines and cosines of falling frequency."""
    position = torch.arange(length)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack([torch.sin(position * frequency), torch.cos(position * frequency)], dim=-1).flatten(1)
