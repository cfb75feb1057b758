"""Probabilities made into records that say which label won. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def labelled(labels: Sequence[str], texts: Sequence[str], rows: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """The label of each text and the probability of every label, most probable first.

    >>> labelled(["bad", "good"], ["a fine film"], [[0.25, 0.75]])
    [{'text': 'a fine film', 'label': 'good', 'probabilities': {'good': 0.75, 'bad': 0.25}}]
    """
    records = []
    for text, row in zip(texts, rows, strict=True):
        ranked = sorted(zip(labels, row, strict=True), key=lambda pair: -pair[1])
        records.append({"text": text, "label": ranked[0][0], "probabilities": dict(ranked)})
    return records
