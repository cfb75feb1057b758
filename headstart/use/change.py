"""Before and after: the same texts through a base and through what became of it.

Shapes: N tokens of all the texts, D width, T tokens of one text, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from headstart.errors import ModelError
from headstart.models.base import Base, layer_groups
from headstart.models.heads import Head
from headstart.show.change import Change, LayerChange, TokenChange
from headstart.text.tokenizer import Tokenizer

MOST_TOKENS = 8192  # that the representations are compared on


def weight_changes(before: Base, after: Base) -> dict[str, float]:
    """|after - before| / |before| of each layer group; exactly 0 where nothing moved."""
    groups, others = layer_groups(before), dict(layer_groups(after))
    if [(name, [p.shape for p in ps]) for name, ps in groups] != [
        (n, [p.shape for p in ps]) for n, ps in others.items()
    ]:
        raise ModelError("The two models differ in shape, so they cannot be a base and what became of it.")
    found = {}
    for name, parameters in groups:
        moved = sum(
            float((b.detach() - a.detach()).double().square().sum())
            for a, b in zip(parameters, others[name], strict=True)
        )
        norm = sum(float(p.detach().double().square().sum()) for p in parameters)
        found[name] = (moved / norm) ** 0.5
    return found


@torch.inference_mode()
def compare_states(before: Base, after: Base, rows: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
    """Linear CKA of every layer's states and the part of its attention that moved, over rows of ids."""
    states: tuple[list[list[Tensor]], list[list[Tensor]]] = ([], [])
    moved: list[list[float]] = []
    for row in rows:
        ids = torch.tensor([list(row)])
        seen = [base(ids, torch.ones_like(ids, dtype=torch.bool), look=True) for base in (before, after)]
        for kept, found in zip(states, seen, strict=True):
            kept.append([layer[0] for layer in found.layers])
        pairs = zip(seen[0].attention, seen[1].attention, strict=True)
        moved.append(
            [float((a - b).abs().sum(-1).mean(1).sum() / 2) for a, b in pairs]
        )  # over heads mean, over tokens sum
    stacked = [[torch.cat(layer) for layer in zip(*kept, strict=True)] for kept in states]  # (N, D) a layer
    similarities = [cka(a, b) for a, b in zip(*stacked, strict=True)]
    return similarities, [sum(layer) / sum(map(len, rows)) for layer in zip(*moved, strict=True)]


def cka(a: Tensor, b: Tensor) -> float:
    """Linear centred kernel alignment of two (N, D) sets of states (Kornblith and others, 2019).

    >>> x = torch.randn(50, 4)
    >>> round(cka(x, 3 * x.flip(1)), 6)
    1.0
    """
    a, b = (x.double() - x.double().mean(0) for x in (a, b))
    own = (a.T @ a).norm() * (b.T @ b).norm()
    return float((a.T @ b).square().sum() / own) if own else 1.0


@torch.inference_mode()
def compare_next_tokens(
    before: Base, after: Base, head: Head, tokenizer: Tokenizer, ids: Sequence[int]
) -> list[TokenChange]:
    """What `head`, a language head of `before`, reads of what follows each token, in both."""
    row = torch.tensor([list(ids)])
    mask = torch.ones_like(row, dtype=torch.bool)
    old, new = (head.logits(base(row, mask).last[0]).double().log_softmax(-1) for base in (before, after))  # (T, V)
    middle = torch.logaddexp(old, new) - math.log(2)
    divergence = sum((p.exp() * (p - middle)).sum(-1) for p in (old, new)) / 2
    return [
        TokenChange(tokenizer.piece(i), _best(o, tokenizer), _best(n, tokenizer), max(0.0, float(d)))
        for i, o, n, d in zip(ids, old, new, torch.as_tensor(divergence), strict=True)
    ]


def compare(
    before: Base,
    after: Base,
    head: Head | None,
    tokenizer: Tokenizer,
    rows: Sequence[Sequence[int]],
    names: tuple[str, str],
) -> Change:
    """All that moved; `head` is the language head of `before`, rows[0] the text whose next tokens are shown."""
    weights = weight_changes(before, after)
    rows = rows[: max(1, sum(total <= MOST_TOKENS for total in accumulate(map(len, rows))))]
    similarities, attention = compare_states(before, after, rows)
    states = dict(zip(["embedding", *(f"layer {n}" for n in range(1, len(similarities)))], similarities, strict=True))
    looks = {f"layer {n}": moved for n, moved in enumerate(attention, start=1)}  # none, of a base without attention
    layers = [LayerChange(name, moved, states.get(name), looks.get(name)) for name, moved in weights.items()]
    tokens = compare_next_tokens(before, after, head, tokenizer, rows[0]) if head and before.causal else []
    return Change(*names, layers, tokens, len(rows), sum(map(len, rows)))


def _best(log: Tensor, tokenizer: Tokenizer) -> tuple[str, float]:
    p, i = log.exp().max(-1)
    return tokenizer.piece(int(i)), float(p)
