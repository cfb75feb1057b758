"""Recurrent encoder and decoder: GRU cells written out or fused, LSTM, and additive attention over the source.

The attention reads the decoder's state after the cell, not before it, so under teacher forcing the decoder runs over
the whole target at once, and so does the attention: no Python loop, unless the cell is the written-out one.

Shapes: B examples, S source tokens, T target tokens, D hidden size, L layers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headstart.models.dropout import Dropout
from headstart.models.products import Linear
from headstart.models.seq2seq import Maps, Seq2Seq, State
from headstart.shapes import Seq2SeqConfig

MEMORY = ("hidden", "cell")  # of an LSTM; a GRU has only the first


class GRUCell(nn.Module):
    """One step of a gated recurrent unit, from its equations (Cho et al., 2014).

    The reset gate acts on the state after its matrix, as in nn.GRUCell, or before it, as in the paper.
    """

    def __init__(self, inputs: int, hidden: int, reset_before: bool = False) -> None:
        super().__init__()
        self.reset_before = reset_before
        self.of_input = Linear(inputs, 3 * hidden)  # reset, update, candidate, in this order
        self.of_state = Linear(hidden, 3 * hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)  # as nn.GRUCell begins

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """The next state (B, D) from an input (B, inputs) and the state before."""
        x_r, x_z, x_n = self.of_input(x).chunk(3, dim=-1)  # (B, D) each
        if self.reset_before:
            w_r, w_z, w_n = self.of_state.weight.chunk(3)
            b_r, b_z, b_n = self.of_state.bias.chunk(3)
            r = torch.sigmoid(x_r + F.linear(h, w_r, b_r))
            z = torch.sigmoid(x_z + F.linear(h, w_z, b_z))
            n = torch.tanh(x_n + F.linear(r * h, w_n, b_n))
        else:
            h_r, h_z, h_n = self.of_state(h).chunk(3, dim=-1)
            r = torch.sigmoid(x_r + h_r)
            z = torch.sigmoid(x_z + h_z)
            n = torch.tanh(x_n + r * h_n)
        return (1 - z) * n + z * h


class WrittenGRU(nn.Module):
    """Layers of written-out cells in a Python loop: what nn.GRU does, for reading and for comparison."""

    def __init__(self, width: int, layers: int, dropout: float, reset_before: bool) -> None:
        super().__init__()
        self.cells = nn.ModuleList(GRUCell(width, width, reset_before) for _ in range(layers))
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor, h: Tensor | None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All states of the last layer (B, T, D) and the last of every layer (L, B, D); padding changes no state."""
        h = x.new_zeros(len(self.cells), len(x), x.size(2)) if h is None else h
        last = []
        for i, (cell, state) in enumerate(zip(self.cells, h, strict=True)):
            states = []
            for t in range(x.size(1)):
                new = cell(x[:, t], state)
                state = new if mask is None else torch.where(mask[:, t, None], new, state)
                states.append(state)
            x = torch.stack(states, dim=1)  # (B, T, D)
            x = self.drop(x) if i + 1 < len(self.cells) else x
            last.append(state)
        return x, torch.stack(last)  # (B, T, D), (L, B, D)


class AdditiveAttention(nn.Module):
    """Each key is scored by a small network of query and key (Bahdanau et al., 2015): two layers, ReLU between.

    The first layer is a sum of a part for the query and a part for the key, so keys go through theirs once.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_query = Linear(width, width, bias=False)
        self.of_key = Linear(width, width)
        self.score = Linear(width, 1, bias=False)  # a bias would move all scores alike

    def forward(self, query: Tensor, prepared: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (B, T, D) and weights (B, T, S) from queries (B, T, D) and keys that went through `of_key`."""
        hidden = torch.relu(self.of_query(query).unsqueeze(2) + prepared.unsqueeze(1))  # (B, T, S, D)
        scores = self.score(hidden).squeeze(-1)  # (B, T, S)
        weights = scores.masked_fill(~mask.unsqueeze(1), -math.inf).softmax(-1)
        return weights @ values, weights


class Recurrent(Seq2Seq):
    """A GRU or LSTM reads the source; another, beginning with its last state, writes the target."""

    def __init__(self, cfg: Seq2SeqConfig) -> None:
        super().__init__()
        self.two_way = cfg.two_way
        self.source = nn.Embedding(cfg.vocab, cfg.hidden)
        self.target = nn.Embedding(cfg.target_vocab, cfg.hidden)
        self.encoder = _layers(cfg, two_way=cfg.two_way)
        self.decoder = _layers(cfg)
        self.attention = AdditiveAttention(cfg.hidden) if cfg.additive else None
        self.join = Linear(2 * cfg.hidden, cfg.hidden) if cfg.additive else None
        self.drop = Dropout(cfg.dropout)
        self.head = Linear(cfg.hidden, cfg.target_vocab)

    def encode(self, ids: Tensor, mask: Tensor, look: Maps | None = None) -> State:
        x = self.drop(self.source(ids))  # (B, S, D)
        if isinstance(self.encoder, WrittenGRU):
            states, last = self.encoder(x, None, mask)
        else:
            packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            out, last = self.encoder(packed)
            states, _ = pad_packed_sequence(out, batch_first=True, total_length=ids.size(1))
        state = {name: self._by_text(h) for name, h in zip(MEMORY, _tuple(last), strict=False)}
        if self.attention is not None:
            state |= {"values": self.drop(states), "mask": mask}
            state["keys"] = self.attention.of_key(state["values"])
        return state

    def decode(self, ids: Tensor, state: State, look: Maps | None = None) -> Tensor:
        return self._write(ids, state, look)[0]

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        states, last = self._write(ids, state, None)
        return self.head(states[:, -1]), {**state, **last}

    def _write(self, ids: Tensor, state: State, look: Maps | None) -> tuple[Tensor, State]:
        before = [state[name].transpose(0, 1).contiguous() for name in MEMORY if name in state]  # (L, B, D)
        states, last = self.decoder(self.drop(self.target(ids)), tuple(before) if len(before) > 1 else before[0])
        behind = {name: h.transpose(0, 1) for name, h in zip(MEMORY, _tuple(last), strict=False)}
        if self.attention is not None and self.join is not None:
            context, weights = self.attention(states, state["keys"], state["values"], state["mask"])
            states = torch.tanh(self.join(torch.cat([states, context], dim=-1)))
            if look is not None:
                look.cross.append(weights.unsqueeze(1))  # (B, 1, T, S)
        return self.drop(states), behind

    def _by_text(self, h: Tensor) -> Tensor:
        """The last states by text, (B, L, D); those of the two directions of a layer side by side."""
        if self.two_way:
            h = h.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)  # (2L, B, D/2) -> (L, B, D)
        return h.transpose(0, 1)


def _layers(cfg: Seq2SeqConfig, two_way: bool = False) -> nn.Module:
    if cfg.cell != "fused":
        return WrittenGRU(cfg.hidden, cfg.layers, cfg.dropout, cfg.cell == "reset-before")
    kind = nn.LSTM if cfg.kind.startswith("lstm") else nn.GRU
    dropout = cfg.dropout if cfg.layers > 1 else 0.0  # torch's stands between layers only
    width = cfg.hidden // 2 if two_way else cfg.hidden  # so that both directions together are as wide as one
    return kind(cfg.hidden, width, cfg.layers, batch_first=True, dropout=dropout, bidirectional=two_way)


def _tuple(last: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return last if isinstance(last, tuple) else (last,)
