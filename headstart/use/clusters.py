"""Texts in clusters: k-means on their embeddings, each cluster named by its characteristic words.

The words come from class-based TF-IDF (Grootendorst, 2022), tf * ln(1 + A / f): tf is the share of a word among the words of the cluster, f how often all
clusters have it, A the mean number of words of a cluster. A word counts only if it is in MARKED times as large a share of the cluster's texts as of the
others, which leaves out function words in any language.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import UserError
from headstart.schema import Frozen
from headstart.text.bm25 import words_of
from headstart.text.columns import Table

TRIED = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)  # numbers of clusters
SCORED = 1000  # rows of the silhouette, which takes the square of them
STARTS = 5  # of k-means, of which the best is kept
WORDS, TYPICAL = 4, 3  # of a cluster
MARKED = 2.0

Ints = NDArray[np.int64]


class TypicalText(Frozen):
    row: int  # from 1
    text: str


class Cluster(Frozen):
    number: int  # from 1, the largest first
    name: str
    size: int
    words: tuple[str, ...]  # the most characteristic first
    typical: tuple[TypicalText, ...]  # nearest to the centre


class Clusters(Frozen):
    rows: int
    silhouette: float | None  # mean over rows, of cosine distances' order; None where a sample has one cluster
    tried: dict[int, float]  # silhouettes of other numbers of clusters, if the number was chosen
    clusters: tuple[Cluster, ...]
    numbers: tuple[int, ...]  # the cluster of each row


def find_clusters(
    texts: Sequence[str], vectors: NDArray[np.float32], count: int | None = None, seed: int = 0
) -> Clusters:
    """The clusters of texts with these embeddings, (N, D); with `count` None, as many as give the largest silhouette."""
    different = len(np.unique(vectors, axis=0))
    most = different - 1 if count is None else different
    if most < (count or 2):
        raise UserError(f"{count or 2} clusters need more texts: {different} different ones were given.")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    tried: dict[int, float] = {}
    if count is None:
        few = [k for k in TRIED if k <= max(2, min(most, len(texts) // 5))]
        tried = {k: _silhouette(unit, _k_means(unit, k, seed)[0]) or -1.0 for k in few}
        count = max(tried, key=lambda k: tried[k])
    numbers, distances = _k_means(unit, count, seed)
    order = {old: new for new, (old, _) in enumerate(Counter(numbers.tolist()).most_common())}
    numbers = np.array([order[old] for old in numbers.tolist()])
    words = characteristic_words(texts, numbers, count)
    return Clusters(
        rows=len(texts),
        silhouette=_silhouette(unit, numbers),
        tried=tried,
        clusters=tuple(_cluster(k, texts, numbers, distances, words[k]) for k in range(count)),
        numbers=tuple(int(number) + 1 for number in numbers),
    )


def characteristic_words(texts: Sequence[str], numbers: Ints, count: int) -> list[tuple[str, ...]]:
    """The words of each cluster, by class-based TF-IDF."""
    held: list[Counter[str]] = [Counter() for _ in range(count)]  # how often each word occurs
    holders: list[Counter[str]] = [Counter() for _ in range(count)]  # in how many texts
    for text, number in zip(texts, numbers, strict=True):
        words = [word for word in words_of(text) if len(word) > 1 and not word.isdecimal()]
        held[number].update(words)
        holders[number].update(set(words))
    total, everywhere = sum(held, Counter[str]()), sum(holders, Counter[str]())
    sizes = np.bincount(numbers, minlength=count)
    mean = total.total() / count
    found = []
    for k in range(count):
        scores = {}
        for word, times in held[k].items():
            inside = holders[k][word] / sizes[k]
            outside = (everywhere[word] - holders[k][word]) / max(1, len(texts) - sizes[k])
            if inside >= MARKED * outside:
                scores[word] = times / held[k].total() * np.log(1 + mean / total[word])
        found.append(tuple(sorted(scores, key=lambda word: (-scores[word], word))[:WORDS]))
    return found


def _cluster(k: int, texts: Sequence[str], numbers: Ints, distances: Any, words: tuple[str, ...]) -> Cluster:
    members = np.flatnonzero(numbers == k)
    nearest = members[np.argsort(distances[members], kind="stable")]
    typical = list({texts[i]: i for i in nearest[::-1]}.values())[::-1][:TYPICAL]  # of duplicates, one
    return Cluster(
        number=k + 1,
        name=", ".join(words) or f"cluster {k + 1}",
        size=len(members),
        words=words,
        typical=tuple(TypicalText(row=int(i) + 1, text=texts[i]) for i in typical),
    )


def _k_means(unit: Any, count: int, seed: int) -> tuple[Ints, Any]:
    """The cluster of each row, and its distance from the centre."""
    from sklearn.cluster import KMeans

    model = KMeans(count, n_init=STARTS, random_state=seed).fit(unit)
    distances = np.linalg.norm(unit - model.cluster_centers_[model.labels_], axis=1)
    return model.labels_.astype(np.int64), distances


def _silhouette(unit: Any, numbers: Ints) -> float | None:
    from sklearn.metrics import silhouette_score

    some = np.random.default_rng(0).permutation(len(unit))[:SCORED]
    kinds = len(np.unique(numbers[some]))
    return float(silhouette_score(unit[some], numbers[some])) if 1 < kinds < len(some) else None


def with_clusters(table: Table, found: Clusters) -> str:
    """The table as CSV, with the number and the name of each row's cluster."""
    written, names = io.StringIO(), [each.name for each in found.clusters]
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*table.types, "cluster", "cluster_name"])
    rows = (row for part in table.parts(1000) for row in part.rows)
    writer.writerows([*row, number, names[number - 1]] for row, number in zip(rows, found.numbers, strict=True))
    return written.getvalue()
