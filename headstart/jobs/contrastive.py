"""The head of contrastive fine-tuning (SetFit): a logistic regression on the embeddings of the tuned base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from headstart.bases.linear_probe import Probe, Rows, fit_probes, install, rows_to_fit
from headstart.bases.regression import ENOUGH
from headstart.config import FinetuneConfig
from headstart.models.heads import ClassHead, Model
from headstart.shapes import Pool
from headstart.tasks.classify import EVALUATED_AT_ONCE, ClassifyText, head_input
from headstart.text.batch import Numbers, in_order
from headstart.text.split import Labelled


@dataclass
class FittedHead:
    """Gives the head a logistic regression on the embeddings of the training rows, by the base as it is at the call."""

    text: ClassifyText
    valid: ClassifyText
    pool: Pool
    device: str
    probe: Probe | None = field(default=None, init=False)  # the last one

    def __call__(self, model: Model) -> None:
        assert isinstance(model.head, ClassHead), "a classifier is tuned"
        train = embeddings(model, self.text, self.rows, self.device)
        some = np.arange(len(self.valid.texts) if len(self.valid.texts) >= ENOUGH else 0)  # fewer choose no C
        (self.probe,) = fit_probes(
            model.head, [self.pool], lambda pool: (train, embeddings(model, self.valid, some, self.device))
        )
        install(model.head, self.probe)

    @cached_property
    def rows(self) -> Numbers:
        """As many training rows as a linear probe takes, and at least one of each class."""
        targets = self.text.targets.tolist()
        sample = rows_to_fit(len(targets))
        missing = set(targets) - {targets[row] for row in sample}
        return np.array(sorted([*sample, *map(targets.index, missing)]), dtype=np.int64)

    @property
    def strength(self) -> float:
        """C of the last regression."""
        assert self.probe is not None, "the head has not been fitted yet"
        return self.probe.c


@torch.no_grad()
def embeddings(model: Model, text: ClassifyText, rows: Numbers, device: str) -> Rows:
    """What the head reads of some rows, (rows, D), and their classes; shortest first."""
    model.eval()
    batches = in_order(text.lengths[rows], EVALUATED_AT_ONCE, lambda part, rng: text.collate(rows[part], rng))
    found = [(head_input(model, batch.to(device)).cpu(), batch.target.tolist()) for batch in batches]
    vectors = torch.cat([vectors for vectors, _ in found]) if found else torch.empty(0, model.base.width)
    return vectors, np.array([target for _, targets in found for target in targets], dtype=np.int64)


def pair_notes(cfg: FinetuneConfig, data: Labelled) -> Iterator[str]:
    """What to report of the pairs before the first step."""
    size = cfg.train.batch_size * cfg.train.accumulate
    yield (
        f"Contrastive fine-tuning: {cfg.train.steps} steps of up to {size} pairs of texts; then the head is fitted to the "
        "embeddings by logistic regression."
    )
    alone = sorted(label for label, rows in Counter(e.label for e in data.train).items() if rows == 1)
    if alone:
        shown = ", ".join(f"'{label}'" for label in alone[:5]) + (", ..." if len(alone) > 5 else "")
        yield f"Note: one training row only of {shown}: its positive pairs are of that text with itself, as in SetFit."
