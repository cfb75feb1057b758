"""Co-occurrence (PPMI-SVD) embeddings of tokens, from counts in a context window and in whole texts.

The counts become positive pointwise mutual information (PPMI), reduced to a few dimensions by a truncated singular value
decomposition (Levy, Goldberg and Dagan, 2015). It takes seconds where gradient steps would take hours. Window counts
capture the kind of word, and make antonyms similar; text counts capture topic and sentiment, because a text that praises
seldom blames. docs/pretraining.md has the gain from each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix

from headstart.text.batch import windows
from headstart.text.tokenizer import TOKENS_AT_ONCE, TokenRows

WINDOW = 8  # tokens on either side, in a large corpus
WIDE_WINDOW = 30  # in a small corpus, where few pairs of words co-occur twice in a narrow window
LITTLE = 1_000_000  # tokens; in fewer, the window is the wide one, and a book is one text, however many its blocks
SAME_TEXT = 512  # tokens; a longer text, such as a book, is split
MOST_COUNTED = 20_000_000  # tokens; of more, an even sample of pieces is counted
MOST_TEXTS = 200_000  # of more, such as lines, an even sample is used, since each takes memory
SMOOTHING = 0.75  # context distribution smoothing, so that rare contexts do not dominate
LENGTH = 0.5  # power of the singular values: 0 gives all directions equal weight, 1 leaves them as they are


def token_vectors(
    rows: TokenRows, vocab: int, width: int, known: NDArray[np.float32] | None = None, seed: int = 0
) -> NDArray[np.float32]:
    """One vector for each of `vocab` tokens, (vocab, width); their mean square is 1. Those without neighbours have none.

    Pretrained word vectors, `known` (vocab, any), take up to half of the width, also of tokens that do not occur.
    """
    rows = _sample(rows)
    if known is None:
        return _counted(rows, vocab, width, seed)
    part = min(width // 2, known.shape[1])
    frequency = np.bincount(np.asarray(rows.ids), minlength=vocab)
    return np.hstack([_counted(rows, vocab, width - part, seed), _principal(known, frequency, part)])


def _sample(rows: TokenRows) -> TokenRows:
    """`rows`, or of more than MOST_COUNTED tokens an even sample of pieces, which is in memory."""
    if len(rows.ids) <= MOST_COUNTED:
        return TokenRows(np.asarray(rows.ids[:]), rows.starts, rows.stops)
    pieces = windows(rows, SAME_TEXT, 0)
    return TokenRows.of(pieces[i] for i in range(0, len(pieces), -(-len(rows.ids) // MOST_COUNTED)))


def _counted(rows: TokenRows, vocab: int, width: int, seed: int) -> NDArray[np.float32]:
    """Vectors of neighbours and, where there are many texts, in the mean longer than the window, a half of texts."""
    little = len(rows.ids) < LITTLE
    window = WIDE_WINDOW if little else WINDOW
    near = neighbours(rows, vocab, window)
    if len(rows.ids) > window * len(rows):  # in shorter texts, all tokens are neighbours
        texts = texts_of(rows, vocab)
        many = np.count_nonzero(rows.lengths) if little else texts.shape[1]
        if many > width // 2:
            return np.hstack([_reduced(near, width - width // 2, seed), _reduced(texts, width // 2, seed)])
    return _reduced(near, width, seed)


def _reduced(counts: csr_matrix, width: int, seed: int) -> NDArray[np.float32]:
    """The rows of a table of counts as vectors, (rows, width), of mean square 1."""
    from sklearn.utils.extmath import randomized_svd  # sklearn takes a second to load

    counts = counts.tocoo()
    frequency = np.bincount(counts.row, counts.data, counts.shape[0])
    context = np.bincount(counts.col, counts.data, counts.shape[1]) ** SMOOTHING
    expected = frequency[counts.row] * context[counts.col] / context.sum()
    information = np.log(counts.data / expected)
    near = information > 0
    ppmi = coo_matrix((information[near], (counts.row[near], counts.col[near])), counts.shape).tocsr()
    rank = min(width, *(size - 1 for size in counts.shape))
    left, values, _ = randomized_svd(ppmi, rank, n_iter=4, random_state=seed)
    vectors: NDArray[np.float32] = np.zeros((counts.shape[0], width), np.float32)
    vectors[:, :rank] = left * values**LENGTH
    vectors /= np.sqrt(np.mean(vectors**2)) or 1
    return vectors


def _principal(known: NDArray[np.float32], frequency: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """The directions in which known vectors differ most, (vocab, width), of mean square 1; unknown ones stay zero."""
    seen = known.any(1)
    there = known[seen] - np.average(known[seen], axis=0, weights=frequency[seen] + 1)  # + 1: all may be unseen here
    _, _, directions = np.linalg.svd(there, full_matrices=False)
    vectors: NDArray[np.float32] = np.zeros((len(known), width), np.float32)
    vectors[seen, : len(directions)] = there @ directions[:width].T
    vectors /= np.sqrt(np.mean(vectors[seen] ** 2)) or 1
    return vectors


def neighbours(rows: TokenRows, vocab: int, window: int) -> csr_matrix:
    """How often one token stands within the window of another in the same text, (vocab, vocab)."""
    total = csr_matrix((vocab, vocab), dtype=np.float64)
    for at, ids in rows.stretches(beyond=window):
        text = np.searchsorted(rows.starts, np.arange(at, at + len(ids)), "right")
        size = min(len(ids), TOKENS_AT_ONCE)
        for distance in range(1, window + 1):
            first = slice(0, min(size, len(ids) - distance))
            same = text[first] == text[distance:][first]
            before, after = ids[first][same], ids[distance:][first][same]
            total = total + coo_matrix((np.ones(len(before)), (before, after)), (vocab, vocab)).tocsr()
    return total + total.T


def texts_of(rows: TokenRows, vocab: int) -> csr_matrix:
    """How often each token stands in each text, or piece of a long one, (vocab, pieces)."""
    pieces = -(-rows.lengths // SAME_TEXT)
    place = np.arange(len(rows.ids)) - np.repeat(rows.starts[:-1], rows.lengths)
    piece = np.repeat(np.cumsum(pieces) - pieces, rows.lengths) + place // SAME_TEXT
    counts = coo_matrix((np.ones(len(piece)), (rows.ids, piece)), (vocab, int(pieces.sum()))).tocsc()
    return counts[:, :: -(-counts.shape[1] // MOST_TEXTS)].tocsr()
