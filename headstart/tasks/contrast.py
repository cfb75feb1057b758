"""Contrastive fine-tuning (SetFit; Tunstall et al., 2022): texts of one class get similar embeddings.

A batch of B pairs is a batch of 2 B texts: the first half are the first texts of the pairs, the second half the others.
Two texts of one class make a positive pair, two of different classes a negative one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.models.heads import Model
from headstart.targets.target import Scores, Target
from headstart.tasks.classify import ClassBatch, Classify, ClassifyText, head_input
from headstart.text.batch import Numbers, Rng, RowBatches


class Contrast(Classify):
    """Mean squared error between the cosine of a pair and 1 (positive) or 0 (negative); the head is not trained by it.

    The loss is CosineSimilarityLoss of sentence-transformers. `fit_head` gives the head a logistic regression on the
    embeddings of the training rows. Each evaluation starts with that, so its scores are those of a classifier.
    """

    def __init__(self, target: Target, score: str, fit_head: Callable[[Model], object]) -> None:
        super().__init__(target, score)
        self.fit_head = fit_head

    def loss(self, model: Model, batch: ClassBatch) -> tuple[Tensor, float]:
        first, second = head_input(model, batch).chunk(2)  # (B, D) each
        one, other = batch.target.chunk(2)
        similarity = F.cosine_similarity(first, second)  # (B,)
        return F.mse_loss(similarity, (one == other).to(similarity.dtype), reduction="sum"), float(len(similarity))

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[ClassBatch]) -> Scores:
        self.fit_head(model)
        return super().evaluate(model, batches)


class PairBatches(RowBatches[ClassBatch]):
    """Pairs of texts: in every epoch each row is the first text of one pair.

    Half of the pairs of a batch are positive. So the pairs of a run are as many as its steps times its batch size,
    however many pairs the rows could make.
    """

    made_of = "pairs whose first texts are rows"

    def __init__(self, text: ClassifyText, batch_size: int, seed: int) -> None:
        super().__init__(text.lengths, batch_size, text.collate, seed)
        self.classes = np.array(text.targets)
        numbers: dict[str, int] = {}
        self.texts = np.array([numbers.setdefault(each, len(numbers)) for each in text.texts])  # equal for equal texts

    def collate(self, part: Numbers, rng: Rng) -> ClassBatch:
        return self._collate(np.concatenate([part, self.partners(part, rng)]), rng)

    def partners(self, part: Numbers, rng: Rng) -> Numbers:
        """The second text of each pair, by row: of the same class and of another one in turn."""
        first = rng.integers(2)  # otherwise batches of an odd size would have more pairs of one kind
        return np.array([self._partner(int(row), (i + first) % 2 == 0, rng) for i, row in enumerate(part)])

    def _partner(self, row: int, positive: bool, rng: Rng) -> int:
        """A random row of the same class, or of another, with another text if there is one.

        The only text of a class makes its positive pairs with itself, as in SetFit.
        """
        allowed = (self.classes == self.classes[row]) == positive
        others = np.flatnonzero(allowed & (self.texts != self.texts[row]))
        return int(rng.choice(others if len(others) else np.flatnonzero(allowed)))
