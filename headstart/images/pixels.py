"""An image of any size becomes the numbers that a model reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headstart.shapes import PixelsConfig


def pixels_of(image: Image.Image, cfg: PixelsConfig) -> NDArray[np.float32]:
    """The image scaled, cut and centred: (3, size, size)."""
    how = Image.Resampling[cfg.resample.upper()]
    if cfg.edge:
        image = _middle(image.resize(_with_shorter_side(image.size, cfg.edge), how), cfg.size)
    else:
        image = image.resize((cfg.size, cfg.size), how)
    mean, std = (np.array(numbers, np.float32) for numbers in (cfg.mean, cfg.std))
    centred = (np.asarray(image).astype(np.float32) / np.float32(255) - mean) / std
    return np.ascontiguousarray(centred.transpose(2, 0, 1))


def _with_shorter_side(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Both sides in proportion, the longer rounded down, as torchvision and transformers do.

    >>> _with_shorter_side((500, 333), 256)
    (384, 256)
    """
    width, height = size
    return (edge, edge * height // width) if width <= height else (edge * width // height, edge)


def _middle(image: Image.Image, size: int) -> Image.Image:
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))  # black where the image does not reach
