"""Test rows that overlap with training rows: for a cell with n labels, only with the n rows sampled for it."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.text.hygiene import check
from headstart.text.split import Labelled, draw


def overlapping(
    data: Labelled, whole: Sequence[int], labels: int, seeds: Sequence[int], balanced: bool = False
) -> list[int]:
    """The test rows that overlap with the training rows of any of `seeds`; `whole`: those with all labels (0)."""
    if not labels or not whole:
        return list(whole)
    suspects = [data.test[i] for i in whole]  # what is drawn is a part of all rows, so there are no others
    found: set[int] = set()
    for seed in seeds:
        few = draw(data, labels, seed, balanced)
        found.update(check({"train": [*few.train, *few.valid], "test": suspects})["overlapping_rows"]["test"])
    return [whole[i] for i in sorted(found)]
