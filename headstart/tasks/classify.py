"""Predictions of a target from the embedding of each text: rows, batches, evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.config import Long
from headstart.models.base import Base
from headstart.models.heads import ClassHead, Model, Pooling
from headstart.prompts import Prompt
from headstart.targets.target import Scores, Target
from headstart.text.batch import (
    Batch,
    Batches,
    Numbers,
    Rng,
    RowBatches,
    blocks,
    by_length,
    each,
    in_order,
    little_padded,
    pad,
)
from headstart.text.prompted import prompt_tokens, prompted_rows
from headstart.text.read import Example
from headstart.text.tokenizer import Tokenizer, TokenRows, rows_to_read

EVALUATED_AT_ONCE = 64  # rows


@dataclass(frozen=True)
class PooledBatch:
    """Texts that a frozen base has read already: what the head needs of them."""

    features: Tensor  # (B, D)
    target: Tensor  # (B,)
    tokens: int

    def to(self, device: str) -> PooledBatch:
        return PooledBatch(self.features.to(device), self.target.to(device), self.tokens)


@dataclass(frozen=True)
class WindowBatch:
    """Texts of which some are longer than the base can read at once: W windows, and the text that each is part of."""

    ids: Tensor  # (W, T)
    mask: Tensor  # (W, T)
    owner: Tensor  # (W,), numbers of texts in the batch, ascending
    target: Tensor  # (B,)

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())

    def to(self, device: str) -> WindowBatch:
        return WindowBatch(*(t.to(device) for t in (self.ids, self.mask, self.owner, self.target)))


ClassBatch = Batch | PooledBatch | WindowBatch


class Classify:
    """Any target that a head reads from the embedding of a text; `score` is what keeps the best weights."""

    def __init__(self, target: Target, score: str) -> None:
        self.target, self.score = target, score

    def loss(self, model: Model, batch: ClassBatch) -> tuple[Tensor, float]:
        return model.head.loss(head_input(model, batch), batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[ClassBatch]) -> Scores:
        loss = weight = 0.0
        truth: list[NDArray[Any]] = []
        outputs: list[NDArray[np.float64]] = []
        for total, count, right, output in each(partial(self._measured, model), batches):
            loss, weight = loss + float(total), weight + float(count)
            truth.append(right.cpu().numpy())
            outputs.append(output.cpu().numpy())
        known, found = np.concatenate(truth), np.concatenate(outputs)
        target = self.target.fitted(known, found)
        return {"loss": loss / weight, **target.scores(known, target.answers(found))}

    def _measured(self, model: Model, batch: ClassBatch) -> tuple[Tensor, float, Tensor, Tensor]:
        hidden = head_input(model, batch)
        assert isinstance(model.head, ClassHead)
        return *model.head.loss(hidden, batch.target), batch.target, model.head.outputs(hidden).double()

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        return scores[self.score], -scores["loss"]  # on a few hundred rows scores tie often


def head_input(model: Model, batch: ClassBatch) -> Tensor:
    """The embedding of each text, (B, D)."""
    if isinstance(batch, PooledBatch):
        return batch.features
    hidden = model.features(batch.ids, batch.mask)
    return joined(hidden, batch.owner, len(batch.target)) if isinstance(batch, WindowBatch) else hidden


def joined(hidden: Tensor, owner: Tensor, texts: int) -> Tensor:
    """The mean over the windows of each text, (texts, D), of what the head reads of them, (W, D).

    >>> joined(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 1, 1]), 2).tolist()
    [[1.0], [3.0]]
    """
    total = hidden.new_zeros(texts, hidden.size(1)).index_add(0, owner, hidden)
    return total / torch.bincount(owner, minlength=texts)[:, None]


class ClassifyText:
    """Labelled rows as tokens, cut to the base's context, and their batches.

    With `features`, what a frozen base makes of texts, the batches are the same rows without their tokens. It is asked
    when the first batch is, because only then a resumed run has its weights.
    """

    def __init__(
        self,
        rows: Sequence[Example],
        target: Target,
        tokenizer: Tokenizer,
        base: Base,
        long: Long = "truncate",
        prompt: Prompt | None = None,
    ) -> None:
        self.pad, self.texts = tokenizer.pad, [e.text for e in rows]
        self.rows, self.owner, self.cut = rows_of(self.texts, tokenizer, base, long, prompt)
        self.windowed = len(self.rows) > len(rows)
        self.lengths = np.bincount(self.owner, self.rows.lengths, len(rows)).astype(np.int64)  # tokens of each text
        self.targets = target.encode([e.label for e in rows])
        self.features: Callable[[Sequence[str]], Tensor] | None = None

    def batches(self, batch_size: int, seed: int) -> Batches[ClassBatch]:
        """Training batches, for ever."""
        return RowBatches(self.lengths, batch_size, self.collate, seed)

    def measured(self) -> Sequence[ClassBatch]:
        """Every row once."""
        return in_order(self.lengths, EVALUATED_AT_ONCE, self.collate)

    @torch.inference_mode()
    def outputs(self, model: Model, device: str) -> NDArray[np.float64]:
        """What the model predicts for each row, (rows, K), in the order of the rows."""
        return outputs_of(model, self._vectors(model, device))

    @torch.inference_mode()
    def logits(self, model: Model, device: str) -> Tensor:
        """What the head makes of each row, (rows, C), in the order of the rows."""
        vectors = self._vectors(model, device)
        return model.eval().head.logits(vectors)

    def _vectors(self, model: Model, device: str) -> Tensor:
        if self.features is not None:
            return self._read.to(device)
        return vectors_of(model, self.rows, self.owner, len(self.texts), self.pad, device)

    @cached_property
    def _read(self) -> Tensor:
        assert self.features is not None, "only a frozen base reads the rows once for all"
        return self.features(self.texts)  # (rows, D)

    def collate(self, part: Numbers, rng: Rng) -> ClassBatch:
        target = torch.from_numpy(self.targets[part])
        if self.features is not None:
            return PooledBatch(self._read[torch.from_numpy(part)], target, int(self.lengths[part].sum()))
        if self.windowed:
            places = [np.flatnonzero(self.owner == text) for text in part]
            ids, mask = pad([self.rows[int(i)] for own in places for i in own], self.pad)
            owner = torch.repeat_interleave(torch.arange(len(part)), torch.tensor([len(own) for own in places]))
            return WindowBatch(ids, mask, owner, target)
        ids, mask = pad([self.rows[int(i)] for i in part], self.pad)
        return Batch(ids, mask, target)


def rows_of(
    texts: Sequence[str], tokenizer: Tokenizer, base: Base, long: Long, prompt: Prompt | None = None
) -> tuple[TokenRows, NDArray[np.int64], int]:
    """Texts as a classifier reads them: rows, the text that each is part of, and how many texts had to be cut.

    With `long` = window none is: a text longer than the context becomes several rows that overlap by a quarter.
    """
    if prompt:
        return prompted_rows(texts, tokenizer, prompt_tokens(prompt, tokenizer, base.causal), base.max_len, long)
    if long == "truncate":
        rows, cut = rows_to_read(texts, tokenizer, base.causal, base.max_len, base.separators)
        return rows, np.arange(len(texts)), cut
    whole, after = tokenizer.encode(texts, boundaries=False), [] if base.causal else [tokenizer.end]
    size = base.max_len - 1 - len(after)
    parts = [blocks(whole[i], size, size // 4) for i in range(len(whole))]
    rows = TokenRows.of([tokenizer.start, *window, *after] for windows in parts for window in windows)
    return rows, np.repeat(np.arange(len(texts)), [len(windows) for windows in parts]), 0


def vectors_of(
    model: Model, rows: TokenRows, owner: NDArray[np.int64], texts: int, pad_id: int, device: str = "cpu"
) -> Tensor:
    """What the head reads of each text, (texts, D)."""
    found = pooled(model, rows, pad_id, device)
    return per_text(found, owner, texts)


def per_text(found: Tensor, owner: NDArray[np.int64], texts: int) -> Tensor:
    """One vector per text, (texts, D), from one per row, (rows, D), of which some texts may have several."""
    return found if len(found) == texts else joined(found, torch.from_numpy(owner).to(found.device), texts)


def pooled(model: Model, rows: TokenRows, pad_id: int, device: str = "cpu") -> Tensor:
    """What the head reads of each row, (rows, D), in the order of the rows."""
    return pooled_by([model.head.pool], model, rows, pad_id, device)[0]


@torch.inference_mode()
def pooled_by(
    pools: Sequence[Pooling], model: Model, rows: TokenRows, pad_id: int, device: str = "cpu"
) -> list[Tensor]:
    """Each row under each pooling, (rows, D); the base reads the rows once for all of them."""
    model.eval()
    found = [torch.empty(len(rows), model.base.width, device=device) for _ in pools]
    batches = by_length if model.base.skips_padding else little_padded
    for part in reversed(batches(rows.lengths, EVALUATED_AT_ONCE)):  # the memory of long rows serves shorter ones
        ids, mask = (t.to(device) for t in pad([rows[int(i)] for i in part], pad_id))
        hidden = model.base.read(ids, mask)
        for vectors, pool in zip(found, pools, strict=True):
            vectors[torch.from_numpy(part)] = pool(hidden, mask)
    return found


def outputs_of(model: Model, vectors: Tensor) -> NDArray[np.float64]:
    """What the head makes of embeddings, (rows, K): probabilities, or numbers."""
    head = model.eval().head
    assert isinstance(head, ClassHead)
    return head.outputs(vectors).double().cpu().numpy()


@torch.inference_mode()
def predicted(
    model: Model,
    texts: Sequence[str],
    tokenizer: Tokenizer,
    long: Long = "truncate",
    prompt: Prompt | None = None,
    device: str = "cpu",
) -> NDArray[np.float64]:
    """What the model predicts for each text, (texts, K)."""
    rows, owner, _ = rows_of(texts, tokenizer, model.base, long, prompt)
    return outputs_of(model, vectors_of(model, rows, owner, len(texts), tokenizer.pad, device))


def class_weights(rows: Sequence[Example], labels: Sequence[str]) -> Tensor:
    """Weights under which every class counts alike, however many rows it has."""
    counts = Counter(e.label for e in rows)
    return torch.tensor([len(rows) / (len(labels) * max(1, counts[label])) for label in labels])
