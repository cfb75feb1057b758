"""Text out of a model, one token at a time: greedy or sampled, over one step function.

A step function takes the tokens that were added, (B, T), and gives the logits of the next one, (B, V).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.models.base import Cache
from headstart.models.heads import Model

Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0  # 0 takes the most probable token
    top_k: int = 0  # sample among this many; 0 = all
    top_p: float = 1.0  # sample among the fewest tokens that hold this much probability
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    id: int
    probability: float  # the model's own, before temperature and cuts
    top: list[tuple[int, float]]  # the most probable tokens, most probable first


def generate(step: Step, prompt: Tensor, tokens: int, end: int | None, how: Sampling, top: int = 0) -> Iterator[Choice]:
    """Up to `tokens` tokens after the (1, T) prompt, stopping at `end`."""
    random = torch.Generator(prompt.device).manual_seed(how.seed)
    added = prompt
    for _ in range(tokens):
        with torch.inference_mode():
            logits = step(added)  # (1, V)
            probabilities = logits.softmax(-1)
            added = probabilities.argmax(-1, keepdim=True) if how.temperature == 0 else _sample(logits, how, random)
            probability = probabilities.gather(1, added)
            best = probabilities[0].topk(min(top, probabilities.size(1))) if top else None
        ranked = list(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else []
        choice = Choice(int(added), float(probability), ranked)
        yield choice
        if choice.id == end:
            return


class LanguageStep:
    """The step function of a causal language model; beyond its context it keeps the later half and goes on."""

    def __init__(self, model: Model) -> None:
        self.model = model.eval()
        self.seen: list[Tensor] = []  # every token so far, (B, T) as they came
        self.cache: Cache | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        base = self.model.base
        self.seen.append(ids)
        if self.cache is None or self.cache.length + ids.size(1) > base.max_len:
            self.cache = base.new_cache(len(ids))
            seen = torch.cat(self.seen, dim=1)
            ids = seen[:, -(base.max_len // 2) :] if seen.size(1) > base.max_len else seen
        return self.model.head.logits(base.step(ids, self.cache).last[:, -1])


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
