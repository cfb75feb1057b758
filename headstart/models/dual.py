"""Two towers and the space they share: a caption and an image become two vectors that can be compared.

Shapes: B captions or images, T tokens, S pixels of a side, D width of a tower, E width of the shared space.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.base import Base
from headstart.models.dropout import Dropout
from headstart.models.heads import Pooling
from headstart.models.products import Linear
from headstart.models.vision import Encoder
from headstart.shapes import SpaceConfig

MAX_LOG_SCALE = math.log(100)  # the maximum of the log of the logit scale, as in CLIP (Radford et al., 2021)


class Matcher(nn.Module, ABC):
    """What scores how well a caption fits an image: ours, or an external model."""

    @property
    @abstractmethod
    def scale(self) -> Tensor:
        """What cosines are multiplied with before they are compared by softmax."""

    @property
    @abstractmethod
    def image_tower(self) -> nn.Module:
        """All that `see` depends on."""

    @abstractmethod
    def embed_texts(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Captions in the shared space, of length 1: (B, T) -> (B, E)"""

    @abstractmethod
    def see(self, pixels: Tensor) -> Tensor:
        """What the image tower makes of images, the slow part: (B, 3, S, S) -> (B, D)"""

    @abstractmethod
    def embed_seen(self, seen: Tensor) -> Tensor:
        """The same in the shared space, of length 1: (B, D) -> (B, E)"""


class TextTower(nn.Module):
    """A base and a pooling: one vector a text."""

    def __init__(self, base: Base, pool: Pooling) -> None:
        super().__init__()
        self.base, self.pool = base, pool

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.pool(self.base(ids, mask).last, mask)


class Projection(nn.Module):
    """One tower's vectors into the shared space."""

    def __init__(self, width: int, cfg: SpaceConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.drop = Dropout(cfg.dropout)
        if cfg.projection == "linear":
            self.layers: nn.Module = Linear(width, cfg.width)
        else:
            self.layers = nn.Sequential(
                Linear(width, cfg.hidden), nn.GELU(), Dropout(cfg.dropout), Linear(cfg.hidden, cfg.width)
            )

    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(self.layers(self.drop(self.norm(vectors))), dim=-1)


class Space(nn.Module):
    """The projections of both towers, and the logit scale (inverse temperature) of their cosines."""

    def __init__(self, text: int, image: int, cfg: SpaceConfig) -> None:
        super().__init__()
        self.text, self.image, self.width = Projection(text, cfg), Projection(image, cfg), cfg.width
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    @property
    def scale(self) -> Tensor:
        return self.log_scale.clamp(max=MAX_LOG_SCALE).exp()


class DualEncoder(Matcher):
    def __init__(self, text: TextTower, image: Encoder, space: Space) -> None:
        super().__init__()
        self.text, self.image, self.space = text, image, space

    @property
    def scale(self) -> Tensor:
        return self.space.scale

    @property
    def image_tower(self) -> nn.Module:
        return self.image

    def embed_texts(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.space.text(self.text(ids, mask))

    def see(self, pixels: Tensor) -> Tensor:
        return self.image(pixels)

    def embed_seen(self, seen: Tensor) -> Tensor:
        return self.space.image(seen)
