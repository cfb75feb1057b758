"""Encoder and decoder: the interface that decoding and training need, and the transformer that has it.

What was read of the source and written of the target is a State: tensors by name, texts in their first dimension, so
that a beam search can copy and drop texts without knowing the model. A step leaves the state it was given as it was.

Shapes: B examples, S source tokens, T target tokens, D hidden size, H heads, K = D // H, V target vocabulary.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Cache
from headstart.models.block import AttentionMask, Block
from headstart.models.dropout import Dropout, attention
from headstart.models.loss import chunked_cross_entropy
from headstart.models.products import Linear
from headstart.models.transformer import Transformer, sinusoids
from headstart.shapes import IGNORE, Seq2SeqConfig, TransformerConfig

State = dict[str, Tensor]


@dataclass
class Maps:
    """Attention weights, one tensor per layer, filled while a model looks."""

    encoder: list[Tensor] = field(default_factory=list)  # (B, H, S, S)
    decoder: list[Tensor] = field(default_factory=list)  # (B, H, T, T)
    cross: list[Tensor] = field(default_factory=list)  # (B, H, T, S)


class Seq2Seq(nn.Module, ABC):
    encoder: nn.Module
    head: nn.Linear  # a score for every entry of the target vocabulary

    @abstractmethod
    def encode(self, ids: Tensor, mask: Tensor, look: Maps | None = None) -> State:
        """What the decoder begins from, of (B, S) source ids under their mask, True = real."""

    @abstractmethod
    def decode(self, ids: Tensor, state: State, look: Maps | None = None) -> Tensor:
        """What the head reads after each token of a target that is given whole, (B, T) -> (B, T, D)."""

    @abstractmethod
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B, V) of the token after the next tokens (B, T), and the state behind these."""

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) after each token of a target that is given."""
        return self.head(self.decode(target, self.encode(source, mask)))

    def loss(self, source: Tensor, mask: Tensor, given: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """The loss summed over the target tokens, and how many they are; `given` is the target one token earlier."""
        counted = target != IGNORE
        rows = self.decode(given, self.encode(source, mask))[counted]  # (N, D)
        return chunked_cross_entropy(rows, self.head.weight, self.head.bias, target[counted]), float(len(rows))

    def look(self, source: Tensor, mask: Tensor, target: Tensor) -> Maps:
        """Every attention weight while `target` is written."""
        maps = Maps()
        self.decode(target, self.encode(source, mask, maps), maps)
        return maps


class CrossAttention(nn.Module):
    """Scaled dot-product attention from the target to the source."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def prepare(self, memory: Tensor) -> Tensor:
        """Keys and values of the encoded source, (B, 2, H, S, K): made once, read at every step."""
        return self.key_value(memory).unflatten(-1, (2, self.heads, -1)).permute(0, 2, 3, 1, 4)

    def forward(self, x: Tensor, prepared: Tensor, mask: Tensor, look: bool) -> tuple[Tensor, Tensor | None]:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        k, v = prepared.unbind(1)  # (B, H, S, K)
        allowed, weights = mask[:, None, None, :], None
        if look:  # the same numbers the slow way, because the fused kernel keeps no weights
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5  # (B, H, T, S)
            weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
            y = weights @ v
        else:
            y = attention(q, k, v, allowed, self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).flatten(2)), weights  # (B, T, D)


class DecoderBlock(Block):
    """A block with a look at the source between its attention and its feed-forward layer; norms come first."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__(cfg)
        self.cross = CrossAttention(cfg.width, cfg.heads, cfg.dropout)
        self.cross_norm = nn.LayerNorm(cfg.width, eps=cfg.norm_eps)

    def write(
        self,
        x: Tensor,
        attention_mask: AttentionMask,
        source: Tensor,
        mask: Tensor,
        cache: Cache | None,
        layer: int,
        look: Maps | None,
    ) -> Tensor:
        y, over_target = self.attention(self.attention_norm(x), attention_mask, cache, layer, look is not None)
        x = x + self.drop(y)
        y, over_source = self.cross(self.cross_norm(x), source, mask, look is not None)
        x = x + self.drop(y)
        if look is not None:
            look.decoder.append(over_target)
            look.cross.append(over_source)
        return x + self.drop(self.feed_forward(self.ff_norm(x)))


class TransformerSeq2Seq(Seq2Seq):
    """Attention alone reads and writes: a bidirectional encoder, and a decoder that sees what it has written.

    Without positions and with one head it is the attention-only model: its encoder takes the source for a bag of tokens.
    """

    positions: Tensor

    def __init__(self, cfg: Seq2SeqConfig) -> None:
        super().__init__()
        shape = TransformerConfig(
            preset="classic", vocab=cfg.vocab, context=cfg.context, layers=cfg.layers, heads=cfg.heads,
            width=cfg.hidden, ff=cfg.ff, dropout=cfg.dropout, ff_dropout=cfg.dropout, causal=False,
            positions="sinusoidal" if cfg.positions else "none", norm="pre", norm_eps=1e-5, activation="relu",
            scale_embedding=True, tied=False, head_bias=True,
        )  # fmt: skip
        self.causal, self.scale, self.heads = cfg.causal, cfg.hidden**0.5, cfg.heads
        self.encoder = Transformer(shape)
        self.target = nn.Embedding(cfg.target_vocab, cfg.hidden)
        positions = sinusoids(cfg.context, cfg.hidden) if cfg.positions else torch.zeros(cfg.context, cfg.hidden)
        self.register_buffer("positions", positions, persistent=False)  # not weights, and in no file
        self.drop = Dropout(cfg.dropout)
        self.layers = nn.ModuleList(DecoderBlock(shape) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.hidden)
        self.head = Linear(cfg.hidden, cfg.target_vocab)
        for name, parameter in self.layers.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.uniform_(self.target.weight, -0.1, 0.1)

    def encode(self, ids: Tensor, mask: Tensor, look: Maps | None = None) -> State:
        states = self.encoder(ids, mask, look=look is not None)
        if look is not None:
            look.encoder.extend(states.attention)
        prepared = {f"source.{i}": block.cross.prepare(states.last) for i, block in enumerate(self.layers)}  # type: ignore[union-attr, operator]
        return {"mask": mask, **prepared}

    def decode(self, ids: Tensor, state: State, look: Maps | None = None) -> Tensor:
        return self._write(ids, state, None, AttentionMask(causal=self.causal), look)

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        new, names = ids.size(1), [f"written.{i}" for i in range(len(self.layers))]
        if names[0] in state:
            assert new == 1, "after the first step, tokens come one at a time"
            held = [F.pad(state[name], (0, 0, 0, 1)) for name in names]  # (B, 2, H, T, K), room for the new ones
        else:
            shape = (len(ids), 2, self.heads, new, self.head.in_features // self.heads)
            held = [self.target.weight.new_zeros(shape) for _ in names]
        cache = Cache([each.transpose(0, 1) for each in held], held[0].size(3) - new)
        hidden = self._write(ids, state, cache, AttentionMask(causal=self.causal and new > 1), None)
        return self.head(hidden[:, -1]), {**state, **dict(zip(names, held, strict=True))}

    def _write(
        self, ids: Tensor, state: State, cache: Cache | None, attention_mask: AttentionMask, look: Maps | None
    ) -> Tensor:
        first = cache.length if cache else 0
        x = self.drop(self.target(ids) * self.scale + self.positions[first : first + ids.size(1)])  # (B, T, D)
        for i, block in enumerate(self.layers):
            assert isinstance(block, DecoderBlock)
            x = block.write(x, attention_mask, state[f"source.{i}"], state["mask"], cache, i, look)
        return self.norm(x)
