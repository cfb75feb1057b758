"""What is put on top of a base: pooling, language-model and class heads, and Model, which joins them.

Shapes: B examples, T tokens, N positions that count, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Base, States
from headstart.models.block import activation
from headstart.models.dropout import Dropout
from headstart.models.loss import chunked_cross_entropy
from headstart.shapes import IGNORE, ModelConfig
from headstart.task import Task

Pooling = Callable[[Tensor, Tensor], Tensor]
LOGIT_SCALE = 20.0  # inverse temperature of the choice among a teacher's vectors: cosines are small numbers


def every_token(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden  # (B, T, D)


def last_real(hidden: Tensor, mask: Tensor, tail: int = 0) -> Tensor:
    """The last real token, or the one that `tail` tokens of a prompt follow."""
    return hidden[torch.arange(hidden.size(0)), mask.sum(1) - 1 - tail]  # (B, D); position -1 would read padding


def first(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden[:, 0]  # (B, D)


def mean_real(hidden: Tensor, mask: Tensor) -> Tensor:
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1)  # (B, D)


POOLS: dict[str, Pooling] = {"last": last_real, "cls": first, "mean": mean_real}


class Head(nn.Module, ABC):
    pool: Pooling

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """What prediction and inspection use."""

    @abstractmethod
    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """What training uses: the loss summed over what counts, and how much that is."""


def head_transform(cfg: ModelConfig) -> nn.Module:
    """What a masked model puts in front of its output matrix, as BERT does; nothing for the others."""
    if not cfg.head_transform:
        return nn.Identity()
    dense = nn.Linear(cfg.width, cfg.width)
    nn.init.normal_(dense.weight, std=0.02)
    nn.init.zeros_(dense.bias)
    return nn.Sequential(dense, activation(cfg.activation), nn.LayerNorm(cfg.width, eps=cfg.norm_eps))


class LanguageHead(Head):
    """A score for every entry of the vocabulary at every token, for causal and masked models alike."""

    def __init__(self, cfg: ModelConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.pool = every_token
        self.transform = head_transform(cfg)
        self.weight = embedding.weight if cfg.tied else nn.Parameter(torch.empty(cfg.vocab, cfg.width))
        self.bias = nn.Parameter(torch.zeros(cfg.vocab)) if cfg.head_bias else None
        if not cfg.tied:
            nn.init.normal_(self.weight, std=0.02)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self.transform(hidden), self.weight, self.bias)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """`logits` for generation, with the weights as they are now.

        Torch multiplies one row with a matrix that lies the other way in a half to two thirds of the time.
        """
        if self.weight.device.type != "cpu":
            return self.logits
        weight, bias = self.weight.detach().T.contiguous(), self.bias
        if bias is None:
            return lambda hidden: self.transform(hidden) @ weight
        return lambda hidden: torch.addmm(bias, self.transform(hidden), weight)

    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        counted = target != IGNORE  # (B, T); only these rows reach the vocabulary-wide matrix
        rows = self.transform(hidden[counted])  # (N, D)
        return chunked_cross_entropy(rows, self.weight, self.bias, target[counted]), float(len(rows))


class ClassHead(Head):
    """A score for each class, from the embedding of a text. A `transform` of the language head is part of the pooling."""

    weights: Tensor
    attributed_in = "log-odds"  # the unit of `attributed`

    def __init__(
        self,
        width: int,
        classes: int,
        pool: Pooling,
        dropout: float = 0.0,
        bias: bool = True,
        transform: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.pool, self.transform = pool, transform
        if transform is not None:
            self.pool = lambda hidden, mask: transform(pool(hidden, mask))
        self.drop = Dropout(dropout)
        self.linear = nn.Linear(width, classes, bias)
        self.register_buffer("weights", torch.ones(classes), persistent=False)  # of the classes, in the loss
        nn.init.normal_(self.linear.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.linear(self.drop(hidden))

    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        logits = self.logits(hidden)
        return F.cross_entropy(logits, target, self.weights, reduction="sum"), float(self.weights[target].sum())

    def outputs(self, hidden: Tensor) -> Tensor:
        """What is shown of a text, (B, C): the probabilities of the classes."""
        return self.logits(hidden).softmax(-1)

    def attributed(self, logits: Tensor, output: int) -> Tensor:
        """What an attribution shares out among tokens, (B,): log p / (1 - p) of a class."""
        others = torch.cat([logits[:, :output], logits[:, output + 1 :]], dim=1)
        return logits[:, output] - others.logsumexp(1)


class LabelsHead(ClassHead):
    """A score for each of several labels, of which a text may have any number."""

    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        each = F.binary_cross_entropy_with_logits(self.logits(hidden), target, reduction="none")  # (B, L)
        return each.mean(1).sum(), float(len(target))

    def outputs(self, hidden: Tensor) -> Tensor:
        return self.logits(hidden).sigmoid()

    def attributed(self, logits: Tensor, output: int) -> Tensor:
        return logits[:, output]  # the log-odds of a label, whatever the others are


class NumberHead(ClassHead):
    """A number."""

    attributed_in = "units of the number"

    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        return F.mse_loss(self.logits(hidden)[:, 0], target, reduction="sum"), float(len(target))

    def outputs(self, hidden: Tensor) -> Tensor:
        return self.logits(hidden)

    def attributed(self, logits: Tensor, output: int) -> Tensor:
        return logits[:, output]

    def rescale(self, mean: float, spread: float) -> None:
        """From standardized numbers to those of the user."""
        with torch.no_grad():
            self.linear.weight.mul_(spread)
            self.linear.bias.mul_(spread).add_(mean)


class OrderedHead(ClassHead):
    """Cumulative logits: one score of a text, and ascending cuts between the classes. Its logits are log-probabilities."""

    def __init__(self, width: int, classes: int, pool: Pooling, dropout: float = 0.0) -> None:
        super().__init__(width, 1, pool, dropout, bias=False)
        self.weights = torch.ones(classes)
        self.first = nn.Parameter(torch.tensor(-0.5 * (classes - 2)))
        self.gaps = nn.Parameter(torch.zeros(classes - 2))  # logarithms

    @property
    def cuts(self) -> Tensor:
        return torch.cat([self.first[None], self.first + self.gaps.exp().cumsum(0)])  # (C - 1,)

    def logits(self, hidden: Tensor) -> Tensor:
        score, cuts = super().logits(hidden), self.cuts  # (B, 1)
        below, above = F.logsigmoid(cuts - score), F.logsigmoid(score - cuts)  # (B, C - 1)
        middle = below[:, 1:] + above[:, :-1] + torch.log1p(-torch.exp(cuts[:-1] - cuts[1:]))
        return torch.cat([below[:, :1], middle, above[:, -1:]], 1)


class TagHead(ClassHead):
    """A score for each tag, from the state of every token: (B, T, C), or of the tokens that are asked for."""

    def __init__(self, width: int, tags: int, pool: Pooling, dropout: float = 0.0, bias: bool = True, transform: nn.Module | None = None) -> None:  # fmt: skip
        super().__init__(width, tags, every_token, dropout, bias)


HEADS: dict[Task, type[ClassHead]] = {
    "classify": ClassHead,
    "multilabel": LabelsHead,
    "regression": NumberHead,
    "ordinal": OrderedHead,
    "tag": TagHead,
}


def freeze_transform(head: Head) -> None:
    """Fix what a class head took over from a language head: a frozen base is read once, and through it."""
    if isinstance(head, ClassHead) and head.transform is not None:
        head.transform.requires_grad_(False)


class VectorHead(Head):
    """The vector that a teacher has of the same text."""

    def __init__(self, width: int, teacher_width: int) -> None:
        super().__init__()
        self.pool = mean_real
        self.linear = nn.Linear(width, teacher_width)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.normalize(self.linear(hidden), dim=1)

    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """Each vector near the teacher's of the same text, and nearer to it than to those of the other texts."""
        vectors = self.logits(hidden)  # (B, W)
        chosen = F.cross_entropy(
            LOGIT_SCALE * vectors @ target.T, torch.arange(len(vectors), device=vectors.device), reduction="sum"
        )
        return chosen + (1 - (vectors * target).sum(1)).sum(), float(len(vectors))


class Model(nn.Module):
    """A base and a head. Transfer is `Model(pretrained.base, ClassHead(...))`."""

    def __init__(self, base: Base, head: Head) -> None:
        super().__init__()
        self.base, self.head = base, head

    def features(self, ids: Tensor, mask: Tensor) -> Tensor:
        """What the head reads: every token's state, or the pooled one."""
        return self.head.pool(self.base(ids, mask).last, mask)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.head.logits(self.features(ids, mask))

    def loss(self, ids: Tensor, mask: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """The loss summed over what counts, and how much that is."""
        return self.head.loss(self.features(ids, mask), target)

    def look(self, ids: Tensor, mask: Tensor) -> States:
        return self.base(ids, mask, look=True)

    def train(self, mode: bool = True) -> Model:
        if not mode and not self.training:  # telling every module so takes as long as a small batch
            return self
        super().train(mode)
        if mode and not any(p.requires_grad for p in self.base.parameters()):
            self.base.eval()  # a frozen base is a fixed function: no dropout in it
        return self
