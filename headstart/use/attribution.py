"""What a classifier used: the log-odds of a label, or a number, shared out among tokens by integrated gradients, checked by occlusion.

The way leads from the text with every token replaced by the mask token (or the one that stands in for it) to the text
itself, in the space of the embeddings. What the gradients on it sum to must be the difference between its ends, and so on
every stretch of it. A sure model changes its mind on a stretch that may be as short as a hundred-thousandth, so the
stretch with the widest gap is cut in two until the gaps together are below 1 %.

Shapes: N points, T tokens, D width, C classes.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.errors import ConfigError, did_you_mean
from headstart.models.base import Base
from headstart.models.heads import ClassHead, Model
from headstart.show.attribution import Attribution, ClassEvidence, TokenEvidence, tolerance
from headstart.text.tokenizer import Tokenizer

STEPS, MOST_STEPS = 16, 4096  # on a stretch, and in all
AT_ONCE = 32  # rows in one pass


def attribute(model: Model, tokenizer: Tokenizer, ids: Sequence[int], labels: Sequence[str], label: str) -> Attribution:
    """The evidence of each token of a text for `label`."""
    assert isinstance(model.head, ClassHead)
    if label not in labels:
        raise ConfigError(
            f"This model has no label '{label}'. It has {', '.join(labels)}.{did_you_mean(label, labels)}"
        )
    number = labels.index(label)
    blank, baseline = _blank(tokenizer, ids)
    text, replaced = torch.tensor(ids), torch.tensor(blank)
    with torch.no_grad():
        odds, odds_of_nothing = (float(_log_odds(model, row[None], number)) for row in (text, replaced))
        occlusion = [odds - left for left in _left_without(model, text, replaced, number)]
    evidence, steps = _integrated_gradients(model, text, replaced, number)
    difference = odds - odds_of_nothing
    names = [tokenizer.piece(i) for i in ids]
    gap = sum(evidence) - difference
    read, unit = tokenizer.piece(baseline), model.head.attributed_in
    return Attribution(label, names, evidence, occlusion, odds, read, difference, gap, steps, unit)


def class_evidence(label: str, found: Sequence[Attribution], special: Sequence[str]) -> ClassEvidence:
    """The mean evidence of each token over the texts of a class, without special tokens."""
    by_token = defaultdict(list)
    for attribution in found:
        for token, evidence in zip(attribution.tokens, attribution.evidence, strict=True):
            if token not in special:
                by_token[token].append(evidence)
    tokens = [TokenEvidence(token, sum(values) / len(values), len(values)) for token, values in by_token.items()]
    return ClassEvidence(
        label,
        len(found),
        sorted(tokens, key=lambda t: -t.mean),
        max((abs(a.gap) for a in found), default=0.0),
        max((a.steps for a in found), default=0),
        sum(not a.complete for a in found),
        next((a.unit for a in found), "log-odds"),
    )


def _blank(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[int], int]:
    """The text with every token but the special ones replaced, and by what."""
    known = (i for i in (tokenizer.mask, tokenizer.unk, tokenizer.pad) if i is not None)
    stand_in = next(known)
    special = (tokenizer.start, tokenizer.end)
    return [i if i in special else stand_in for i in ids], stand_in


@dataclass(frozen=True)
class _Stretch:
    start: float  # of the way, 0 to 1
    end: float
    evidence: Tensor  # (T,)
    gap: float


def _integrated_gradients(model: Model, text: Tensor, blank: Tensor, label: int) -> tuple[list[float], int]:
    """What each token adds to the log-odds on the straight way from `blank` to `text`, and the steps it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, about progress bars that nobody asked for
        from captum.attr import IntegratedGradients  # loads pyplot

    table = model.base.embedding.weight.detach()
    way = table[text] - table[blank]  # (T, D)

    def odds(points: Tensor) -> Tensor:  # (N, T, D) -> (N,)
        with _embedded_as(model.base, points):
            return _log_odds(model, text.expand(len(points), -1), label)

    def walk(places: Sequence[float]) -> list[_Stretch]:
        """The stretches between `places`."""
        points = table[blank] + torch.tensor(places)[:, None, None] * way
        found = IntegratedGradients(odds).attribute(
            points[1:], points[:-1], n_steps=STEPS, method="gausslegendre", internal_batch_size=AT_ONCE
        )  # (N - 1, T, D)
        evidence = found.double().sum(-1)
        with torch.no_grad():
            gaps = evidence.sum(-1) - odds(points).double().diff()
        return list(map(_Stretch, places, places[1:], evidence, gaps.tolist()))

    stretches, steps = walk([0.0, 1.0]), STEPS
    with torch.no_grad():
        limit = tolerance(float(odds(table[text][None]) - odds(table[blank][None])))
    while sum(abs(s.gap) for s in stretches) >= limit and steps + 2 * STEPS <= MOST_STEPS:
        worst = max(stretches, key=lambda s: abs(s.gap))
        stretches = [s for s in stretches if s is not worst]
        stretches += walk([worst.start, (worst.start + worst.end) / 2, worst.end])
        steps += 2 * STEPS
    return torch.stack([s.evidence for s in stretches]).sum(0).tolist(), steps


def _left_without(model: Model, text: Tensor, blank: Tensor, label: int) -> list[float]:
    """The log-odds of the label when one token is replaced, each in turn."""
    here = torch.eye(len(text), dtype=torch.bool)
    without = torch.where(here, blank, text)  # (T, T), row t lacks token t
    return torch.cat([_log_odds(model, rows, label) for rows in without.split(AT_ONCE)]).tolist()


def _log_odds(model: Model, ids: Tensor, label: int) -> Tensor:
    """The log-odds of a label, or the number, one a row."""
    assert isinstance(model.head, ClassHead)
    return model.head.attributed(model(ids, torch.ones_like(ids, dtype=torch.bool)), label)


@contextmanager
def _embedded_as(base: Base, vectors: Tensor) -> Iterator[None]:
    """The base reads `vectors` in place of the embeddings of its ids."""
    handle = base.embedding.register_forward_hook(lambda module, given, found: vectors)
    try:
        yield
    finally:
        handle.remove()
