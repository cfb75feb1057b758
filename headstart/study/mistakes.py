"""The test rows of a study that are worth a look: confident mistakes, and rows on which arms differ. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.study.results import Disagreement, Mistake
from headstart.study.taken import Taken
from headstart.targets.target import Encoded, Target
from headstart.text.split import Labelled

MISTAKES, DISAGREEMENTS = 10, 20  # shown


def mistakes(data: Labelled, truth: Encoded, t: Taken) -> list[Mistake]:
    """The wrong answers that were given with most confidence: candidates for wrong labels."""
    if data.target.task not in ("classify", "ordinal"):
        return []
    mean = t.outputs.mean(0)  # (N, C)
    said = data.target.answers(mean)  # of ordered classes the median, not the most probable
    wrong = np.flatnonzero(said != truth)
    order = wrong[np.argsort(-mean[wrong, said[wrong]], kind="stable")][:MISTAKES]
    return [
        Mistake(
            row=int(i),
            text=data.test[i].text,
            label=data.test[i].label,
            prediction=data.labels[said[i]],
            probability=float(mean[i, said[i]]),
            seeds=int((t.said[:, i] == said[i]).sum()),
        )
        for i in order
    ]


def disagreements(data: Labelled, truth: Encoded, here: Sequence[Taken]) -> list[Disagreement]:
    """The test rows on which arms differ most."""
    if len(here) < 2 or data.target.shown_rows:  # these are shown in another way
        return []
    right = np.array([_right(t.said, truth) for t in here])  # (arms, N)
    apart = right.max(0) - right.min(0)
    order = np.lexsort((np.arange(len(apart)), -right.std(0), -apart))[:DISAGREEMENTS]
    return [
        Disagreement(
            row=int(i),
            text=data.test[i].text,
            label=shown(data.target, truth[i]),
            said={t.arm.name: _answers(data.target, t.said[:, i]) for t in here},
        )
        for i in order
        if apart[i] > 0
    ]


def _answers(target: Target, said: NDArray[Any]) -> dict[str, int]:
    """The answers of an arm with the number of seeds that gave each; of numbers, the mean of all seeds."""
    if target.numeric:
        return {shown(target, said.mean()): len(said)}
    return dict(Counter(shown(target, answer) for answer in said).most_common())


def _right(said: NDArray[Any], truth: Encoded) -> NDArray[np.float64]:
    """(N,): the share of seeds that are right; of numbers, how near they are."""
    if said.ndim == 2 and truth.dtype != np.int64:
        return -np.abs(said - truth).mean(0)
    same = said == truth
    return (same if same.ndim == 2 else same.all(2)).mean(0)


def shown(target: Target, answer: Any) -> str:
    """A label or an answer in a cell of a table.

    >>> from headstart.targets.numbers import Numbers
    >>> shown(Numbers(3.0, 2.0), 0.25)
    '3.5'
    """
    return target.shown(answer) or "(none)"
