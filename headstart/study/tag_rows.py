"""What the page of a study of tags shows beside the scores: sentences on which arms differ. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.study.results import TaggedRow
from headstart.study.taken import Taken
from headstart.targets.tags import PADDING, Tags
from headstart.targets.target import Encoded
from headstart.text.split import Labelled

SHOWN = 20  # sentences


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
