"""One label for each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from headstart.models.base import Base
from headstart.models.heads import Model
from headstart.tasks.metrics import class_scores
from headstart.text.batch import Batch, Batches, Numbers, Rng, RowBatches, by_length, in_order, pad
from headstart.text.read import Example
from headstart.text.tokenizer import Tokenizer, TokenRows, truncated

EVALUATED_AT_ONCE = 64  # rows


@dataclass(frozen=True)
class PooledBatch:
    """Texts that a frozen base has read already: what the head needs of them."""

    features: Tensor  # (B, D)
    target: Tensor  # (B,)
    tokens: int

    def to(self, device: str) -> PooledBatch:
        return PooledBatch(self.features.to(device), self.target.to(device), self.tokens)


ClassBatch = Batch | PooledBatch


class Classify:
    def __init__(self, classes: int) -> None:
        self.classes = classes

    def loss(self, model: Model, batch: ClassBatch) -> tuple[Tensor, float]:
        return model.head.loss(_hidden(model, batch), batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[ClassBatch]) -> dict[str, Any]:
        loss = weight = 0.0
        target: list[int] = []
        predicted: list[int] = []
        for batch in batches:
            hidden = _hidden(model, batch)
            total, count = model.head.loss(hidden, batch.target)
            loss, weight = loss + float(total), weight + count
            target += batch.target.tolist()
            predicted += model.head.logits(hidden).argmax(-1).tolist()
        return {"loss": loss / weight, **class_scores(target, predicted, self.classes)}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return scores["accuracy"], -scores["loss"]  # on a few hundred rows accuracies tie often


def _hidden(model: Model, batch: ClassBatch) -> Tensor:
    return batch.features if isinstance(batch, PooledBatch) else model.features(batch.ids, batch.mask)


class ClassifyText:
    """Labelled rows as tokens, cut to the base's context, and their batches.

    With `features`, what a frozen base makes of texts, the batches are the same rows without their tokens. It is asked
    when the first batch is, because only then a resumed run has its weights.
    """

    def __init__(self, rows: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, base: Base) -> None:
        self.pad, self.texts = tokenizer.pad, [e.text for e in rows]
        self.rows, self.cut = class_rows(self.texts, tokenizer, base)
        self.targets = [labels.index(e.label) for e in rows]
        self.features: Callable[[Sequence[str]], Tensor] | None = None

    def batches(self, batch_size: int, seed: int) -> Batches[ClassBatch]:
        """Training batches, for ever."""
        return RowBatches(self.rows.lengths, batch_size, self._collate, seed)

    def measured(self) -> Iterable[ClassBatch]:
        """Every row once."""
        return in_order(self.rows.lengths, EVALUATED_AT_ONCE, self._collate)

    def probabilities(self, model: Model, device: str) -> list[list[float]]:
        """The class probabilities of each row, in the order of the rows."""
        if self.features is None:
            return probabilities(model, self.rows, self.pad, device)
        with torch.inference_mode():
            return model.eval().head.logits(self._read.to(device)).softmax(-1).tolist()

    @cached_property
    def _read(self) -> Tensor:
        assert self.features is not None, "only a frozen base reads the rows once for all"
        return self.features(self.texts)  # (rows, D)

    def _collate(self, part: Numbers, rng: Rng) -> ClassBatch:
        target = torch.tensor([self.targets[int(i)] for i in part])
        if self.features is not None:
            return PooledBatch(self._read[torch.from_numpy(part)], target, int(self.rows.lengths[part].sum()))
        ids, mask = pad([self.rows[int(i)] for i in part], self.pad)
        return Batch(ids, mask, target)


def class_rows(texts: Sequence[str], tokenizer: Tokenizer, base: Base) -> tuple[TokenRows, int]:
    """Texts as a classifier reads them, and how many had to be cut.

    A causal base has read the whole text at its last token, so no end token follows it; a two-way base sees a start
    and an end.
    """
    rows = tokenizer.encode(texts, end=not base.causal)
    return truncated(rows, base.max_len, None if base.causal else tokenizer.end)


@torch.inference_mode()
def pooled(model: Model, rows: TokenRows, pad_id: int, device: str = "cpu") -> Tensor:
    """What the head reads of each row, (rows, D), in the order of the rows."""
    model.eval()
    found = torch.empty(len(rows), model.base.width, device=device)
    for part in by_length(rows.lengths, EVALUATED_AT_ONCE):
        ids, mask = pad([rows[int(i)] for i in part], pad_id)
        found[torch.from_numpy(part)] = model.features(ids.to(device), mask.to(device))
    return found


@torch.inference_mode()
def probabilities(model: Model, rows: TokenRows, pad_id: int, device: str = "cpu") -> list[list[float]]:
    """The class probabilities of each row, in the order of the rows."""
    return model.head.logits(pooled(model, rows, pad_id, device)).softmax(-1).tolist()


def most_probable(rows: Sequence[Sequence[float]]) -> list[int]:
    """The class with the largest probability in each row."""
    return [max(range(len(row)), key=row.__getitem__) for row in rows]


def class_weights(rows: Sequence[Example], labels: Sequence[str]) -> Tensor:
    """Weights under which every class counts alike, however many rows it has."""
    counts = Counter(e.label for e in rows)
    return torch.tensor([len(rows) / (len(labels) * counts[label]) for label in labels])
