"""Rows of ids become batches: padding, masks, shifts, packing and buckets all live here and nowhere else.

Training batches are a function of (seed, index): any batch of any epoch can be made again, which is what lets
a killed run go on exactly where it was. B examples, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.shapes import IGNORE
from headstart.text.tokenizer import Stream, Tokenizer, TokenRows

BUCKET = 50  # batches whose rows are sorted by length together
PASS = 48  # tokens that a small model reads in the time that a forward pass takes beside its tokens; a large one fewer

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]  # of rows, or places in a stream
Rng = np.random.Generator


class AnyBatch(Protocol):
    """What the training loop needs to know of a batch."""

    @property
    def tokens(self) -> int: ...

    def to(self, device: str) -> Self: ...


B = TypeVar("B", bound=AnyBatch)
R = TypeVar("R")
B_co = TypeVar("B_co", bound=AnyBatch, covariant=True)
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T), True = a real token
    target: Tensor  # (B, T) token ids with IGNORE, or (B,) class numbers

    @property
    def tokens(self) -> int:
        """Real ones, for the rate."""
        return int(self.mask.sum())

    def to(self, device: str) -> Batch:
        return Batch(self.ids.to(device), self.mask.to(device), self.target.to(device))


def pad(rows: Sequence[Sequence[int] | Ids], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and their mask, both (B, T), T the longest row.

    >>> ids, mask = pad([[5, 6, 7], [8]])
    >>> ids.tolist()
    [[5, 6, 7], [8, 0, 0]]
    >>> mask.sum(1).tolist()
    [3, 1]
    """
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad_id, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.as_tensor(np.asarray(row, dtype=np.int64))
    return ids, torch.arange(ids.size(1)) < lengths[:, None]


def next_token(rows: Sequence[Ids], pad_id: int) -> Batch:
    """X, and Y = X shifted by one: a row of n + 1 tokens gives n predictions.

    >>> batch = next_token([np.array([2, 7, 8, 3])], pad_id=0)
    >>> batch.ids.tolist(), batch.target.tolist()
    ([[2, 7, 8]], [[7, 8, 3]])
    """
    ids, mask = pad(rows, pad_id)
    target = ids[:, 1:].masked_fill(~mask[:, 1:], IGNORE)
    return Batch(ids[:, :-1], mask[:, 1:], target)  # a row's last token is only ever a target


def hidden_tokens(rows: Sequence[Ids], tokenizer: Tokenizer, rate: float, rng: Rng) -> Batch:
    """Some tokens hidden, to be guessed from both sides (BERT: 80 % masked, 10 % swapped, 10 % kept)."""
    assert tokenizer.mask is not None, "the tokenizer has no mask token"
    ids, mask = pad(rows, tokenizer.pad)
    special = (ids == tokenizer.start) | (ids == tokenizer.end)
    chosen = torch.from_numpy(rng.random(ids.shape) < rate) & mask & ~special
    if not chosen.any():  # a batch of very short texts must still teach something
        first = (mask & ~special).nonzero()[:1]
        chosen[first[:, 0], first[:, 1]] = True
    fate = torch.from_numpy(rng.random(ids.shape))
    noise = torch.from_numpy(rng.integers(0, tokenizer.size, ids.shape))
    shown = torch.where(chosen & (fate < 0.8), tokenizer.mask, ids)
    shown = torch.where(chosen & (fate >= 0.9), noise, shown)
    return Batch(shown, mask, ids.masked_fill(~chosen, IGNORE))


def blocks(stream: Stream, size: int, overlap: int) -> list[Ids]:
    """`stream` cut into pieces of at most `size`, each beginning with the last `overlap` tokens of the one before.

    >>> [b.tolist() for b in blocks(np.arange(6), 3, 1)]
    [[0, 1, 2], [2, 3, 4], [4, 5]]
    """
    step = size - overlap
    return [stream[i : i + size] for i in range(0, max(1, len(stream) - overlap), step)]


def windows(rows: TokenRows, size: int, overlap: int) -> TokenRows:
    """`rows` with those longer than `size` cut into blocks, so that no token is lost."""
    if not len(rows) or int(rows.lengths.max()) <= size:
        return rows
    step = size - overlap
    counts = -(-np.maximum(1, rows.lengths - overlap) // step)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # of each block in its row
    starts = np.repeat(rows.begins, counts) + number * step
    return TokenRows(rows.ids, starts, np.minimum(starts + size, np.repeat(rows.ends, counts)))


Collate = Callable[[Numbers, Rng], B]  # row numbers -> batch


class Batches(ABC, Generic[B_co]):
    """Training batches by number, for ever; every `per_epoch` of them see each row once."""

    per_epoch: int
    made_of: str  # what the numbers of `plan` count

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._epoch = lru_cache(maxsize=1)(lambda epoch: self.plan(np.random.default_rng([self.seed, 1, epoch])))

    def __call__(self, index: int) -> B_co:
        return self.collate(self.contents(index), np.random.default_rng([self.seed, 2, index]))

    def contents(self, index: int) -> Numbers:
        """What a batch is made of."""
        epoch, i = divmod(index, self.per_epoch)
        return self._epoch(epoch)[i]

    @abstractmethod
    def plan(self, rng: Rng) -> Sequence[Numbers]:
        """What each batch of an epoch is made of."""

    @abstractmethod
    def collate(self, part: Numbers, rng: Rng) -> B_co: ...


class RowBatches(Batches[B]):
    """Rows of similar length padded together; rows and batches in a new order every epoch."""

    made_of = "rows"

    def __init__(self, lengths: Numbers, batch_size: int, collate: Collate[B], seed: int) -> None:
        super().__init__(seed)
        self.lengths, self.batch_size, self._collate = lengths, batch_size, collate
        self.per_epoch = -(-len(lengths) // batch_size)

    def plan(self, rng: Rng) -> Sequence[Numbers]:
        return bucketed(self.lengths, self.batch_size, rng)

    def collate(self, part: Numbers, rng: Rng) -> B:
        return self._collate(part, rng)


class PackedBatches(Batches[Batch]):
    """Blocks of one long stream, cut at a new place every epoch."""

    made_of = "blocks that begin at tokens"

    def __init__(
        self,
        stream: Stream,
        size: int,
        overlap: int,
        batch_size: int,
        collate: Callable[[Sequence[Ids], Rng], Batch],
        seed: int,
    ) -> None:
        super().__init__(seed)
        self.stream, self.size, self.batch_size, self._collate = stream, size, batch_size, collate
        self.stride = size - overlap
        self.blocks = (len(stream) - min(self.stride - 1, len(stream) - size) - overlap) // self.stride
        self.slack = (
            len(stream) - overlap - self.blocks * self.stride
        )  # how far the first cut may move: to the very end
        self.per_epoch = -(-self.blocks // batch_size)

    def plan(self, rng: Rng) -> Sequence[Numbers]:
        first = rng.integers(self.slack + 1)
        starts = rng.permutation(self.blocks)
        starts *= self.stride
        starts += first
        return Lazy(self.per_epoch, lambda i: starts[i * self.batch_size : (i + 1) * self.batch_size])

    def collate(self, part: Numbers, rng: Rng) -> Batch:
        return self._collate([self.stream[start : start + self.size] for start in part], rng)


def bucketed(lengths: Numbers, batch_size: int, rng: Rng) -> list[Numbers]:
    """All row numbers once, in batches of rows of similar length, shuffled."""
    order = rng.permutation(len(lengths))
    batches: list[Numbers] = []
    for i in range(0, len(order), BUCKET * batch_size):
        bucket = order[i : i + BUCKET * batch_size]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        batches += [bucket[j : j + batch_size] for j in range(0, len(bucket), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def by_length(lengths: Numbers, batch_size: int) -> list[Numbers]:
    """All row numbers once, shortest row first."""
    order = np.argsort(lengths, kind="stable")
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


def little_padded(lengths: Numbers, batch_size: int) -> list[Numbers]:
    """The batches of `by_length`, cut where their padding would take longer than another forward pass.

    >>> [part.tolist() for part in little_padded(np.array([4, 100, 5, 99]), 64)]
    [[3, 1], [0, 2]]
    """
    parts = []
    for batch in by_length(lengths, batch_size):
        sizes, last, padding = lengths[batch].tolist(), len(batch), 0
        for i in range(len(batch) - 1, -1, -1):  # from the longest row on
            padding += sizes[last - 1] - sizes[i]
            if padding > PASS:
                parts.append(batch[i + 1 : last])
                last, padding = i + 1, 0
        parts.append(batch[:last])
    return parts


def in_order(lengths: Numbers, batch_size: int, collate: Collate[B]) -> Sequence[B]:
    """Every row once; the same batches, and the same hidden tokens, at every call."""
    parts = by_length(lengths, batch_size)
    return Lazy(len(parts), lambda i: collate(parts[i], np.random.default_rng([0, 3, i])))


class Lazy(Sequence[T_co]):
    """Batches that are made whenever they are asked for: a process makes only those that it measures."""

    def __init__(self, size: int, make: Callable[[int], T_co]) -> None:
        self.size, self.make = size, make

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.make(i) for i in range(self.size)[index]]
        return self.make(range(self.size)[index])


class Dealt(Iterable[B], ABC):
    """Batches to measure that several processes share. Each may go through all of them, or through its own with `map`."""

    @abstractmethod
    def map(self, function: Callable[[B], R]) -> Iterator[R]:
        """What `function`, a tuple of numbers and tensors, is of every batch, in order: each process asks it of its own."""


def each(function: Callable[[B], R], batches: Iterable[B]) -> Iterator[R]:
    """`map`, with the work shared where several processes measure the batches."""
    return batches.map(function) if isinstance(batches, Dealt) else map(function, batches)
