"""Image encoders: pixels in, one vector per image out.

Shapes: B images, C channels, S pixels of a side, D width, T patches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.block import AttentionMask, Block
from headstart.shapes import ImageConfig, PatchConfig, TransformerConfig

Stages = tuple[tuple[int, int, int, int, int], ...]  # expansion, channels, blocks, stride of the first, kernel
# Table 2 of MobileNetV2 (Sandler et al., 2018), and the same of EfficientNet-Lite0 (after Tan and Le, 2019)
MOBILENET: Stages = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3),
)  # fmt: skip
EFFICIENTNET: Stages = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip


class Encoder(nn.Module, ABC):
    width: int

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, D)"""


class MobileNet(Encoder):
    """Inverted residuals in stages, without a classifier; the tensors have the names of torchvision's MobileNetV2.

    TensorFlow pads the right and lower side more where a step of two leaves it the choice (`same_padding`); what was
    trained there must be computed so.
    """

    def __init__(self, stages: Stages, norm_eps: float = 1e-5, same_padding: bool = False) -> None:
        super().__init__()
        how: dict[str, Any] = {"norm_eps": norm_eps, "same_padding": same_padding}
        blocks: list[nn.Module] = [_convolution(3, 32, 3, stride=2, **how)]
        channels, self.width = 32, 1280
        for expansion, out, repeats, stride, kernel in stages:
            for i in range(repeats):
                blocks.append(InvertedResidual(channels, out, kernel, stride if i == 0 else 1, expansion, **how))
                channels = out
        self.features = nn.Sequential(*blocks, _convolution(channels, self.width, 1, **how))

    def forward(self, pixels: Tensor) -> Tensor:
        # The channels of a pixel beside each other: on a CPU, learning takes half to two thirds of the time.
        return self.features(pixels.contiguous(memory_format=torch.channels_last)).mean((2, 3))

    def train(self, mode: bool = True) -> MobileNet:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()  # what it counted on a million images is better than what it would count on a batch
        return self


class InvertedResidual(nn.Module):
    """A wide, thin convolution between two narrow layers."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int, **how: Any) -> None:
        super().__init__()
        hidden = channels * expansion
        self.added = stride == 1 and channels == out
        self.conv = nn.Sequential(
            *([_convolution(channels, hidden, 1, **how)] if expansion > 1 else []),
            _convolution(hidden, hidden, kernel, stride, groups=hidden, **how),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out, eps=how["norm_eps"]),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.added else self.conv(x)


class SamePaddedConv2d(nn.Conv2d):
    """A convolution of stride 2 with TensorFlow's SAME padding: the right and lower side get the odd pixel."""

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.kernel_size[0]
        most = [max(0, (-(-side // 2) - 1) * 2 + kernel - side) for side in x.shape[-2:]]
        (top, left), (bottom, right) = [m // 2 for m in most], [m - m // 2 for m in most]
        return super().forward(F.pad(x, (left, right, top, bottom)))


class ImageTransformer(Encoder):
    """A small vision transformer: patches as tokens, the mean of the last states (Dosovitskiy et al., 2021)."""

    def __init__(self, cfg: PatchConfig) -> None:
        super().__init__()
        patches, self.width = (cfg.size // cfg.patch) ** 2, cfg.width
        shape = {"layers": cfg.layers, "heads": cfg.heads, "width": cfg.width, "context": max(2, patches)}
        block = TransformerConfig.model_validate({"preset": "gpt", "causal": False, **shape})
        self.patches = nn.Conv2d(3, cfg.width, cfg.patch, stride=cfg.patch)
        self.positions = nn.Parameter(0.02 * torch.randn(patches, cfg.width))
        self.layers = nn.ModuleList(Block(block) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patches(pixels).flatten(2).mT + self.positions  # (B, T, D)
        for layer in self.layers:
            x, _ = layer(x, AttentionMask())
        return self.norm(x).mean(1)


def build_encoder(cfg: ImageConfig) -> Encoder:
    """An image encoder with fresh weights."""
    match cfg.kind:
        case "mobilenet-v2":
            return MobileNet(MOBILENET)
        case "efficientnet-lite0":
            return MobileNet(EFFICIENTNET, norm_eps=1e-3, same_padding=True)
        case "transformer":
            return ImageTransformer(cfg.patches)


def _convolution(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, *, norm_eps: float, same_padding: bool
) -> nn.Sequential:
    same_padding = same_padding and stride > 1
    make = SamePaddedConv2d if same_padding else nn.Conv2d
    return nn.Sequential(
        make(channels, out, kernel, stride, padding=0 if same_padding else kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=norm_eps),
        nn.ReLU6(inplace=True),
    )
