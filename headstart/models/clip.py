"""CLIP models of Hugging Face transformers as matchers.

Only their computation is theirs, as in huggingface.py: configuration and weights are read by bases/matcher.py, as data.

Shapes: B captions or images, T tokens, S pixels of a side, E width of the shared space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import ConfigError, ModelError
from headstart.models.dual import Matcher
from headstart.models.huggingface import own_settings, transformers
from headstart.schema import parse
from headstart.shapes import PixelsConfig

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # of CLIP's own images
_MARKS = {"bos_token_id", "eos_token_id", "pad_token_id"}  # where a caption is pooled depends on one of these


class Clip(Matcher):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.inner = transformers().CLIPModel(config)

    @property
    def scale(self) -> Tensor:
        return self.inner.logit_scale.exp()

    @property
    def image_tower(self) -> nn.Module:
        return nn.ModuleList([self.inner.vision_model, self.inner.visual_projection])

    def embed_texts(self, ids: Tensor, mask: Tensor) -> Tensor:
        found = self.inner.get_text_features(input_ids=ids, attention_mask=mask.long())
        return F.normalize(found.pooler_output, dim=-1)

    def see(self, pixels: Tensor) -> Tensor:
        return self.inner.get_image_features(pixel_values=pixels).pooler_output

    def embed_seen(self, seen: Tensor) -> Tensor:
        return F.normalize(seen, dim=-1)


def clip_config(described: Mapping[str, Any], source: str) -> Any:
    """transformers' configuration from a config.json of CLIP; what it says of code to run is passed over."""
    library, parts = transformers(), {}
    for name, kind in (("text_config", library.CLIPTextConfig), ("vision_config", library.CLIPVisionConfig)):
        given = {**(described.get(name) or {}), **(described.get(f"{name}_dict") or {})}  # older files have both
        known = own_settings(kind) | _MARKS
        parts[name] = {key: value for key, value in given.items() if key in known and value is not None}
    try:
        config = library.CLIPConfig(**parts, projection_dim=int(described.get("projection_dim", 512)))
        config._attn_implementation = "sdpa"
    except Exception as error:  # the library raises kinds of its own for a value that it does not take
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{source}: its settings are not those of a CLIP model ({lines[-1].strip()}).") from None
    return config


def clip_pixels(described: Mapping[str, Any], side: int, source: str) -> PixelsConfig:
    """How images are prepared, from a preprocessor_config.json; CLIP's own way where it says nothing."""
    try:
        if not described.get("do_resize", True) or not described.get("do_rescale", True):
            raise ValueError("images must be resized, and their numbers divided by 255")
        if round(1 / float(described.get("rescale_factor", 1 / 255)), 3) != 255:
            raise ValueError("rescale_factor must be 1 / 255")
        size, crop = described.get("size", side), described.get("crop_size", side)
        cut, centred = (bool(described.get(name, True)) for name in ("do_center_crop", "do_normalize"))
        edge = int(size.get("shortest_edge", size.get("height", side)) if isinstance(size, Mapping) else size)
        inside = _square(crop) if cut else edge
        if inside != side:
            raise ValueError(f"they come out {inside} pixels wide, and the model reads {side}")
        found = {
            "size": inside,
            "edge": edge if cut else 0,
            "resample": {2: "bilinear", 3: "bicubic"}[int(described.get("resample", 3))],
            "mean": tuple(map(float, described.get("image_mean", MEAN) if centred else (0, 0, 0))),
            "std": tuple(map(float, described.get("image_std", STD) if centred else (1, 1, 1))),
        }
        return parse(PixelsConfig, found, "its numbers")
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, ConfigError) as error:
        reason = str(error).removesuffix(".")
        raise ModelError(f"{source}: its way to prepare images is not understood ({reason}).") from None


def _square(size: Any) -> int:
    if not isinstance(size, Mapping):
        return int(size)
    if size["height"] != size["width"]:
        raise ValueError(f"{size['height']} x {size['width']} pixels are no square")
    return int(size["height"])
