"""A linear probe of words: logistic regression from the states of a base to tags, which a tag head starts from."""

from __future__ import annotations

import numpy as np
import torch

from headstart.bases.linear_probe import CS, USUAL_C, Probe, Rows, as_head, must_be_finite, rows_to_fit
from headstart.bases.regression import Standard, fit_regression
from headstart.shapes import Pool

MOST_WORDS = 4000  # that the regression is given
UNSEEN = 0.5  # words of a tag that has none, of which its bias is made


def fit_word_probe(pool: Pool, tags: int, train: Rows, valid: Rows) -> Probe | None:
    """A probe of `tags` tags; those without training words are never said. None where all words have one tag."""
    some = [np.array(rows_to_fit(len(part[1]), MOST_WORDS), dtype=np.int64) for part in (train, valid)]
    (fitted, known), (held_out, truth) = (
        (states[torch.from_numpy(i)].cpu().numpy(), of_words[i])
        for (states, of_words), i in zip((train, valid), some, strict=True)
    )
    if len(np.unique(known)) < 2:
        return None
    standard = Standard.of(fitted)
    must_be_finite(standard.scale, fitted, held_out if len(truth) else None)
    rows = (standard(held_out), truth) if len(truth) else None
    found = fit_regression((standard(fitted), known), rows, CS, USUAL_C)
    own, bias = as_head(found.model)
    seen = found.model.classes_
    weight, shift = np.zeros((tags, fitted.shape[1])), np.full(tags, bias.min() + np.log(UNSEEN))
    weight[seen] = own / standard.scale
    shift[seen] = bias - weight[seen] @ standard.mean
    return Probe(pool, found.c, weight, shift, found.hits)
