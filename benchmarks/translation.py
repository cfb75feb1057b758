"""Training an encoder and a decoder by characters: the GRU with additive attention against a Python loop over the
written-out cell, and the transformer against torch's own nn.Transformer; an epoch over the same batches each.

python -m benchmarks.translation [--samples 5]
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import compare
from headstart.bases.translator import build_seq2seq
from headstart.config import TokenizerConfig
from headstart.hub.pack_contents import pig_latin
from headstart.models.recurrent import Recurrent
from headstart.models.seq2seq import Seq2Seq, TransformerSeq2Seq
from headstart.shapes import Seq2SeqConfig
from headstart.tasks.translate import PairBatch, TranslateText
from headstart.text.pairs import Pair
from headstart.text.tokenizer import Tokenizer

WORDS, BATCH, HIDDEN = 2048, 64, 64


def batches() -> tuple[list[PairBatch], int, int]:
    """An epoch of made-up words and their Pig Latin, lengths as of English words."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(7.5, 2.5, WORDS), 2, 16).astype(int)
    words = ["".join(rng.choice(list("etaoinshrdlu"), n)) for n in lengths]
    pairs = [Pair(word, pig_latin(word)) for word in words]
    source, target = (
        Tokenizer.train([getattr(p, side) for p in pairs], TokenizerConfig(kind="char"))
        for side in ("source", "target")
    )
    made = TranslateText(pairs, source, target, 64).batches(BATCH, 0)
    return [made(i) for i in range(made.per_epoch)], source.size, target.size


class WrittenLoop(nn.Module):
    """The same model one target token at a time, as a course lab writes it: cell by its equations, attention at each."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, mask: Tensor, given: Tensor) -> Tensor:
        model = self.model
        attention, join = model.attention, model.join
        assert attention is not None
        assert join is not None
        states = []
        x, h = model.source(source), torch.zeros(len(source), HIDDEN)
        for t in range(source.size(1)):
            h = torch.where(mask[:, t, None], self.cell(model.encoder, x[:, t], h), h)
            states.append(h)
        values = torch.stack(states, dim=1)
        y, logits = model.target(given), []
        for t in range(given.size(1)):
            h = self.cell(model.decoder, y[:, t], h)
            query = attention.of_query(h).unsqueeze(1)
            scores = attention.score(torch.relu(query + attention.of_key(values))).squeeze(-1)
            weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1), values).squeeze(1)
            logits.append(model.head(torch.tanh(join(torch.cat([h, context], dim=-1)))))
        return torch.stack(logits, dim=1)

    def cell(self, gru: Any, x: Tensor, h: Tensor) -> Tensor:
        (w_r, w_z, w_n), (b_r, b_z, b_n) = gru.weight_ih_l0.chunk(3), gru.bias_ih_l0.chunk(3)
        (u_r, u_z, u_n), (c_r, c_z, c_n) = gru.weight_hh_l0.chunk(3), gru.bias_hh_l0.chunk(3)
        r = torch.sigmoid(F.linear(x, w_r, b_r) + F.linear(h, u_r, c_r))
        z = torch.sigmoid(F.linear(x, w_z, b_z) + F.linear(h, u_z, c_z))
        n = torch.tanh(F.linear(x, w_n, b_n) + r * F.linear(h, u_n, c_n))
        return (1 - z) * n + z * h


class TorchTransformer(nn.Module):
    """nn.Transformer of the same shape, with the embeddings and the head of ours."""

    positions: Tensor

    def __init__(self, model: TransformerSeq2Seq, cfg: Seq2SeqConfig) -> None:
        super().__init__()
        self.scale, self.positions = model.scale, model.positions
        self.source: nn.Embedding = model.encoder.get_submodule("tokens")  # type: ignore[assignment]
        self.target, self.head = model.target, model.head
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it regrets that it cannot use nested tensors
            self.body = nn.Transformer(
                cfg.hidden, cfg.heads, cfg.layers, cfg.layers, cfg.ff, cfg.dropout, batch_first=True, norm_first=True
            )

    def forward(self, source: Tensor, mask: Tensor, given: Tensor) -> Tensor:
        x = self.source(source) * self.scale + self.positions[: source.size(1)]
        y = self.target(given) * self.scale + self.positions[: given.size(1)]
        square = nn.Transformer.generate_square_subsequent_mask(given.size(1), dtype=torch.bool)
        hidden = self.body(
            x, y, tgt_mask=square, src_key_padding_mask=~mask, memory_key_padding_mask=~mask, tgt_is_causal=True
        )
        return self.head(hidden)


def our_epoch(model: Seq2Seq, epoch: list[PairBatch]) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    parameters, last = list(model.parameters()), 0.0
    for b in epoch:
        total, count = model.loss(b.source, b.mask, b.given, b.target)
        total.backward()
        torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1 / count)
        optimizer.step()
        optimizer.zero_grad()
        last = float(total.detach()) / count
    return last


def their_epoch(model: nn.Module, epoch: list[PairBatch]) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    last = 0.0
    for b in epoch:
        loss = F.cross_entropy(model(b.source, b.mask, b.given).flatten(0, 1), b.target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        last = float(loss.detach())
    return last


def rows(samples: int) -> list[str]:
    epoch, vocab, target_vocab = batches()
    shape = {"vocab": vocab, "target_vocab": target_vocab, "hidden": HIDDEN, "dropout": 0.0}
    made = []
    for kind, peer in (("gru-additive", "a Python loop over the written cell"), ("transformer", "nn.Transformer")):
        cfg = Seq2SeqConfig.model_validate({"kind": kind, **shape})
        torch.manual_seed(0)
        ours = build_seq2seq(cfg)
        theirs: nn.Module
        if isinstance(ours, Recurrent):
            twin = build_seq2seq(cfg)
            twin.load_state_dict(ours.state_dict())
            assert isinstance(twin, Recurrent)
            theirs = WrittenLoop(twin)
            losses = [our_epoch(ours, epoch), their_epoch(theirs, epoch)]  # a whole epoch from the same weights
            assert abs(losses[0] - losses[1]) < 1e-3, losses
        else:
            assert isinstance(ours, TransformerSeq2Seq)
            theirs = TorchTransformer(ours, cfg)  # equal on equal weights: tests/models/test_seq2seq.py
        c = compare(lambda: our_epoch(ours, epoch), lambda: their_epoch(theirs, epoch), samples)  # noqa: B023
        made.append(
            f"| {kind}, hidden 64, an epoch of {WORDS:,} words | {peer} | {WORDS / c.ours:,.0f} | {WORDS / c.theirs:,.0f} | {c.cell()} | |"
        )
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    print("\n".join(rows(parser.parse_args().samples)))  # noqa: T201
