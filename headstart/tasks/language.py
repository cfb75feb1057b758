"""Predict tokens: the next one (causal) or the hidden ones (masked). The batches say which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from headstart.models.heads import Model
from headstart.tasks.metrics import language_scores
from headstart.text.batch import Batch


class Language:
    def __init__(self, text_bytes: int | None) -> None:
        """`text_bytes` is the size of the validation text, None where bits a byte would mean nothing."""
        self.text_bytes = text_bytes

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        return model.head.loss(model.features(batch.ids, batch.mask), batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
        nats = tokens = 0.0  # sums, divided once at the end: a short last batch counts as it should
        for batch in batches:
            total, count = self.loss(model, batch)
            nats, tokens = nats + float(total), tokens + count
        return language_scores(nats, tokens, self.text_bytes)

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-scores["loss"],)
