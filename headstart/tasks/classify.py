"""One label for each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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


class Classify:
    def __init__(self, classes: int) -> None:
        self.classes = classes

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        return model.head.loss(model.features(batch.ids, batch.mask), batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
        loss = weight = 0.0
        target: list[int] = []
        predicted: list[int] = []
        for batch in batches:
            hidden = model.features(batch.ids, batch.mask)
            total, count = model.head.loss(hidden, batch.target)
            loss, weight = loss + float(total), weight + count
            target += batch.target.tolist()
            predicted += model.head.logits(hidden).argmax(-1).tolist()
        return {"loss": loss / weight, **class_scores(target, predicted, self.classes)}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return scores["accuracy"], -scores["loss"]  # on a few hundred rows accuracies tie often


class ClassifyText:
    """Labelled rows as tokens, cut to the base's context, and their batches."""

    def __init__(self, rows: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, base: Base) -> None:
        self.pad = tokenizer.pad
        self.rows, self.cut = class_rows([e.text for e in rows], tokenizer, base)
        self.targets = [labels.index(e.label) for e in rows]

    def batches(self, batch_size: int, seed: int) -> Batches:
        """Training batches, for ever."""
        return RowBatches(self.rows.lengths, batch_size, self._collate, seed)

    def measured(self) -> Iterable[Batch]:
        """Every row once."""
        return in_order(self.rows.lengths, EVALUATED_AT_ONCE, self._collate)

    def _collate(self, part: Numbers, rng: Rng) -> Batch:
        ids, mask = pad([self.rows[int(i)] for i in part], self.pad)
        return Batch(ids, mask, torch.tensor([self.targets[int(i)] for i in part]))


def class_rows(texts: Sequence[str], tokenizer: Tokenizer, base: Base) -> tuple[TokenRows, int]:
    """Texts as a classifier reads them, and how many had to be cut.

    A causal base has read the whole text at its last token, so no end token follows it; a two-way base sees a start
    and an end.
    """
    rows = tokenizer.encode(texts, end=not base.causal)
    return truncated(rows, base.max_len, None if base.causal else tokenizer.end)


@torch.inference_mode()
def probabilities(model: Model, rows: TokenRows, pad_id: int, device: str = "cpu") -> list[list[float]]:
    """The class probabilities of each row, in the order of the rows."""
    model.eval()
    found: dict[int, list[float]] = {}
    for part in by_length(rows.lengths, EVALUATED_AT_ONCE):
        ids, mask = pad([rows[int(i)] for i in part], pad_id)
        scores = model(ids.to(device), mask.to(device)).softmax(-1).tolist()
        found.update(zip((int(i) for i in part), scores, strict=True))
    return [found[i] for i in range(len(rows))]


def most_probable(rows: Sequence[Sequence[float]]) -> list[int]:
    """The class with the largest probability in each row."""
    return [max(range(len(row)), key=row.__getitem__) for row in rows]


def class_weights(rows: Sequence[Example], labels: Sequence[str]) -> Tensor:
    """Weights under which every class counts alike, however many rows it has."""
    counts = Counter(e.label for e in rows)
    return torch.tensor([len(rows) / (len(labels) * counts[label]) for label in labels])
