"""Predict tokens: the next one (causal) or the hidden ones (masked)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.config import PretrainConfig
from headstart.errors import ConfigError, DataError
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.models.heads import Model
from headstart.tasks.metrics import LanguageScores, language_scores, prefix_entropy, summed
from headstart.text.batch import (
    Batch,
    Batches,
    Collate,
    Ids,
    Numbers,
    PackedBatches,
    Rng,
    RowBatches,
    blocks,
    each,
    hidden_tokens,
    in_order,
    next_token,
    windows,
)
from headstart.text.stretches import Texts, stretches_of
from headstart.text.token_store import token_rows
from headstart.text.tokenizer import Tokenizer, TokenRows

COUNTED_TOKENS = 1_000_000  # up to this many the entropy of a text itself is counted


class Language:
    def __init__(self, text_bytes: int | None) -> None:
        """`text_bytes` is the size of the validation text, None where bits per byte would mean nothing."""
        self.text_bytes = text_bytes

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        return model.loss(batch.ids, batch.mask, batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[Batch]) -> LanguageScores:
        return language_scores(*summed(each(partial(self.loss, model), batches)), self.text_bytes)

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        return (-scores["loss"],)


class LanguageText:
    """Texts as rows of tokens, and the batches that the objective makes of them.

    Documents are packed: one stream, cut into blocks. Lines and sentences are padded: one row each.
    """

    def __init__(self, texts: Texts, tokenizer: Tokenizer, cfg: PretrainConfig) -> None:
        self.cfg, self.tokenizer, self.texts = cfg, tokenizer, texts
        self.causal = cfg.objective == "causal"
        self.packed = cfg.data.unit == "document"
        # A causal block has one token more than the model reads: the last is only predicted.
        self.size = cfg.model.context + self.causal
        self.rows = token_rows(texts, tokenizer, cfg.data.boundaries)
        if cfg.objective == "masked" and tokenizer.mask is None:
            raise ConfigError("This tokenizer has no mask token, so the objective 'masked' cannot use it.")

    def batches(self) -> Batches[Batch]:
        """Training batches, for ever."""
        cfg, have = self.cfg.train, len(self.rows.ids)
        if not self.packed:
            rows = self._teachable(windows(self.rows, self.size, int(self.causal)))
            return RowBatches(rows.lengths, cfg.batch_size, self._picker(rows), cfg.seed)
        if have < self.size:
            raise DataError(
                f"The training text has {have} tokens; the context is {self.cfg.model.context}, so {self.size} are "
                f"needed. Use --context {max(2, have // 2)}, or more text.",
                "DATA_SMALL",
            )
        return PackedBatches(self.rows.ids, self.size, int(self.causal), cfg.batch_size, self._collate, cfg.seed)

    def measured(self, most: int | None = None) -> Sequence[Batch]:
        """Batches over the text once, the same at every call: every token predicted, or the same ones hidden."""
        rows, overlap = self.beginning(most), int(self.causal)
        rows = TokenRows.of(blocks(rows.ids, self.size, overlap)) if self.packed else windows(rows, self.size, overlap)
        rows = self._teachable(rows)
        return in_order(rows.lengths, self.cfg.train.batch_size, self._picker(rows))

    def beginning(self, most: int | None) -> TokenRows:
        """The first rows with about `most` tokens."""
        if most is None or len(self.rows.ids) <= most:
            return self.rows
        whole = int((self.rows.starts <= most).sum()) - 1
        return TokenRows.of([self.rows[i] for i in range(whole)] or [self.rows.ids[:most]])

    def entropy(self) -> float | None:
        """The least loss that any causal model of these rows can have; None where it is not worth counting."""
        if not self.causal or self.packed or len(self.rows.ids) > COUNTED_TOKENS:
            return None
        return prefix_entropy(self.rows[i].tolist() for i in range(len(self.rows)))

    def facts(self) -> dict[str, int]:
        return {"rows": len(self.rows), "tokens": len(self.rows.ids), "unknown": self.tokenizer.unknown(self.rows)}

    def _collate(self, rows: Sequence[Ids], rng: Rng) -> Batch:
        if self.causal:
            return next_token(rows, self.tokenizer.pad)
        return hidden_tokens(rows, self.tokenizer, self.cfg.mask_rate, rng)

    def _picker(self, rows: TokenRows) -> Collate[Batch]:
        return lambda part, rng: self._collate([rows[int(i)] for i in part], rng)

    def _teachable(self, rows: TokenRows) -> TokenRows:
        """Rows in which there is something to predict: a token after another, or one that can be hidden."""
        if self.causal:
            enough = rows.lengths > 1
        else:
            enough = self._plain_before(rows, rows.ends) > self._plain_before(rows, rows.begins)
        if not enough.any():
            raise DataError("No text has two tokens, so there is nothing to predict.", "DATA_SMALL")
        return rows if enough.all() else TokenRows(rows.ids, rows.begins[enough], rows.ends[enough])

    def _plain_before(self, rows: TokenRows, places: Numbers) -> Numbers:
        """How many tokens that are not special stand before each of some places, in ascending order."""
        counts, before = np.zeros(len(places), np.int64), 0
        for at, ids in rows.stretches():
            plain = np.concatenate([[0], np.cumsum(~np.isin(ids, (self.tokenizer.start, self.tokenizer.end)))])
            here = slice(*np.searchsorted(places, [at, at + len(ids) + 1]))  # a stretch ends where the next begins
            counts[here] = before + plain[places[here] - at]
            before += int(plain[-1])
        return counts

    @cached_property
    def bytes(self) -> int | None:
        """The size of the texts, or None where some of it is never predicted and bits per byte would flatter."""
        lossless = self.tokenizer.lossless and not self.tokenizer.unknown(self.rows)
        if not (lossless and self.causal and self.cfg.data.boundaries):
            return None
        return sum(len(stretch.encode()) for text in self.texts for stretch in stretches_of(text))


def continuation(
    prompt: str, model: Model, tokenizer: Tokenizer, boundaries: bool, tokens: int, how: Sampling, device: str = "cpu"
) -> str:
    """`prompt` with up to `tokens` more tokens after it."""
    ids = tokenizer.encode([prompt], boundaries, end=False)[0].tolist() or [tokenizer.start]
    start = torch.tensor([ids], device=device)
    chosen = generate(LanguageStep(model), start, tokens, tokenizer.end, how, never=tokenizer.suppressed)
    return tokenizer.decode([*ids, *(choice.id for choice in chosen)])
