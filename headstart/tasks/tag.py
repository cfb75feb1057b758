"""A tag for each word, read from the state of its first token: rows, batches, evaluation.

Shapes: B rows, T tokens, N words, D width, C tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.models.base import Base
from headstart.models.heads import ClassHead, Model
from headstart.targets.tags import PADDING, Tags
from headstart.targets.target import Scores
from headstart.tasks.classify import EVALUATED_AT_ONCE, Classify
from headstart.text.batch import Batches, Numbers, Rng, RowBatches, by_length, each, in_order, pad
from headstart.text.read import Example
from headstart.text.subwords import WordRows, word_rows
from headstart.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagBatch:
    """Rows, and the words in them."""

    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    row: Tensor  # (N,), where the first token of each word stands
    at: Tensor  # (N,)
    target: Tensor  # (N,)
    place: Tensor  # (N, 2), the text of each word and its number there

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())

    def to(self, device: str) -> TagBatch:
        return TagBatch(*(t.to(device) for t in vars(self).values()))


@dataclass(frozen=True)
class ReadBatch:
    """Words that a frozen base has read already."""

    states: Tensor  # (N, D)
    target: Tensor  # (N,)
    place: Tensor  # (N, 2)
    tokens: int

    def to(self, device: str) -> ReadBatch:
        return ReadBatch(self.states.to(device), self.target.to(device), self.place.to(device), self.tokens)


WordBatch = TagBatch | ReadBatch


class Tag(Classify):
    """Tags of words."""

    target: Tags

    def loss(self, model: Model, batch: Any) -> tuple[Tensor, float]:
        return model.head.loss(word_states(model, batch), batch.target)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Iterable[Any]) -> Scores:
        loss = weight = 0.0
        places, truth, said = [], [], []
        for total, count, place, right, answer in each(partial(self._of_words, model), batches):
            loss, weight = loss + float(total), weight + float(count)
            places.append(place.cpu().numpy())
            truth.append(right.cpu().numpy())
            said.append(answer.cpu().numpy())
        where = np.concatenate(places)
        known, answers = (by_text(where, np.concatenate(part)) for part in (truth, said))
        return {"loss": loss / weight, **self.target.scores(known, answers)}

    def _of_words(self, model: Model, batch: Any) -> tuple[Tensor, float, Tensor, Tensor, Tensor]:
        states = word_states(model, batch)
        total, count = model.head.loss(states, batch.target)
        return total, count, batch.place, batch.target, model.head.logits(states).argmax(-1)


def by_text(place: NDArray[np.int64], tags: NDArray[np.int64]) -> NDArray[np.int32]:
    """Tags of words as (texts, words), PADDING behind the last word of each text.

    >>> by_text(np.array([[0, 0], [1, 0], [1, 1]]), np.array([4, 5, 6])).tolist()
    [[4, -1], [5, 6]]
    """
    found = np.full(place.max(0, initial=-1) + 1, PADDING, dtype=np.int32)
    found[place[:, 0], place[:, 1]] = tags
    return found


def word_states(model: Model, batch: WordBatch) -> Tensor:
    """What the head reads of each word, (N, D)."""
    if isinstance(batch, ReadBatch):
        return batch.states
    return model.features(batch.ids, batch.mask)[batch.row, batch.at]


class TagText:
    """Sentences as tokens with the tags of their words, and their batches."""

    cut = 0  # no text is: a long one is read in parts

    def __init__(self, rows: Sequence[Example], target: Tags, tokenizer: Tokenizer, base: Base) -> None:
        self.pad, self.texts = tokenizer.pad, [e.text for e in rows]
        self.words = word_rows(self.texts, tokenizer, base.causal, base.max_len)
        self.rows = self.words.rows
        self.lengths = np.bincount(self.words.owner, self.rows.lengths, len(rows)).astype(np.int64)
        self.targets = target.encode([e.label for e in rows])
        self.features: Callable[[], Tensor] | None = None  # the states of all words, where the base is frozen

    @property
    def tags(self) -> NDArray[np.int64]:
        """Of all words, (N,)."""
        return self.targets[self.targets != PADDING].astype(np.int64)

    def batches(self, batch_size: int, seed: int) -> Batches[Any]:
        """Training batches, for ever."""
        return RowBatches(self.lengths, batch_size, self.collate, seed)

    def measured(self) -> Sequence[WordBatch]:
        """Every sentence once."""
        return in_order(self.lengths, EVALUATED_AT_ONCE, self.collate)

    def states(self, model: Model, device: str) -> Tensor:
        """What the head reads of every word, (N, D)."""
        return states_of(model, self.words, self.pad, device)

    def outputs(self, model: Model, device: str) -> NDArray[np.int32]:
        """The tags that the model gives each text, (texts, W)."""
        states = self._read if self.features is not None else self.states(model, device)
        found = np.full(self.targets.shape, PADDING, dtype=np.int32)
        found[self.targets != PADDING] = probabilities_of(model, states.to(device)).argmax(-1)
        return found

    @cached_property
    def _read(self) -> Tensor:
        assert self.features is not None, "only a frozen base reads the rows once for all"
        return self.features()

    def collate(self, part: Numbers, rng: Rng) -> WordBatch:
        words = [self.words.words_of(int(text)) for text in part]
        chosen = np.concatenate([np.arange(own.start, own.stop) for own in words])
        place = np.concatenate(
            [np.stack([np.full(own.stop - own.start, text), np.arange(own.stop - own.start)], 1) for text, own in zip(part, words, strict=True)]
        )  # fmt: skip
        target, places = torch.from_numpy(self.targets[place[:, 0], place[:, 1]].astype(np.int64)), torch.from_numpy(place)  # fmt: skip
        if self.features is not None:
            return ReadBatch(self._read[torch.from_numpy(chosen)], target, places, int(self.lengths[part].sum()))
        rows = [i for text in part for i in self.words.rows_of(int(text))]
        ids, mask = pad([self.rows[i] for i in rows], self.pad)
        order = np.empty(len(self.rows), dtype=np.int64)
        order[rows] = np.arange(len(rows))
        row, at = torch.from_numpy(order[self.words.row[chosen]]), torch.from_numpy(self.words.at[chosen])
        return TagBatch(ids, mask, row, at, target, places)


@torch.inference_mode()
def states_of(model: Model, words: WordRows, pad_id: int, device: str = "cpu") -> Tensor:
    """What the head reads of every word of some texts, (N, D)."""
    model.eval()
    found = torch.empty(len(words.row), model.base.width, device=device)
    for part in by_length(words.rows.lengths, EVALUATED_AT_ONCE):
        ids, mask = (t.to(device) for t in pad([words.rows[int(i)] for i in part], pad_id))
        hidden = model.features(ids, mask)  # (B, T, D)
        order = np.full(len(words.rows), -1, dtype=np.int64)
        order[part] = np.arange(len(part))
        chosen = np.flatnonzero(order[words.row] >= 0)
        found[torch.from_numpy(chosen)] = hidden[order[words.row[chosen]], words.at[chosen]]
    return found


@torch.inference_mode()
def probabilities_of(model: Model, states: Tensor) -> NDArray[np.float64]:
    """Of the tags of each word, (N, C)."""
    head = model.eval().head
    assert isinstance(head, ClassHead)
    return head.outputs(states).double().cpu().numpy()
