"""Scores of language models from sums and counts, and the floor under their loss. No torch."""

from __future__ import annotations

import lzma
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import SupportsFloat, TypedDict


class Estimate(TypedDict):
    """A score with its 95 % interval; None where the rows do not allow one."""

    value: float
    interval: list[float] | None


class LanguageScores(TypedDict):
    loss: float  # nats per token
    perplexity: float
    bits_per_byte: float | None  # None where some bytes are never predicted


def summed(losses: Iterable[tuple[SupportsFloat, float]]) -> tuple[float, float]:
    """All losses, and all that they count: divided once, at the end, so that a short last batch counts as it should.

    >>> summed([(6.0, 4), (1.0, 1)])
    (7.0, 5.0)
    """
    loss = count = 0.0
    for total, counted in losses:
        loss, count = loss + float(total), count + counted
    return loss, count


def language_scores(nats: float, tokens: float, text_bytes: int | None) -> LanguageScores:
    """Loss in nats per token, perplexity, and bits per byte where every byte was predicted."""
    loss = nats / tokens
    bits = nats / math.log(2) / text_bytes if text_bytes else None
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits}


def compressed(seen: bytes, text: bytes) -> float:
    """Bits per byte that xz needs for `text` after `seen`: what a language model of the two should beat.

    >>> compressed(b"abc" * 1000, b"abc" * 1000) < 0.2
    True
    """

    def size(data: bytes) -> int:
        return len(lzma.compress(data, preset=9))

    return 8 * (size(seen + text) - size(seen)) / len(text)


def prefix_entropy(rows: Iterable[Sequence[int]]) -> float:
    """The lowest mean loss (nats per prediction) that any model of these rows can have, given the row so far.

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
