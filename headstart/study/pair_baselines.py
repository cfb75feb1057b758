"""What a model of text pairs has to beat: the words that both texts share, and each text alone. No torch.

Labels of pairs can often be guessed from one of the two texts, because of how the pairs were written (Gururangan et al., 2018). An
arm that sees one text shows how far that goes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from headstart.bases.regression import Standard
from headstart.study.baseline import Baseline
from headstart.study.baselines import decided, fit_parts, tfidf
from headstart.study.pair_features import pair_vectorizer, shared_words, sides_of
from headstart.text.read import Example
from headstart.text.split import Labelled

Side = Literal["first", "second"]


def first_only(data: Labelled) -> Baseline:
    return one_side(data, "first")


def second_only(data: Labelled) -> Baseline:
    return one_side(data, "second")


def one_side(data: Labelled, side: Side) -> Baseline:
    """TF-IDF with logistic regression on one text of each pair."""

    def alone(rows: Sequence[Example]) -> list[Example]:
        return [Example(sides_of(e.text)[side == "second"], e.label) for e in rows]

    seen = replace(data, train=alone(data.train), valid=alone(data.valid), test=alone(data.test))
    return replace(tfidf(seen), name=f"{side}-only")


def overlap(data: Labelled) -> Baseline:
    """Logistic regression on how much the two texts have in common, whatever it is."""
    began = time.perf_counter()
    vectorizer = pair_vectorizer(data)
    raw = {name: shared_words([e.text for e in rows], vectorizer) for name, rows in data.parts().items() if rows}
    standard = Standard.of(raw["train"])
    rows = {name: standard.unit(part) for name, part in raw.items()}
    found = fit_parts(data, rows)
    seconds = time.perf_counter() - began
    return Baseline("overlap", *decided(data, found, rows), seconds, found.c, int(found.model.coef_.size))
