"""Bases by name: a run, or an external model in a folder, a pack or on the Hugging Face hub.

External models are untrusted data. Headstart chooses the model class (models/huggingface.py), weights are safetensors or
GGUF, and no code of such a folder is ever run. Before memory is allocated, the shapes in config.json are checked against
those of the weights.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.bases.gguf import Gguf, read_gguf
from headstart.errors import ConfigError, ModelError, did_you_mean, first_line
from headstart.hub.hub import get_model
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import located
from headstart.models.huggingface import ACTIVATIONS, shape_of, usable
from headstart.models.layout import counterpart, from_disk, to_disk
from headstart.models.unfilled import shapes_alone
from headstart.regular_file import read_regular
from headstart.runs.checkpoint import Tensors, load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model, must_agree, must_be_finite, must_hold, read_model
from headstart.runs.run import Run
from headstart.runs.weight_file import read_weights
from headstart.schema import parse
from headstart.shapes import (
    PRESETS,
    HuggingFaceConfig,
    ModelConfig,
    Pool,
    TransformerConfig,
    UniversalConfig,
    is_external,
)
from headstart.text.tokenizer import Tokenizer

ExternalConfig = HuggingFaceConfig | UniversalConfig
MODELS = [name for name, pack in PACKS.items() if pack.kind == "model"]
# What files hold beside a base's weights: constants that it makes itself, and the pooler, which belongs to a head.
_CONSTANT = re.compile(r"(^|\.)(position_ids|inv_freq|attn\.bias|attn\.masked_bias)$|^pooler\.")
_POOLING_MODES: dict[Pool, str] = {  # in the configuration of sentence-transformers
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
_PICKLED = ("pytorch_model.bin", "model.pt", "model.pth", "model.pkl", "model.ckpt")


def open_base(name: str, allow_pickle: bool = False, classifier: bool = False) -> Saved:
    """The language model that `name` stands for; a `classifier` too, to be trained further, where that may be."""
    folder = find_base(name, allow_pickle)
    if not is_ours(folder):
        return read_pretrained(folder, allow_pickle)
    saved = read_model(folder)
    if saved.head.kind != "language" and not classifier:
        raise ConfigError(
            f"{name} is a classifier already, and has seen its own rows. Give the pretrained run it was made from as --base."
        )
    return saved


def find_base(name: str, allow_pickle: bool = False) -> Path:
    """The folder (or GGUF file) of the model that `name` stands for."""
    if name.startswith("hf:") and not os.path.exists(name):
        return get_model(name, allow_pickle)
    path = Path(located(name) if name in MODELS else name)
    if not os.path.exists(path):
        known = [*PRESETS, *MODELS]
        raise ConfigError(
            f"Base '{name}' is neither a run, a folder with a model, a pack ({', '.join(MODELS)}) nor a preset "
            f"({', '.join(PRESETS)}).{did_you_mean(name, known)} A model of the Hugging Face hub is hf:NAME."
        )
    return path if _holds_model(path) else Run.open(path).path / "model"


def made_elsewhere(name: str) -> bool:
    """Whether `name` stands for a model that is no run of ours: a folder with one, a file, a pack, hf:NAME."""
    return name.startswith("hf:") or name in MODELS or _holds_model(Path(name))


def _holds_model(path: Path) -> bool:
    return path.is_file() or (path / "config.json").exists() or any(path.glob("*.gguf"))


def within(shape: ModelConfig, context: int) -> ModelConfig:
    """`shape` reading `context` tokens of a text at most; 0 for as many as it can."""
    if not context:
        return shape
    if not is_external(shape):
        raise ConfigError("--context: the base settles this. Leave it out.")
    if context > shape.context:
        raise ConfigError(f"--context {context}: the base reads {shape.context} tokens at most.")
    if context < 2:
        raise ConfigError(f"--context {context}: fewer than 2 tokens are no text.")
    return shape.model_copy(update={"context": context})


def read_shape(folder: Path) -> tuple[ExternalConfig, Tokenizer]:
    """Shape and tokenizer of an external model, without its weights."""
    gguf = _gguf_of(folder)
    return _shape(folder, read_gguf(gguf, weights=False) if gguf else None)


def _shape(folder: Path, gguf: Gguf | None) -> tuple[ExternalConfig, Tokenizer]:
    cfg: ExternalConfig
    if gguf:
        cfg, tokenizer = shape_of(gguf.described, str(folder)), gguf.tokenizer
    elif (described := config_of(folder)).get("kind") == "universal":
        cfg = parse(UniversalConfig, described, str(folder / "config.json"))
        tokenizer = Tokenizer.load(folder / "sentencepiece.model")
    elif (file := folder / "tokenizer.json").exists():
        cfg, tokenizer = shape_of(described, str(folder / "config.json")), Tokenizer.load(file)
        cfg = cfg.model_copy(update={"pool": _declared_pool(folder)})
    else:  # other files count the tokens from elsewhere: XLM-R's SentencePiece model is off by one
        raise ModelError(
            f"{folder}: tokenizer.json is missing. AutoTokenizer of transformers opens others and saves it."
        )
    must_agree(tokenizer, cfg, folder)
    return cfg, tokenizer


def read_pretrained(folder: Path, allow_pickle: bool = False) -> Saved:
    """The model of a folder that transformers wrote, or of a GGUF file; a new language head where it has none."""
    file = _gguf_of(folder)
    gguf = read_gguf(file) if file else None
    cfg, tokenizer = _shape(folder, gguf)
    tensors = gguf.tensors if gguf else weights_of(folder, allow_pickle)
    must_hold(tensors, cfg.layers, folder)
    spec = HeadSpec("language")
    with usable(kind_of(cfg), str(folder)), shapes_alone():
        expected = weights(build_model(cfg, spec))
    state, unused = _under_our_names(tensors, expected, cfg, folder)
    must_be_finite(to_disk(state, cfg), folder)
    model = build_model(cfg, spec)
    fresh = {name: t for name, t in weights(model).items() if name not in state}
    load_weights(model, {**fresh, **state})
    return Saved(model.eval(), tokenizer, cfg, spec, tuple(sorted(fresh)), tuple(unused))


def kind_of(cfg: ExternalConfig) -> str:
    """What a kind of model is called in messages."""
    return cfg.model_type if isinstance(cfg, HuggingFaceConfig) else cfg.kind


def _declared_pool(folder: Path) -> Pool | None:
    """The pooling that a folder of sentence-transformers names for its model, if it is one of ours."""
    if not (folder / "modules.json").exists():
        return None
    try:
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        parts = [module["path"] for module in modules if str(module["type"]).endswith(".Pooling")]
        if len(parts) != 1 or not re.fullmatch(r"[\w-]+", parts[0]):
            return None
        modes = json.loads((folder / parts[0] / "config.json").read_text("utf-8"))
        named = modes.get("pooling_mode")  # as releases from 5 on write it: mean, cls, lasttoken
        chosen = [pool for pool, key in _POOLING_MODES.items() if modes.get(key) or named in (pool, key[13:])]
        others = [
            key
            for key, on in modes.items()
            if key not in _POOLING_MODES.values() and key.startswith("pooling_mode_") and on
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{folder}: modules.json or the pooling that it names is damaged ({first_line(error)})."
        ) from None
    return chosen[0] if len(chosen) == 1 and not others else None


def into_ours(saved: Saved) -> Saved:
    """A GPT-2 or BERT model of transformers computed by our own transformer: the same logits."""
    theirs = saved.config
    assert isinstance(theirs, HuggingFaceConfig), "it is ours already"
    preset = {"gpt2": "gpt", "bert": "bert"}.get(theirs.model_type)
    if preset is None:
        raise ModelError(f"Our transformer computes gpt2 and bert models, not {theirs.model_type}.")
    settings, width = theirs.settings, theirs.width
    shape = {name: getattr(theirs, name) for name in ("context", "layers", "heads", "width", "tied")}
    cfg = parse(TransformerConfig, {
        **shape, "preset": preset, "vocab": saved.tokenizer.size, "dropout": 0.1,
        "ff": settings.get("n_inner", settings.get("intermediate_size", 4 * width)),
        "norm_eps": settings["layer_norm_epsilon" if preset == "gpt" else "layer_norm_eps"],
        "activation": ACTIVATIONS.get(settings["activation_function" if preset == "gpt" else "hidden_act"], "none"),
    })  # fmt: skip
    if counterpart(cfg) is None or not _scaled_as_ours(settings):
        raise ModelError(f"This {theirs.model_type} model has settings that our transformer does not compute.")
    tensors = from_disk(to_disk(weights(saved.model), theirs), cfg)
    rows = ("base.tokens.weight", "head.weight", "head.bias")  # those of the vocabulary, without any to spare
    tensors = {name: t[: cfg.vocab] if name in rows else t for name, t in tensors.items()}
    model = build_model(cfg, saved.head)
    load_weights(model, tensors)
    return Saved(model.eval(), saved.tokenizer, cfg, saved.head, saved.fresh, saved.unused)


def _scaled_as_ours(settings: Mapping[str, Any]) -> bool:
    return settings.get("scale_attn_weights", True) and not settings.get("scale_attn_by_inverse_layer_idx", False)


def _under_our_names(
    tensors: Tensors, expected: Tensors, cfg: ExternalConfig, folder: Path
) -> tuple[Tensors, list[str]]:
    """What the model takes of the tensors, and the names of what it does not; a base must be there whole."""
    state: Tensors = {}
    unused = []
    for name, tensor in tensors.items():
        (ours,) = from_disk({name: tensor}, cfg)
        if ours not in expected:
            unused.append(name)
            continue
        if tensor.shape != expected[ours].shape:
            found, wanted = tuple(tensor.shape), tuple(expected[ours].shape)
            raise ModelError(f"{folder}: the tensor {name} is {found}; the settings in config.json make it {wanted}.")
        if not tensor.is_floating_point():
            raise ModelError(f"{folder}: the tensor {name} is quantized ({tensor.dtype}), which is not supported.")
        state[ours] = tensor.float()
    missing = [
        *to_disk({name: t for name, t in expected.items() if name.startswith("base.") and name not in state}, cfg)
    ]
    prefix = "base.inner." if isinstance(cfg, HuggingFaceConfig) else "base."
    # embeddings, encoder; wte, h; ...
    inside = {name.removeprefix(prefix).split(".")[0] for name in expected if name.startswith("base.")}
    bare = {name: next(iter(from_disk({name: tensors[name]}, cfg))).removeprefix(prefix) for name in unused}
    strange = [name for name, b in bare.items() if b.split(".")[0] in inside and not _CONSTANT.search(b)]
    for what, names in (("has not", missing), ("has too much:", strange)):
        if names:
            raise ModelError(
                f"{folder}: these weights do not make a {kind_of(cfg)} model of {cfg.layers} layers. It {what} "
                f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}."
            )
    return state, [name for name, b in bare.items() if not _CONSTANT.search(b) or b.startswith("pooler.")]


def is_ours(folder: Path) -> bool:
    """Whether a folder with a model was written by us."""
    return folder.is_dir() and not _gguf_of(folder) and "headstart" in config_of(folder)


def _gguf_of(folder: Path) -> Path | None:
    if folder.is_file():
        return folder
    return None if (folder / "config.json").exists() else next(iter(sorted(folder.glob("*.gguf"))), None)


def config_of(folder: Path) -> Mapping[str, Any]:
    """config.json, read."""
    try:
        described = json.loads(read_regular(folder / "config.json"))
    except FileNotFoundError:
        raise ModelError(f"{folder}: config.json is missing.") from None
    except OSError as error:
        raise ModelError(f"{folder / 'config.json'}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{folder / 'config.json'} is damaged ({error}).") from None
    if not isinstance(described, dict):
        raise ModelError(f"{folder / 'config.json'}: not the settings of a model.")
    return described


def weights_of(folder: Path, allow_pickle: bool) -> Tensors:
    """Every tensor in the folder by name, out of one file or several."""
    if (folder / "model.safetensors").exists():
        return read_weights(folder / "model.safetensors")
    if (folder / "model.safetensors.index.json").exists():
        parts = _parts(folder / "model.safetensors.index.json", r"[\w.-]+\.safetensors")
        return {name: t for part in parts for name, t in read_weights(part).items()}
    pickled = next((name for name in _PICKLED if (folder / name).exists()), None)
    index = folder / "pytorch_model.bin.index.json"
    if not pickled and not index.exists():
        raise ModelError(f"{folder} has neither model.safetensors nor, for --allow-pickle, pytorch_model.bin.")
    if not allow_pickle:
        raise ModelError(
            f"{folder} holds only pickled weights ({pickled or index.name}), which can run code. If you trust "
            "them: --allow-pickle."
        )
    parts = [folder / pickled] if pickled else _parts(index, r"[\w.-]+\.bin")
    return {name: t for part in parts for name, t in _unpickled(part).items()}


def _parts(index: Path, pattern: str) -> list[Path]:
    """The files that an index names; nothing outside its folder."""
    try:
        names = sorted(set(json.loads(read_regular(index))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} is damaged ({error}).") from None
    strange = [str(name) for name in names if not re.fullmatch(pattern, str(name))]
    if strange:
        raise ModelError(f"{index} names files that are no part of this model: {', '.join(strange[:5])}.")
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise ModelError(f"{index.parent}: {', '.join(missing[:5])} missing.")
    return [index.parent / name for name in names]


def _unpickled(file: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, an attempt to run code among them
        raise ModelError(f"{file} does not hold plain weights ({first_line(error)}).") from None
    if not isinstance(found, Mapping) or not all(isinstance(t, Tensor) for t in found.values()):
        raise ModelError(f"{file} does not hold plain weights.")
    return dict(found)
