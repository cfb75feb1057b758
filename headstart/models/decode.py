"""Text out of a model, one token at a time: greedy, sampled or by beam search, over one step function.

A step function takes the tokens that were added, (B, T), and gives the logits of the next one, (B, V). One that can
`keep` some of its rows, in any order and number, can also be searched. Language models and translators have both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headstart.models.base import Cache
from headstart.models.heads import LanguageHead, Model
from headstart.models.seq2seq import Seq2Seq, State

Step = Callable[[Tensor], Tensor]
COLDEST = 1e-6  # temperature below which logits divided by it may overflow: the most probable token is all that is left


class BranchingStep(Protocol):
    def __call__(self, ids: Tensor) -> Tensor: ...

    def keep(self, rows: Tensor) -> None:
        """From here on, row i goes on from what was row rows[i]."""
        ...


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0  # 0 (or below COLDEST) takes the most probable token
    top_k: int = 0  # sample among this many; 0 = all
    top_p: float = 1.0  # sample among the fewest tokens that hold this much probability
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    id: int
    probability: float  # the model's own, before temperature and cuts
    top: list[tuple[int, float]]  # the most probable tokens, most probable first


def generate(
    step: Step,
    prompt: Tensor,
    tokens: int,
    end: int | None,
    how: Sampling,
    top: int = 0,
    never: Sequence[int] = (),
) -> Iterator[Choice]:
    """Up to `tokens` tokens after the (1, T) prompt, stopping at `end`.

    `never` are tokens that are not chosen however probable: those that no text has, such as padding.
    """
    random = torch.Generator(prompt.device).manual_seed(how.seed)
    suppressed = torch.tensor(list(never), dtype=torch.long, device=prompt.device)
    added = prompt
    for _ in range(tokens):
        with torch.inference_mode():
            logits = step(added)  # (1, V)
            probabilities = logits.softmax(-1)
            allowed = logits.index_fill(1, suppressed, -torch.inf) if len(suppressed) else logits
            added = _likeliest(allowed) if how.temperature < COLDEST else _sample(allowed, how, random)
            probability = probabilities.gather(1, added)
            best = probabilities[0].topk(min(top, probabilities.size(1))) if top else None
        ranked = list(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else []
        choice = Choice(int(added), float(probability), ranked)
        yield choice
        if choice.id == end:
            return


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without the end
    log_probability: float  # of all its tokens, the end included
    score: float  # what hypotheses are ranked by: log_probability / tokens ** length_penalty
    finished: bool  # whether the end was reached


@torch.inference_mode()
def search(
    step: BranchingStep, start: Tensor, tokens: int, end: int, beams: int = 1, length_penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """The `beams` best continuations of each (B, T) row of `start`, of `tokens` tokens at most, best first.

    One beam is greedy. A text is done when it has `beams` finished continuations of which even the worst is better
    than the present score of the best unfinished one.
    """
    found: list[list[Hypothesis]] = [[] for _ in start]
    texts = torch.arange(len(start), device=start.device)  # those that are unfinished
    written = start.new_empty(len(start), 1, 0)  # (texts, beams, tokens so far)
    sums = torch.zeros(len(start), 1, device=start.device)  # log probabilities, (texts, beams)
    logits = step(start)  # (texts * beams, V)
    for length in range(1, tokens + 1):
        vocab = logits.size(-1)
        totals = (sums.unsqueeze(-1) + logits.view(*sums.shape, vocab).log_softmax(-1)).flatten(1)  # (texts, beams * V)
        # At most one of a beam's continuations ends it, so of twice as many enough go on.
        top = totals.topk(min(2 * beams, totals.size(1)))  # (texts, 2 * beams)
        beam, token = top.indices // vocab, top.indices % vocab
        ends = token == end
        for i, rank in ends[:, :beams].nonzero().tolist():
            ids = written[i, beam[i, rank]].tolist()
            total = float(top.values[i, rank])
            found[int(texts[i])].append(Hypothesis(ids, total, total / length**length_penalty, True))
        alive = min(beams, sums.size(1) * (vocab - 1))
        order = (ends.int() * totals.size(1) + torch.arange(ends.size(1), device=ends.device)).argsort(1)[:, :alive]
        beam, token, sums = (each.gather(1, order) for each in (beam, token, top.values))
        written = torch.cat([written.gather(1, beam.unsqueeze(-1).expand(-1, -1, length - 1)), token.unsqueeze(-1)], 2)
        scores = (sums[:, 0] / length**length_penalty).tolist()
        unfinished = [i for i, text in enumerate(texts.tolist()) if not _settled(found[text], beams, scores[i])]
        if not unfinished or length == tokens:
            break
        kept = torch.tensor(unfinished, device=start.device)
        rows = kept.unsqueeze(1) * (logits.size(0) // len(texts)) + beam[kept]
        texts, written, sums = texts[kept], written[kept], sums[kept]
        step.keep(rows.flatten())  # (texts * beams,)
        logits = step(token[kept].view(-1, 1))
    for i in unfinished:
        for ids, total in zip(written[i].tolist(), sums[i].tolist(), strict=True):
            found[int(texts[i])].append(Hypothesis(ids, total, total / len(ids) ** length_penalty, False))
    possible = ([h for h in each if h.log_probability > -math.inf] for each in found)
    return [sorted(each, key=lambda h: (not h.finished, -h.score))[:beams] for each in possible]


def _settled(found: list[Hypothesis], beams: int, score: float) -> bool:
    best = sorted((h.score for h in found), reverse=True)[:beams]
    return len(best) == beams and best[-1] >= score


class TranslationStep:
    """The step function of an encoder and decoder that have read their sources."""

    def __init__(self, model: Seq2Seq, state: State, never: Sequence[int] = ()) -> None:
        """`never` are tokens that no text has, such as padding."""
        self.model, self.state, self.never = model, state, list(never)

    def __call__(self, ids: Tensor) -> Tensor:
        logits, self.state = self.model.step(ids, self.state)
        logits[:, self.never] = -torch.inf
        return logits

    def keep(self, rows: Tensor) -> None:
        self.state = {name: each[rows] for name, each in self.state.items()}


class LanguageStep:
    """The step function of a causal language model; beyond its context it keeps the later half and goes on."""

    def __init__(self, model: Model) -> None:
        assert isinstance(model.head, LanguageHead), "only a language model has a next token"
        self.model, self.logits = model.eval(), model.head.scorer()
        self.seen: list[Tensor] = []  # every token so far, (B, T) as they came
        self.cache: Cache | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        base = self.model.base
        self.seen.append(ids)
        if self.cache is None or self.cache.length + ids.size(1) > base.max_len:
            self.cache = base.new_cache(len(ids))
            seen = torch.cat(self.seen, dim=1)
            ids = seen[:, -(base.max_len // 2) :] if seen.size(1) > base.max_len else seen
        return self.logits(base.step(ids, self.cache).last[:, -1])

    def keep(self, rows: Tensor) -> None:
        self.seen = [torch.cat(self.seen, dim=1)[rows]]
        if self.cache is not None:
            self.cache = Cache([held[:, rows] for held in self.cache.layers], self.cache.length)


def _likeliest(logits: Tensor) -> Tensor:
    """The first of the most probable tokens, (1, 1), of the (1, V) logits."""
    if logits.device.type != "cpu" or logits.dtype != torch.float32:
        return logits.argmax(-1, keepdim=True)
    return torch.tensor([[int(logits.numpy().argmax())]])  # numpy takes a fifth of the time


def _sample(logits: Tensor, how: Sampling, random: torch.Generator) -> Tensor:
    """One token, (1, 1), drawn from the (1, V) logits."""
    logits = logits[0] / how.temperature
    if how.top_k:
        kept = logits.topk(min(how.top_k, len(logits))).values[-1]
        logits = logits.masked_fill(logits < kept, -torch.inf)
    if how.top_p < 1:
        ordered, index = logits.softmax(-1).sort(descending=True)
        beyond = ordered.cumsum(-1) - ordered >= how.top_p  # the token that crosses the line stays
        beyond[0] = False
        logits = logits.index_fill(0, index[beyond], -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=random)[None]
