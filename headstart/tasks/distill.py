"""Distillation: learn the vector that a larger model, the teacher, has of a whole text.

The teacher has read far more than there is time for here, and one vector of it holds more of a text than the text's own
next words do. Student and teacher may cut the text into different tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.config import PretrainConfig
from headstart.errors import ConfigError
from headstart.models.heads import Model, VectorHead, mean_real
from headstart.tasks.language import LanguageText
from headstart.text.batch import Batch, Ids, Lazy, Rng, blocks, each, pad
from headstart.text.stretches import Texts
from headstart.text.tokenizer import Tokenizer, rows_to_read

SHORTEST = 16  # tokens of a piece of text


class Teacher:
    """A model that stays as it is, and its vector of any text: the mean over the tokens, of length 1."""

    def __init__(self, model: Model, tokenizer: Tokenizer, device: str) -> None:
        self.base, self.tokenizer, self.device = model.base.eval().requires_grad_(False).to(device), tokenizer, device
        self.width = self.base.width

    @torch.no_grad()
    def vectors(self, texts: Sequence[str]) -> Tensor:
        """(B, W)"""
        rows, _ = rows_to_read(texts, self.tokenizer, self.base.causal, self.base.max_len)
        ids, mask = (t.to(self.device) for t in pad([rows[i] for i in range(len(rows))], self.tokenizer.pad))
        return F.normalize(mean_real(self.base(ids, mask).last, mask), dim=1)


class DistillScores(TypedDict):
    loss: float
    similarity: float  # the mean cosine with the teacher's vector


class Distill:
    """A task: the student's vectors come to lie where the teacher's do."""

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        return model.loss(batch.ids, batch.mask, batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[Batch]) -> DistillScores:
        """The loss, and how near the two vectors of a text are: the mean cosine."""
        assert isinstance(model.head, VectorHead)
        head = model.head

        def measure(batch: Batch) -> tuple[float, float, float]:
            features = model.features(batch.ids, batch.mask)
            near = float((head.logits(features) * batch.target).sum())
            return float(head.loss(features, batch.target)[0]), near, len(batch.target)

        loss = near = texts = 0.0
        for more in each(measure, batches):
            loss, near, texts = loss + float(more[0]), near + float(more[1]), texts + float(more[2])
        return {"loss": loss / texts, "similarity": near / texts}

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        return (scores["similarity"],)


class TaughtText(LanguageText):
    """Pieces of text, each with the teacher's vector of it."""

    def __init__(self, texts: Texts, tokenizer: Tokenizer, cfg: PretrainConfig, teacher: Teacher) -> None:
        super().__init__(texts, tokenizer, cfg)
        if cfg.model.context < 3:
            raise ConfigError(
                "A piece of text to be taught has a start, an end and a token between: --context 3, or more."
            )
        self.teacher = teacher
        self.taught: dict[int, Sequence[Batch]] = {}  # by about how many tokens are measured

    def measured(self, most: int | None = None) -> Sequence[Batch]:
        """The teacher, who is slow, is asked once of each batch."""
        tokens = len(self.rows.ids) if most is None else min(most, len(self.rows.ids))
        if tokens not in self.taught:
            batches = super().measured(tokens)
            self.taught[tokens] = Lazy(len(batches), cache(batches.__getitem__))
        return self.taught[tokens]

    def _collate(self, rows: Sequence[Ids], rng: Rng) -> Batch:
        special = (self.tokenizer.start, self.tokenizer.end)
        plain = [row[~np.isin(row, special)] for row in rows]
        size = self._piece_length(rng)
        pieces = [piece for row in plain for piece in blocks(row, size, 0) if len(piece)]
        ids, mask = pad([[special[0], *piece, special[1]] for piece in pieces], self.tokenizer.pad)
        return Batch(ids, mask, self.teacher.vectors([self.tokenizer.decode(piece) for piece in pieces]))

    def _piece_length(self, rng: Rng) -> int:
        """Of all pieces of a batch, so that little is padded: the shortest, or twice that, and so on to the context."""
        longest = self.cfg.model.context - 2  # beside a start and an end
        doublings = max(0, math.ceil(math.log2(longest / SHORTEST)))
        return min(longest, SHORTEST * 2 ** int(rng.integers(doublings + 1)))
