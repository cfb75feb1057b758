"""Write the translation of a text: batches of pairs, their loss, and translations by greedy or beam search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.errors import DataError
from headstart.models.decode import Hypothesis, TranslationStep, search
from headstart.models.seq2seq import Seq2Seq
from headstart.shapes import IGNORE
from headstart.tasks.metrics import Estimate, summed
from headstart.tasks.translation_scores import ratio
from headstart.text.batch import Batches, Numbers, Rng, RowBatches, by_length, each, in_order, next_token, pad
from headstart.text.pairs import Pair
from headstart.text.tokenizer import Tokenizer, TokenRows

EVALUATED_AT_ONCE = 256  # pairs, or texts to translate
SCORED_AT_ONCE = 1024  # target tokens that meet the whole vocabulary


@dataclass(frozen=True)
class PairBatch:
    source: Tensor  # (B, S)
    mask: Tensor  # (B, S), True = a real token
    given: Tensor  # (B, T): the start and the target without its end
    target: Tensor  # (B, T): the target and its end, with IGNORE

    @property
    def tokens(self) -> int:
        """Real ones of both sides, for the rate."""
        return int(self.mask.sum()) + int((self.target != IGNORE).sum())

    def to(self, device: str) -> PairBatch:
        return PairBatch(*(each.to(device) for each in (self.source, self.mask, self.given, self.target)))


class TokenLoss(TypedDict):
    loss: float  # nats per target token
    tokens: int


class LossEstimate(Estimate):
    """The loss in nats per target token, with its interval over pairs."""

    tokens: int


class Translate:
    def loss(self, model: Seq2Seq, batch: PairBatch) -> tuple[Tensor, float]:
        return model.loss(batch.source, batch.mask, batch.given, batch.target)

    @torch.no_grad()
    def evaluate(self, model: Seq2Seq, batches: Iterable[PairBatch]) -> TokenLoss:
        nats, tokens = summed(each(partial(self.loss, model), batches))
        return {"loss": nats / tokens, "tokens": int(tokens)}

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        return (-scores["loss"],)


class TranslateText:
    """Pairs as rows of tokens, without those that are longer than the model's context, and their batches."""

    def __init__(self, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, context: int) -> None:
        self.pad, self.target_pad = source.pad, target.pad
        sources, targets = source_rows([p.source for p in pairs], source), target.encode([p.target for p in pairs])
        fits = (sources.lengths <= context) & (targets.lengths <= context + 1)  # the end is never read
        kept = np.flatnonzero(fits).tolist()
        self.left_out = len(pairs) - len(kept)
        self.pairs = [pairs[i] for i in kept]
        self.sources = sources if fits.all() else TokenRows.of(sources[i] for i in kept)
        self.rows = targets if fits.all() else TokenRows.of(targets[i] for i in kept)
        self.unknown = source.unknown(self.sources) + target.unknown(self.rows)

    def must_fit(self, what: str, context: int) -> None:
        if self.left_out and not self.pairs:
            raise DataError(
                f"{what} fits into the {context} tokens of the model. Raise them with --context.", "DATA_SMALL"
            )

    @property
    def longest(self) -> int:
        """Half as many tokens again as the longest target: a translation that has not ended then never will."""
        return int(self.rows.lengths.max(initial=2) * 3 // 2)

    def batches(self, batch_size: int, seed: int) -> Batches[PairBatch]:
        """Training batches, for ever; pairs of similar length together."""
        return RowBatches(self.sources.lengths + self.rows.lengths, batch_size, self._collate, seed)

    def measured(self) -> Sequence[PairBatch]:
        """Every pair once."""
        return in_order(self.sources.lengths + self.rows.lengths, EVALUATED_AT_ONCE, self._collate)

    @torch.no_grad()
    def loss(self, model: Seq2Seq, device: str) -> LossEstimate:
        """Nats per target token, the end included, with its interval over pairs."""
        nats, tokens = [], []
        for batch in self.measured():
            here = batch.to(device)
            counted = here.target != IGNORE
            hidden = model.eval().decode(here.given, model.encode(here.source, here.mask))[counted]
            rows = zip(hidden.split(SCORED_AT_ONCE), here.target[counted].split(SCORED_AT_ONCE), strict=True)
            each = torch.cat([F.cross_entropy(model.head(part), right, reduction="none") for part, right in rows])
            nats += each.new_zeros(counted.shape).masked_scatter(counted, each).double().sum(1).tolist()
            tokens += counted.sum(1).tolist()
        return {**ratio(nats, tokens), "tokens": int(sum(tokens))}

    def _collate(self, part: Numbers, rng: Rng) -> PairBatch:
        ids, mask = pad([self.sources[int(i)] for i in part], self.pad)
        shifted = next_token([self.rows[int(i)] for i in part], self.target_pad)
        return PairBatch(ids, mask, shifted.ids, shifted.target)


def source_rows(texts: Sequence[str], tokenizer: Tokenizer) -> TokenRows:
    """Texts as the encoder reads them: start, tokens and end, so that it knows where a text begins and ends."""
    return tokenizer.encode(texts)


@torch.inference_mode()
def translations(
    model: Seq2Seq, rows: TokenRows, pad_id: int, target: Tokenizer, most: int, beams: int = 1,
    length_penalty: float = 1.0, device: str = "cpu",
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best `beams` translations of each row, in the order of the rows."""
    model.eval()
    found: list[list[Hypothesis]] = [[] for _ in range(len(rows))]
    for part in by_length(rows.lengths, max(1, EVALUATED_AT_ONCE // beams)):
        ids, mask = pad([rows[int(i)] for i in part], pad_id)
        step = TranslationStep(model, model.encode(ids.to(device), mask.to(device)), target.suppressed)
        start = torch.full((len(part), 1), target.start, device=device)
        for i, best in zip(part, search(step, start, most, target.end, beams, length_penalty), strict=True):
            found[int(i)] = best
    return found
