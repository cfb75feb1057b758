"""What the page of a study of tags shows beside the scores: F1 by type, and sentences on which arms differ. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.study.results import TaggedRow
from headstart.study.taken import Taken
from headstart.targets.labels import Labels
from headstart.targets.tags import OUTSIDE, PADDING, Tags, entities
from headstart.targets.target import Encoded
from headstart.text.split import Labelled

SHOWN = 20  # sentences


def f1_by_type(target: Tags | Labels, truth: Encoded, t: Taken) -> dict[str, float | None]:
    """The mean over seeds, for each type of entity, tag or label that the test rows have."""
    seeds = [target.by_type(truth, said) for said in t.said]
    names = sorted({name for found in seeds for name, score in found.items() if score["rows"]})
    scores = {name: [found[name]["f1"] or 0.0 for found in seeds if name in found] for name in names}
    return {name: float(np.mean(of_seeds)) for name, of_seeds in scores.items()}


def tagged_rows(data: Labelled, truth: Encoded, here: Sequence[Taken]) -> list[TaggedRow]:
    """The test rows on which arms differ most, by the share of words that are right; mistakes of all where none differ."""
    target = data.target
    if not isinstance(target, Tags) or not here:
        return []
    right = np.array([_right(t.said, truth) for t in here])  # (arms, N)
    order = np.lexsort((np.arange(len(truth)), right.mean(0), right.min(0) - right.max(0)))
    return [
        TaggedRow(
            row=int(i),
            words=data.test[i].text.split(" "),
            tags=target.written(truth[i]),
            said={t.arm.name: target.written(t.said[0, i]) for t in here},
        )
        for i in order[:SHOWN]
        if right[:, i].min() < 1
    ]


def _right(said: NDArray[np.int64], truth: Encoded) -> NDArray[np.float64]:
    """(N,): the share of words that are right, over seeds."""
    known = truth != PADDING
    return ((said == truth) & known).mean(0).sum(1) / known.sum(1)


def stretches(words: Sequence[str], tags: Sequence[str]) -> list[tuple[str, str]]:
    """A sentence in stretches with the type of each, or with the tag of each word; nothing for words outside.

    >>> stretches(["Ada", "Lovelace", "wrote"], ["B-PER", "I-PER", "O"])
    [('Ada Lovelace', 'PER'), ('wrote', '')]
    >>> stretches(["it", "rains"], ["PRON", "VERB"])
    [('it', 'PRON'), ('rains', 'VERB')]
    """
    found = entities(tags)
    if not found and set(tags) - {OUTSIDE}:
        return list(zip(words, tags, strict=True))
    parts, done = [], 0
    for kind, start, end in found:
        if start > done:
            parts.append((" ".join(words[done:start]), ""))
        parts.append((" ".join(words[start:end]), kind))
        done = end
    return parts if done == len(words) else [*parts, (" ".join(words[done:]), "")]
