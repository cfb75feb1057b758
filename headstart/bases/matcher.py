"""What matches captions and images, by name: a run of `match train`, or a CLIP model of Hugging Face.

model/ of such a run
  config.json        the shapes of both towers and of their space, under the key `headstart`
  model.safetensors  all of it, the frozen towers too: a run needs nothing else
  tokenizer.json
  README.md          the model card
  MANIFEST.json      size and SHA-256 of the others, the card aside
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headstart.bases.image_index import ImageIndex, See
from headstart.bases.pretrained import config_of, into_ours, is_ours, open_base, weights_of
from headstart.errors import ConfigError, ModelError, did_you_mean
from headstart.hub.hub import get_model
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import located
from headstart.models.clip import Clip, clip_config, clip_pixels
from headstart.models.dual import DualEncoder, Matcher, Space, TextTower
from headstart.models.heads import POOLS
from headstart.models.unfilled import Unfilled, shapes_alone
from headstart.models.vision import Encoder, build_encoder
from headstart.regular_file import read_regular
from headstart.runs.checkpoint import fingerprint, load_weights, must_fit, weights
from headstart.runs.model_dir import (
    Saved,
    build_base,
    complaints,
    must_agree,
    must_be_finite,
    must_hold,
    read_description,
    read_tensors,
    write_parts,
)
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.shapes import DualConfig, ImageConfig, PatchConfig, PixelsConfig
from headstart.text.batch import by_length, pad
from headstart.text.digests import digest
from headstart.text.tokenizer import Tokenizer, rows_to_read

ENCODERS = [name for name, pack in PACKS.items() if pack.kind == "encoder"]
AT_ONCE = 256  # captions
COMPUTED = 2  # grows when files are read or towers computed another way: what was kept before is made again


@dataclass(frozen=True)
class SavedMatcher:
    """A matcher with everything that its use needs."""

    model: Matcher
    tokenizer: Tokenizer
    pixels: PixelsConfig
    context: int  # most tokens of a caption
    open_end: bool  # whether captions are read without an end token, as by a causal base of ours
    image_settings: str  # of the image tower: with its weights they decide what it sees
    device: str = "cpu"

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(N, E)"""
        rows, _ = rows_to_read(texts, self.tokenizer, self.open_end, self.context)
        found = [torch.empty(0)] * len(texts)
        for part in by_length(rows.lengths, AT_ONCE):
            ids, mask = pad([rows[int(i)] for i in part], self.tokenizer.pad)
            for i, vector in zip(part, self.model.embed_texts(ids.to(self.device), mask.to(self.device)), strict=True):
                found[int(i)] = vector.cpu()
        return torch.stack(found)

    @torch.inference_mode()
    def embed_seen(self, vectors: Tensor) -> Tensor:
        """(M, E) from what the index kept"""
        return self.model.embed_seen(vectors.to(self.device)).cpu()

    @property
    def scale(self) -> float:
        return float(self.model.scale.detach())

    @cached_property
    def index(self) -> ImageIndex:
        return index_of(self.model.see, self.model.image_tower, self.image_settings, self.pixels, self.device)


def index_of(see: See, tower: nn.Module, settings: str, pixels: PixelsConfig, device: str) -> ImageIndex:
    """The index of images as an image tower of these settings sees them."""
    decides = (str(COMPUTED), fingerprint(weights(tower)), settings, pixels.model_dump_json())
    return ImageIndex(see, pixels, digest(*decides), device)


def build_dual(cfg: DualConfig) -> DualEncoder:
    """Two towers and their space with fresh weights."""
    image = build_encoder(cfg.image)
    return DualEncoder(
        TextTower(build_base(cfg.text), POOLS[cfg.pool]), image, Space(cfg.text.width, image.width, cfg.space)
    )


def write_dual(folder: Path, model: DualEncoder, cfg: DualConfig, card: str) -> None:
    """Everything but the tokenizer, which a run writes when it begins; the weights last."""
    described = {
        "model_type": "headstart_dual",
        "headstart": {"model": cfg.model_dump(mode="json", exclude_none=True), "head": "match"},
    }
    write_parts(folder, described, card, weights(model))


def read_dual(folder: Path) -> SavedMatcher:
    """The matcher of a run's model/ folder."""
    with complaints(folder):
        described, tensors = read_description(folder), read_tensors(folder)
        if described["head"] != "match":
            raise ModelError(f"{folder.parent} does not match captions and images. Train one: headstart match train.")
        cfg = parse(DualConfig, described["model"], str(folder / "config.json"))
        must_hold(tensors, cfg.text.layers, folder)
        with shapes_alone():
            must_fit(build_dual(cfg), tensors)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    must_agree(tokenizer, cfg.text, folder)
    with Unfilled():
        model = build_dual(cfg)
    load_weights(model, tensors)
    image = cfg.image
    return SavedMatcher(
        model.eval(), tokenizer, image.pixels, cfg.text.context, cfg.text.causal, image.model_dump_json()
    )


def open_text_tower(name: str) -> Saved:
    """The base of a text tower; an external BERT or GPT-2 is computed by our own transformer.

    So whoever uses the run later need not load transformers, which takes longer than a search.
    """
    saved = open_base(name)
    theirs = getattr(saved.config, "model_type", None)
    return into_ours(saved) if theirs in ("bert", "gpt2") else saved


def open_encoder(name: str, patches: PatchConfig, size: int = 0) -> tuple[Encoder, ImageConfig]:
    """The image encoder that `name` stands for: a pack, a folder like one, or a small transformer from nothing.

    `size` are the pixels of a side that a pack is to read, if not as many as it comes with.
    """
    if name == "transformer":
        pixels = PixelsConfig(size=patches.size, edge=0, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        cfg = ImageConfig(kind="transformer", pixels=pixels, patches=patches)
        return build_encoder(cfg), cfg
    folder = Path(located(name) if name in ENCODERS else name)
    if not os.path.isdir(folder):
        known = [*ENCODERS, "transformer"]
        raise ConfigError(
            f"Image encoder '{name}' is neither one of {', '.join(known)} nor a folder.{did_you_mean(name, known)}"
        )
    with complaints(folder):
        described, tensors = json.loads(read_regular(folder / "config.json")), read_tensors(folder)
    cfg = parse(ImageConfig, described, str(folder / "config.json"))
    if size:
        cut = {"size": size, "edge": cfg.pixels.edge * size // cfg.pixels.size}
        pixels = parse(PixelsConfig, {**cfg.pixels.model_dump(), **cut}, f"image_size = {size}")
        cfg = cfg.model_copy(update={"pixels": pixels})
    encoder = build_encoder(cfg)
    load_weights(encoder, tensors)
    return encoder.eval(), cfg


def open_matcher(name: str) -> SavedMatcher:
    """The matcher that `name` stands for: a run, a folder that transformers wrote, hf:NAME."""
    if name.startswith("hf:") and not os.path.exists(name):
        return read_clip(get_model(name))
    folder = Path(name)
    if (folder / "config.json").is_file():
        return read_dual(folder) if is_ours(folder) else read_clip(folder)
    if name in PACKS and not folder.exists():
        raise ModelError(
            f"{name} does not match captions and images. That does a run of headstart match train, a folder with a CLIP "
            "model, or hf:NAME."
        )
    return read_dual(Run.open(name).path / "model")


def read_clip(folder: Path) -> SavedMatcher:
    """A CLIP model of transformers, held against its own settings before memory is set aside."""
    described = config_of(folder)
    source, kind = str(folder / "config.json"), described.get("model_type", "none")
    if kind != "clip":
        raise ModelError(f"{source}: models of the kind '{kind}' do not match captions and images. Supported: clip.")
    cfg, tensors = clip_config(described, source), weights_of(folder, allow_pickle=False)
    must_hold(tensors, int(cfg.text_config.num_hidden_layers) + int(cfg.vision_config.num_hidden_layers), folder)
    with shapes_alone():
        expected = weights(Clip(cfg))
    state = {f"inner.{name}": t.float() for name, t in tensors.items() if f"inner.{name}" in expected}
    wrong = [n for n, t in expected.items() if n not in state or state[n].shape != t.shape]
    if wrong:
        missing = ", ".join(name.removeprefix("inner.") for name in wrong[:5])
        raise ModelError(
            f"{folder}: these weights do not make the CLIP model of its config.json: {missing} missing or of another shape."
        )
    must_be_finite({name.removeprefix("inner."): t for name, t in state.items()}, folder)
    tokenizer = Tokenizer.load(folder)
    if tokenizer.largest >= cfg.text_config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has ids up to {tokenizer.largest}, the model {cfg.text_config.vocab_size} entries."
        )
    model = Clip(cfg)
    load_weights(model, state)
    pixels = clip_pixels(_preparation(folder), int(cfg.vision_config.image_size), str(folder))
    context, settings = int(cfg.text_config.max_position_embeddings), cfg.vision_config.to_json_string()
    return SavedMatcher(model.eval(), tokenizer, pixels, context, open_end=False, image_settings=settings)


def _preparation(folder: Path) -> dict[str, Any]:
    """How the folder says that images are prepared; newer files keep it under a key of their own."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            with complaints(folder):
                described = json.loads(read_regular(folder / name))
                return dict({**described}.get("image_processor", described))
    return {}
