"""Classification without labels: which label word does a language model expect after the text?

A word of several tokens is scored exactly, by the chain rule. A masked model has one mask token for each token of the word
and fills them from left to right.

Shapes: N texts, C classes, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.config import Long
from headstart.models.heads import LanguageHead, Model, last_real
from headstart.prompts import Prompt
from headstart.tasks.classify import EVALUATED_AT_ONCE, per_text
from headstart.text.batch import by_length, pad
from headstart.text.prompted import PromptTokens, prompt_tokens, prompted_rows, word_tokens
from headstart.text.tokenizer import Tokenizer, TokenRows

ROUNDS = 200  # of `matching_bias`: it converges in about ten
LEAST_SHARE, LARGEST_BIAS = 1e-3, 100.0  # a class without a labelled row is rare, not impossible


@torch.inference_mode()
def word_scores(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    prompt: Prompt,
    long: Long = "truncate",
    device: str = "cpu",
) -> Tensor:
    """The log-probability of each label word after each text in the prompt, (N, C); of windows, the mean."""
    assert isinstance(model.head, LanguageHead), "only a language head knows words"
    model.eval()
    words, tokens = word_tokens(prompt, tokenizer), prompt_tokens(prompt, tokenizer, model.base.causal)
    room = model.base.max_len - tokens.size - max(map(len, words)) + 1  # for the text: a word must fit behind it

    def rows(after: tuple[int, ...]) -> tuple[TokenRows, NDArray[np.int64]]:
        around = replace(tokens, after=after)
        made, owner, _ = prompted_rows(texts, tokenizer, around, room + around.size, long)
        return made, owner

    if not model.base.causal:
        scored = _masked_scores(model, words, tokens, rows, tokenizer.pad, device)
        return per_text(scored, rows(tokens.after)[1], len(texts)).cpu()
    read, owner = rows(tokens.after)
    scored = torch.empty(len(read), len(words), device=device)
    several = max(map(len, words)) > 1
    for part in _of_equal_length(read.lengths) if several else by_length(read.lengths, EVALUATED_AT_ONCE):
        ids, mask = (t.to(device) for t in pad([read[int(i)] for i in part], tokenizer.pad))
        found = _with_cache(model, ids, words) if several else _first_tokens(model, ids, mask, words)
        scored[torch.from_numpy(part).to(device)] = found
    return per_text(scored, owner, len(texts)).cpu()


def _first_tokens(model: Model, ids: Tensor, mask: Tensor, words: Sequence[tuple[int, ...]]) -> Tensor:
    """Log-probabilities of the first token of each word after rows, (B, C)."""
    ends = last_real(model.base(ids, mask).last, mask)  # (B, D)
    return model.head.logits(ends).log_softmax(-1)[:, [word[0] for word in words]]


def _with_cache(model: Model, ids: Tensor, words: Sequence[tuple[int, ...]]) -> Tensor:
    """Log-probabilities of whole words after rows of equal length, (B, C): each goes on from the cached row."""
    cache = model.base.new_cache(len(ids))
    ends = model.base.step(ids, cache).last[:, -1]  # (B, D)
    scores = model.head.logits(ends).log_softmax(-1)[:, [word[0] for word in words]]
    for c, word in enumerate(words):
        if len(word) > 1:
            given, rest = (torch.tensor(part, device=ids.device).expand(len(ids), -1) for part in (word[:-1], word[1:]))
            following = model.head.logits(model.base.step(given, cache).last).log_softmax(-1)  # (B, T, V)
            scores[:, c] += following.gather(-1, rest[..., None]).sum((1, 2))
            model.base.rewind(cache, ids.size(1))
    return scores


def _masked_scores(
    model: Model,
    words: Sequence[tuple[int, ...]],
    tokens: PromptTokens,
    rows: Callable[[tuple[int, ...]], tuple[TokenRows, NDArray[np.int64]]],
    pad_id: int,
    device: str,
) -> Tensor:
    """Log-probabilities of whole words at mask tokens, (rows, C)."""
    at = len(tokens.after) - tokens.tail - 1
    read, mask, rest = tokens.after[:at], tokens.after[at], tokens.after[at + 1 :]
    scores: list[Tensor | float] = [0.0] * len(words)
    for filled in range(max(map(len, words))):
        alike: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)  # those that begin alike are read once
        for c, word in enumerate(words):
            if len(word) > filled:
                alike[word[:filled], len(word)].append(c)
        for (beginning, size), those in alike.items():
            made, _ = rows((*read, *beginning, *[mask] * (size - filled), *rest))
            asked = [words[c][filled] for c in those]
            found = _at_masks(model, made, asked, tokens.tail + size - filled - 1, pad_id, device)
            for c, score in zip(those, found.unbind(1), strict=True):
                scores[c] = scores[c] + score
    return torch.stack([torch.as_tensor(score) for score in scores], dim=1)


def _at_masks(model: Model, rows: TokenRows, ids: Sequence[int], place: int, pad_id: int, device: str) -> Tensor:
    """Log-probabilities of some tokens at the position that `place` others follow, (rows, ids)."""
    found = torch.empty(len(rows), len(ids), device=device)
    for part in by_length(rows.lengths, EVALUATED_AT_ONCE):
        batch, mask = (t.to(device) for t in pad([rows[int(i)] for i in part], pad_id))
        hidden = last_real(model.base(batch, mask).last, mask, place)
        found[torch.from_numpy(part).to(device)] = model.head.logits(hidden).log_softmax(-1)[:, list(ids)]
    return found


def _of_equal_length(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of rows in batches that need no padding, because a cache has no mask."""
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), EVALUATED_AT_ONCE):
            yield same[start : start + EVALUATED_AT_ONCE]


def matching_bias(logits: Tensor, shares: Tensor) -> Tensor:
    """The bias (C,) under which the mean probabilities of unlabelled texts, with `logits` (N, C), are `shares`.

    It removes what a model prefers whatever the text (contextual calibration; Zhao et al., 2021). Which shares the classes
    have is an assumption: those of the labelled rows, or equal ones where there are none.

    >>> logits = torch.tensor([[2.0, 0.0], [3.0, 0.0]])
    >>> (logits + matching_bias(logits, torch.tensor([0.5, 0.5]))).softmax(1).mean(0)
    tensor([0.5000, 0.5000])
    """
    found, wanted = logits.double(), shares.double().clamp(min=LEAST_SHARE).log()
    bias = torch.zeros_like(found[0])
    for _ in range(ROUNDS):
        means = (found + bias).log_softmax(1).logsumexp(0) - math.log(len(found))
        bias = (bias + wanted - means).clamp(-LARGEST_BIAS, LARGEST_BIAS)
    return (bias - bias.mean()).to(logits.dtype)


def zero_shot_logits(
    score: Callable[[Sequence[str], Prompt], Tensor],
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    biases: Tensor,
) -> Tensor:
    """Logits of texts, (N, C): the mean over `prompts`, each with its bias, (P, C)."""
    found = [score(texts, prompt).log_softmax(1) + bias for prompt, bias in zip(prompts, biases, strict=True)]
    return torch.stack(found).mean(0)


def word_biases(
    score: Callable[[Sequence[str], Prompt], Tensor], prompts: Sequence[Prompt], unlabelled: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """The bias of each prompt, (P, C), that makes the classes equally frequent among unlabelled texts, and the logits of these, (N, C)."""
    found = [score(unlabelled, prompt).log_softmax(1) for prompt in prompts]
    biases = torch.stack([even_bias(scores) for scores in found])
    return biases, torch.stack([scores + bias for scores, bias in zip(found, biases, strict=True)]).mean(0)


def calibrated(scores: Tensor, unlabelled: Tensor) -> Tensor:
    """Scores (N, C) shifted so that the classes are equally frequent among unlabelled texts."""
    return scores + even_bias(unlabelled)


def even_bias(scores: Tensor) -> Tensor:
    """The bias, (C,), that makes the classes equally frequent among texts with these scores, (N, C)."""
    return matching_bias(scores, torch.full_like(scores[0], 1 / scores.size(1)))
