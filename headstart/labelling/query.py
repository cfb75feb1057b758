"""Which rows to label next. No torch.

Every fourth label goes to the random part: the first rows of a fixed random order of the pool. They alone tell the accuracy,
because chosen rows are harder than others. Which rows those are follows from the number of labels, not from what was chosen,
so they are a fair sample of the pool, also where a chosen row is one of them. And what is chosen does not depend on them: a
choice that knew their labels would leave out what they cover, and each of them, predicted without itself, would look harder
than it is (docs/log.md, 2026-11-18: 88 instead of 95 % at 100 labels).

The others are chosen. First the typical ones: the densest row of each large cluster that has no label yet (TypiClust; Hacohen
and others, 2022), because a classifier of a few labels does not know what it does not know. Then the uncertain ones (small
margin between the two likeliest classes), spread out: the SPREAD * k most uncertain are clustered into k, weighted by their
uncertainty, and the row next to each centre is taken (Zhdanov, 2019).

Shapes: N rows, C classes, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVERY = 4  # one label in so many goes to the random part
START = 15  # chosen rows with a label, until which typical ones are chosen
SPREAD = 10
BATCH = 8  # rows that are chosen at once
CLUSTERED = 4000  # rows at most; of more, a sample
NEIGHBOURS = 20

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def random_order(rows: int, seed: int) -> Ints:
    return np.random.default_rng(seed).permutation(rows)


def random_part(order: Ints, labels: int) -> Ints:
    """The rows of the random part, once there are so many labels."""
    return order[: labels // EVERY + (labels % EVERY > 0)]


def interleaved(labels: int, count: int, order: Ints, answered: set[int], held: set[int], choose: Callable[[set[int], int], list[int]]) -> list[tuple[int, bool]]:  # fmt: skip
    """The next rows to ask for, and whether each is of the random part. `held` are those that others have before them."""
    found: list[tuple[int, bool]] = []
    chosen: list[int] = []
    taken = answered | held
    while len(found) < count:
        due = [int(row) for row in random_part(order, labels + len(found) + 1) if row not in taken]
        if due:
            row, random = due[0], True
        else:
            chosen = [row for row in chosen if row not in taken] or choose(taken, BATCH)
            if not chosen:
                break
            row, random = chosen[0], False
        found.append((row, random))
        taken = taken | {row}
    return found


def choose(
    vectors: Floats,
    probabilities: Floats | None,
    labelled: Sequence[int],
    taken: set[int],
    count: int,
    start: int = START,
) -> list[int]:
    """The rows that pay most, of those that are not taken; `labelled` are those that were chosen before.

    The first `start` are typical ones; 0, where zero-shot probabilities are there from the beginning.
    """
    free = np.array([row for row in range(len(vectors)) if row not in taken], dtype=np.int64)
    if len(free) <= count:
        return [int(row) for row in free]
    if probabilities is None or len(labelled) < start:
        return typical(vectors, free, labelled, count)
    return uncertain(vectors, free, margins(probabilities), count)


def margins(probabilities: Floats) -> Floats:
    """How uncertain each row is, (N,): 1 where the two likeliest classes are equally likely."""
    top = np.partition(probabilities, -2, axis=1)
    return np.asarray(1 - (top[:, -1] - top[:, -2]))


def typical(vectors: Floats, free: Ints, labelled: Sequence[int], count: int) -> list[int]:
    """The densest row of each of the largest clusters that have no labelled row."""
    rng = np.random.default_rng(len(labelled))
    some = np.sort(rng.permutation(free)[:CLUSTERED])
    both = np.concatenate([np.array(labelled, dtype=np.int64), some])
    clusters = min(len(labelled) + count, len(some))
    place, _ = _clusters(vectors[both], clusters)
    covered = set(place[: len(labelled)].tolist())
    sizes = np.bincount(place[len(labelled) :], minlength=clusters)
    open_ = [cluster for cluster in np.argsort(-sizes, kind="stable") if cluster not in covered and sizes[cluster]]
    found = [_densest(vectors, some[place[len(labelled) :] == cluster]) for cluster in open_[:count]]
    rest = [int(row) for row in rng.permutation(some) if row not in found]
    return [*found, *rest[: count - len(found)]]


def _densest(vectors: Floats, members: Ints) -> int:
    """The row with the nearest neighbours."""
    points = vectors[members].astype(np.float64)
    squares = (points**2).sum(1)
    apart = squares[:, None] + squares - 2 * points @ points.T
    nearest = np.partition(apart, min(NEIGHBOURS, len(members) - 1), axis=1)[:, : NEIGHBOURS + 1]
    return int(members[nearest.mean(1).argmin()])


def uncertain(vectors: Floats, free: Ints, uncertainty: Floats, count: int) -> list[int]:
    """The most uncertain rows, spread out."""
    top = free[np.argsort(-uncertainty[free], kind="stable")[: SPREAD * count]]
    points = vectors[top].astype(np.float64)
    _, centres = _clusters(points, count, uncertainty[top] + 1e-9)
    apart = ((points[:, None] - centres[None]) ** 2).sum(-1)  # (rows, count)
    found: list[int] = []
    for cluster in range(count):
        found.append(
            next(int(top[i]) for i in np.argsort(apart[:, cluster], kind="stable") if int(top[i]) not in found)
        )
    return sorted(found, key=lambda row: -uncertainty[row])


def _clusters(points: Floats, count: int, weights: Floats | None = None) -> tuple[Ints, Floats]:
    """The cluster of each point, and the centres, by k-means."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer distinct points than clusters
        found = KMeans(count, n_init=1, max_iter=30, random_state=0).fit(points, sample_weight=weights)
    return found.labels_, found.cluster_centers_
