"""One label for each text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from headstart.models.heads import Model
from headstart.tasks.metrics import class_scores
from headstart.text.batch import Batch


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
