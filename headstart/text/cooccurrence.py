"""Word meanings from counting: which tokens stand near which, as one vector a token.

The counts become pointwise mutual information, of which the positive part is kept (PPMI) and cut down to a few
dimensions by a truncated singular value decomposition (Levy, Goldberg and Dagan, 2015). It takes seconds where gradient
steps would take hours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix

from headstart.text.tokenizer import TokenRows

WINDOW = 8  # tokens on either side that count as near, in much text
WIDE_WINDOW = 30  # in little text: what stands in the same paragraph must do where few words are neighbours twice
LITTLE = 1_000_000  # tokens
SMOOTHING = 0.75  # of the frequencies of neighbours, so that rare ones do not win
LENGTH = 0.5  # power of the singular values: 0 makes all directions alike, 1 leaves them as they are


def token_vectors(rows: TokenRows, vocab: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    """One vector for each of `vocab` tokens, (vocab, width); their mean square is 1. Those without neighbours have none."""
    from sklearn.utils.extmath import randomized_svd  # sklearn takes a second to load

    counts = neighbours(rows, vocab).tocoo()
    frequency = np.bincount(counts.row, counts.data, vocab)
    context = frequency**SMOOTHING
    expected = frequency[counts.row] * context[counts.col] / context.sum()
    information = np.log(counts.data / expected)
    near = information > 0
    ppmi = coo_matrix((information[near], (counts.row[near], counts.col[near])), (vocab, vocab)).tocsr()
    rank = min(width, vocab - 1)
    left, values, _ = randomized_svd(ppmi, rank, n_iter=4, random_state=seed)
    vectors = np.zeros((vocab, width), np.float32)
    vectors[:, :rank] = left * values**LENGTH
    return vectors / (np.sqrt(np.mean(vectors**2)) or 1)


def neighbours(rows: TokenRows, vocab: int) -> csr_matrix:
    """How often one token stands within the window of another in the same text, (vocab, vocab)."""
    text = np.repeat(np.arange(len(rows)), rows.lengths)
    total = csr_matrix((vocab, vocab), dtype=np.float64)
    for distance in range(1, (WIDE_WINDOW if len(rows.ids) < LITTLE else WINDOW) + 1):
        same = text[:-distance] == text[distance:]
        before, after = rows.ids[:-distance][same], rows.ids[distance:][same]
        total = total + coo_matrix((np.ones(len(before)), (before, after)), (vocab, vocab)).tocsr()
    return total + total.T
