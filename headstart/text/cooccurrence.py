"""Co-occurrence (PPMI-SVD) embeddings of tokens, from counts in a context window and in whole texts.

The counts become positive pointwise mutual information (PPMI), reduced to a few dimensions by a truncated singular value
decomposition (Levy, Goldberg and Dagan, 2015). It takes seconds where gradient steps would take hours. Window counts
capture the kind of word, and make antonyms similar; text counts capture topic and sentiment, because a text that praises
seldom blames. docs/pretraining.md has the gain from each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, hstack

from headstart.text.batch import windows
from headstart.text.tokenizer import TOKENS_AT_ONCE, TokenRows

WINDOW = 8  # tokens on either side, in a large corpus
WIDE_WINDOW = 30  # in a small corpus, where few pairs of words co-occur twice in a narrow window
LITTLE = 1_000_000  # tokens; in fewer, the window is the wide one, and a book is one text, however many its blocks
SAME_TEXT = 512  # tokens; a longer text, such as a book, is split
MOST_COUNTED = 20_000_000  # tokens; of more, an even sample of pieces is counted
MOST_TEXTS = 200_000  # of more, such as lines, an even sample is used, since each takes memory
CELLS_AT_ONCE = 1_000_000  # of a table of counts
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
    part = 0
    if len(rows.ids) > window * len(rows):  # in shorter texts, all tokens are neighbours
        many = np.count_nonzero(rows.lengths) if little else len(_pieces(rows))
        part = width // 2 if many > width // 2 else 0
    near = _reduced(neighbours(rows, vocab, window), width - part, seed)  # one table of counts in memory at a time
    return np.hstack([near, _reduced(texts_of(rows, vocab), part, seed)]) if part else near


def _reduced(counts: csr_matrix, width: int, seed: int) -> NDArray[np.float32]:
    """The rows of a table of counts as vectors, (rows, width), of mean square 1."""
    from sklearn.utils.extmath import randomized_svd  # sklearn takes a second to load

    rank = min(width, *(size - 1 for size in counts.shape))
    information = _ppmi(counts)
    del counts
    left, values, _ = randomized_svd(information, rank, n_iter=4, random_state=seed)
    vectors: NDArray[np.float32] = np.zeros((information.shape[0], width), np.float32)
    vectors[:, :rank] = left * values**LENGTH
    vectors /= np.sqrt(np.mean(vectors**2)) or 1
    return vectors


def _ppmi(counts: csr_matrix) -> csr_matrix:
    """The positive pointwise mutual information of each cell."""
    frequency, context = np.zeros(counts.shape[0]), np.zeros(counts.shape[1])
    for row, column, count in _cells(counts):
        frequency += np.bincount(row, count, len(frequency))
        context += np.bincount(column, count, len(context))
    context **= SMOOTHING
    total = context.sum()
    data, columns = np.empty(counts.nnz), np.empty(counts.nnz, counts.indices.dtype)  # what stays empty takes no memory
    kept, lengths = 0, np.zeros(len(frequency), np.int64)
    for row, column, count in _cells(counts):
        information = np.log(count / (frequency[row] * context[column] / total))
        near = information > 0
        some = slice(kept, kept + int(np.count_nonzero(near)))
        data[some], columns[some] = information[near], column[near]
        kept, lengths = some.stop, lengths + np.bincount(row[near], minlength=len(lengths))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(counts.indptr.dtype)
    return csr_matrix((data[:kept], columns[:kept], starts), counts.shape)


def _cells(counts: csr_matrix) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]]:
    """Row, column and count of all cells, some at a time: what is computed of them takes several times their memory."""
    for at in range(0, counts.nnz, CELLS_AT_ONCE):
        some = slice(at, min(at + CELLS_AT_ONCE, counts.nnz))
        row = np.searchsorted(counts.indptr, np.arange(some.start, some.stop), "right") - 1
        yield row, counts.indices[some], counts.data[some]


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
    """How often one token stands within the window of another in the same text, (vocab, vocab).

    Both orders of a pair are counted as one until the end, in 32 bits: at most MOST_COUNTED times WIDE_WINDOW.
    """
    pairs = csr_matrix((vocab, vocab), dtype=np.int32)
    for at, ids in rows.stretches(beyond=window):
        text = np.searchsorted(rows.starts, np.arange(at, at + len(ids)), "right")
        size = min(len(ids), TOKENS_AT_ONCE)
        found = csr_matrix((vocab, vocab), dtype=np.int32)
        for distance in range(1, min(window, len(ids) - 1) + 1):
            first = slice(0, min(size, len(ids) - distance))
            same = text[first] == text[distance:][first]
            before, after = ids[first][same], ids[distance:][first][same]
            both = np.minimum(before, after), np.maximum(before, after)
            found = found + coo_matrix((np.ones(len(before), np.int32), both), (vocab, vocab)).tocsr()
        pairs = pairs + found
    return pairs + pairs.T


def texts_of(rows: TokenRows, vocab: int) -> csr_matrix:
    """How often each token stands in each text, or piece of a long one, (vocab, pieces)."""
    pieces = _pieces(rows)
    group = np.cumsum(pieces.lengths) // TOKENS_AT_ONCE
    found = [csc_matrix((vocab, 0), dtype=np.int32)]
    for numbers in np.split(np.arange(len(pieces)), np.flatnonzero(np.diff(group)) + 1):
        piece = np.repeat(np.arange(len(numbers)), pieces.lengths[numbers])
        ids = np.concatenate([pieces[i] for i in numbers])
        found.append(coo_matrix((np.ones(len(ids), np.int32), (ids, piece)), (vocab, len(numbers))).tocsc())
    return hstack(found, "csc").tocsr()


def _pieces(rows: TokenRows) -> TokenRows:
    """Texts that are not empty, the long ones in pieces; of too many an even sample."""
    pieces = windows(rows, SAME_TEXT, 0)
    some = np.flatnonzero(pieces.lengths)
    some = some[:: max(1, -(-len(some) // MOST_TEXTS))]
    return TokenRows(pieces.ids, pieces.begins[some], pieces.ends[some])
