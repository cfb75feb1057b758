"""A Universal Sentence Encoder without attention (Yang et al., 2019): n-grams of tokens, and a deep averaging network.

It was trained on texts of 16 languages and their translations, so texts that mean the same are near each other in all of them.
The state of the first token is the embedding of the text, of length 1: pooling `cls`. The other tokens have the states that the
averaging network takes the mean of.

Shapes: B texts, T tokens, D width, N width of a branch, W branches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Base, States
from headstart.models.products import Linear
from headstart.shapes import UniversalConfig


class Branch(nn.Module):
    """N-grams of one size around each token: two convolutions, each added to what it reads."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        left = (size - 1) // 2
        self.sides = left, size - 1 - left  # tokens before and behind
        self.first = nn.Conv1d(width, width, size)
        self.second = nn.Conv1d(width, width, size)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        for convolution in (self.first, self.second):
            around = F.pad(x.transpose(1, 2), self.sides)  # (B, N, T + size - 1)
            x = (x + F.relu(convolution(around).transpose(1, 2))) * real
        return x  # (B, T, N)


class Ngrams(nn.Module):
    """Tokens beside the n-grams around them, (B, T, D)."""

    def __init__(self, cfg: UniversalConfig) -> None:
        super().__init__()
        wide = len(cfg.ngrams) * cfg.branch
        self.project = Linear(cfg.width, wide)
        self.inner_norm = nn.LayerNorm(wide, cfg.norm_eps)
        self.branches = nn.ModuleList(Branch(cfg.branch, size) for size in cfg.ngrams)
        self.norm = nn.LayerNorm(cfg.width + wide, cfg.norm_eps)
        self.out = Linear(cfg.width + wide, cfg.width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        inner = (
            self.inner_norm(self.project(x)) * real
        )  # (B, T, W N); padding is zero, as is what stands outside the text
        parts = inner.chunk(len(self.branches), -1)
        ngrams = [branch(part, real) for branch, part in zip(self.branches, parts, strict=True)]
        return self.out(self.norm(torch.cat([x, *ngrams], -1)))  # of (B, T, D + W N)


class Averaging(nn.Module):
    """The embedding of a text from the sum of its tokens, (B, D): four layers, each second one with a skip connection."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.layers = nn.ModuleList(
            Linear(a, b, bias=False) for a, b in ((width, hidden), (hidden, hidden), (hidden, width), (width, width))
        )
        self.skips = nn.ModuleList(Linear(a, b, bias=False) for a, b in ((width, hidden), (hidden, width)))

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        x = (tokens * real).sum(1) / real.sum(1).sqrt()  # (B, D)
        x = F.relu(self.layers[1](F.relu(self.layers[0](x))) + self.skips[0](x))  # (B, hidden)
        x = torch.tanh(self.layers[3](F.relu(self.layers[2](x))) + self.skips[1](x))  # (B, D)
        return x / x.square().sum(-1, keepdim=True).clamp(min=self.eps).sqrt()


class UniversalEncoder(Base):
    causal = False
    attends = False

    def __init__(self, cfg: UniversalConfig) -> None:
        super().__init__()
        self.width, self.max_len = cfg.width, cfg.context
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        ngrams, averaging = Ngrams(cfg), Averaging(cfg.width, cfg.hidden, cfg.norm_eps)
        self._blocks = nn.ModuleList([ngrams, averaging])

    @property
    def blocks(self) -> nn.ModuleList:
        return self._blocks

    @property
    def embedding(self) -> nn.Embedding:
        return self.tokens

    def forward(self, ids: Tensor, mask: Tensor, look: bool = False) -> States:
        assert ids.size(1) <= self.max_len, f"{ids.size(1)} tokens do not fit into a context of {self.max_len}"
        real = mask[..., None].float()  # (B, T, 1)
        embedded = self.tokens(ids)
        ngrams, averaging = self._blocks
        tokens = ngrams(embedded, real)  # (B, T, D)
        last = torch.cat([averaging(tokens, real)[:, None], tokens[:, 1:]], 1)
        return States(last, (embedded, tokens, last) if look else ())
