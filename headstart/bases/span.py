"""Sparse rows of many columns, in as many coordinates as there are rows to fit. No torch.

A linear model with an L2 penalty has its weights in the span of the rows that it is fitted to, and L-BFGS never leaves it. In
orthonormal coordinates of that span the steps, the weights' length and the outputs are the same, and a step costs a fraction: a news
item has 3,000 of 200,000 n-grams, and there are 640 items.

Shapes: N training rows, M other rows, D columns, R <= N coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse

from headstart.bases.regression import one_thread

MOST_ROWS = 2000  # the coordinates take their cube in time; above it, sparse rows are as fast
MOST_OTHERS = 20_000  # rows of a part: they become dense
SMALLEST = 1e-12  # eigenvalues, relative to the largest, that are rounding


def in_span(rows: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rows of each part, (M, R), in the span of those of "train"; as they are, where that gains nothing.

    >>> from scipy.sparse import csr_matrix
    >>> found = in_span({"train": csr_matrix([[3.0, 0.0, 4.0]]), "test": csr_matrix([[3.0, 7.0, 4.0]])})
    >>> abs(found["test"].round(6)).tolist()  # what no training row has cannot matter
    [[5.0]]
    """
    train, most = rows["train"], max(part.shape[0] for part in rows.values())
    if not issparse(train) or not train.shape[0] < train.shape[1] or train.shape[0] > MOST_ROWS or most > MOST_OTHERS:
        return rows
    with one_thread():
        values, vectors = np.linalg.eigh((train @ train.T).toarray())  # (N,), (N, N)
        kept = values > SMALLEST * values[-1]
        axes = vectors[:, kept] / np.sqrt(values[kept])  # (N, R)
        return {name: (part @ train.T).toarray() @ axes for name, part in rows.items()}
