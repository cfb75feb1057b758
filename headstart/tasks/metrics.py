"""Scores from sums and counts, their intervals, and the floor under a language model's loss. No torch."""

from __future__ import annotations

import lzma
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest


def accuracy_interval(right: int, rows: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for `right` of `rows`.

    >>> [round(x, 3) for x in accuracy_interval(211, 240)]
    [0.832, 0.915]
    """
    interval = binomtest(right, rows).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def confusion(target: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    """Counts by true class (row) and predicted class (column)."""
    counts = np.zeros((classes, classes), dtype=int)
    np.add.at(counts, (np.asarray(target, dtype=int), np.asarray(predicted, dtype=int)), 1)
    return counts.tolist()


def class_scores(target: Sequence[int], predicted: Sequence[int], classes: int) -> dict[str, Any]:
    """Accuracy with its interval and macro-F1 over the classes that occur."""
    counts = np.array(confusion(target, predicted, classes))
    right, rows = int(np.trace(counts)), int(counts.sum())
    actual, said = counts.sum(1), counts.sum(0)
    present = (actual + said) > 0
    f1 = 2 * np.diag(counts)[present] / (actual + said)[present]
    return {
        "accuracy": right / rows,
        "interval": list(accuracy_interval(right, rows)),
        "macro_f1": float(f1.mean()),
        "rows": rows,
    }


def language_scores(nats: float, tokens: float, text_bytes: int | None) -> dict[str, float | None]:
    """Loss in nats a token, perplexity, and bits a byte where every byte was predicted."""
    loss = nats / tokens
    bits = nats / math.log(2) / text_bytes if text_bytes else None
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits}


def compressed(seen: bytes, text: bytes) -> float:
    """Bits a byte that xz needs for `text` after `seen`: what a language model of the two should beat.

    >>> compressed(b"abc" * 1000, b"abc" * 1000) < 0.2
    True
    """

    def size(data: bytes) -> int:
        return len(lzma.compress(data, preset=9))

    return 8 * (size(seen + text) - size(seen)) / len(text)


def prefix_entropy(rows: Iterable[Sequence[int]]) -> float:
    """The lowest mean loss (nats a prediction) that any model of these rows can have, given the row so far.

    It is the entropy of the next token after each prefix as counted in the rows themselves.

    >>> round(prefix_entropy([[0, 1], [0, 2]]), 4) == round(math.log(2), 4)
    True
    """
    places: dict[tuple[int, int], int] = {}  # (place, token) -> the place after it: the rows as one tree
    following: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for row in rows:
        place = -1
        for i, token in enumerate(row):
            if i:
                following[place][token] += 1
            place = places.setdefault((place, token), len(places))
    nats = total = 0.0
    for counts in following.values():
        seen = sum(counts.values())
        nats -= sum(n * math.log(n / seen) for n in counts.values())
        total += seen
    return nats / total
