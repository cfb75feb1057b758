"""Completions of a causal language model, token by token, with log-probabilities; also of the prompt itself.

Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from headstart.errors import ConfigError, DataError, ModelError
from headstart.models.decode import Choice, LanguageStep, Sampling, generate
from headstart.use.language import LoadedLanguageModel

ROWS_AT_ONCE = 64  # positions whose probabilities over the whole vocabulary are in memory, in double precision


@dataclass(frozen=True)
class ScoredToken:
    id: int
    token: str
    log_probability: float | None  # given the tokens before it; None for the first
    top: tuple[tuple[str, float], ...] = ()  # the most probable tokens in its place, with log-probabilities


def prompt_ids(model: LoadedLanguageModel, prompt: str | Sequence[int], room: int = 0) -> list[int]:
    """The tokens of a prompt, which must leave `room` for new ones in the context; ids are taken as they are."""
    saved = model.saved
    if not saved.config.causal:
        raise ModelError(
            "This model is bidirectional; only a causal one, which reads left to right, can continue a text."
        )
    if isinstance(prompt, str):
        ids = saved.tokenizer.encode([prompt], model.config.data.boundaries, end=False)[0].tolist()
    else:
        ids = list(prompt)
        if any(not 0 <= i <= saved.tokenizer.largest for i in ids):
            raise DataError(f"A token id of the prompt is not among 0 to {saved.tokenizer.largest}.", "DATA_TOKENS")
    if not ids:
        raise ConfigError("This model has no start token to begin from: give a prompt.")
    context = saved.model.base.max_len
    if len(ids) + room > context:
        raise ConfigError(
            f"The prompt has {len(ids)} tokens and {room} are to follow; the context is {context}. Shorten the prompt, or "
            "lower max_tokens."
        )
    return ids


@torch.inference_mode()
def prompt_scores(model: LoadedLanguageModel, ids: Sequence[int], top: int = 0) -> list[ScoredToken]:
    """The log-probability of every token given those before it."""
    network, tokenizer = model.saved.model.eval(), model.saved.tokenizer
    row = torch.tensor([list(ids)])
    hidden = network.features(row, torch.ones_like(row, dtype=torch.bool))[0, :-1]  # (T - 1, D)
    scores = [ScoredToken(ids[0], tokenizer.piece(ids[0]), None)]
    for begin in range(0, len(hidden), ROWS_AT_ONCE):
        log = network.head.logits(hidden[begin : begin + ROWS_AT_ONCE]).double().log_softmax(-1)  # (rows, V)
        best = log.topk(min(top, log.size(-1))) if top else None
        for k, i in enumerate(ids[begin + 1 : begin + 1 + len(log)]):
            ranked = zip(best.indices[k].tolist(), best.values[k].tolist(), strict=True) if best else ()
            told = tuple((tokenizer.piece(j), max(value, -1e4)) for j, value in ranked)
            scores.append(ScoredToken(i, tokenizer.piece(i), max(float(log[k, i]), -1e4), told))
    return scores


def continuation(
    model: LoadedLanguageModel, ids: Sequence[int], tokens: int, how: Sampling, top: int = 0
) -> Iterator[ScoredToken]:
    """Up to `tokens` new tokens, one at a time; the end token, where it comes, is the last."""
    tokenizer = model.saved.tokenizer
    step = LanguageStep(model.saved.model)
    for choice in generate(step, torch.tensor([list(ids)]), tokens, tokenizer.end, how, top, tokenizer.suppressed):
        yield _scored(model, choice)


def _scored(model: LoadedLanguageModel, choice: Choice) -> ScoredToken:
    piece = model.saved.tokenizer.piece
    top = tuple((piece(i), _log(p)) for i, p in choice.top)
    return ScoredToken(choice.id, piece(choice.id), _log(choice.probability), top)


def _log(probability: float) -> float:
    return math.log(max(probability, sys.float_info.min))
