"""The tensor names and layouts under which transformers keeps the same weights on disk.

Ours on the left, those of GPT-2 and BERT on the right; `{}` is a layer's number. What has no counterpart there (`classic`, or a preset
with its structure changed) keeps our names. Writing renames, transposes and cuts: no number changes. Reading adds
BERT's embedding of the first sentence, which every token of ours belongs to, to its positions.

A base that is a model of transformers has its names already, but for what stands in front of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from headstart.models.huggingface import KINDS
from headstart.shapes import PRESETS, HuggingFaceConfig, ModelConfig, TransformerConfig, UniversalConfig

_GPT2 = {
    "base.tokens": "transformer.wte",
    "base.positions": "transformer.wpe",
    "base.layers.{}.attention_norm": "transformer.h.{}.ln_1",
    "base.layers.{}.attention.qkv": "transformer.h.{}.attn.c_attn",
    "base.layers.{}.attention.out": "transformer.h.{}.attn.c_proj",
    "base.layers.{}.ff_norm": "transformer.h.{}.ln_2",
    "base.layers.{}.up": "transformer.h.{}.mlp.c_fc",
    "base.layers.{}.down": "transformer.h.{}.mlp.c_proj",
    "base.norm": "transformer.ln_f",
    "head": "lm_head",
    "head.linear": "score",
}
_GPT2_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")  # GPT-2's linear layers are (in, out)

_BERT = {
    "base.tokens": "bert.embeddings.word_embeddings",
    "base.positions": "bert.embeddings.position_embeddings",
    "base.embedding_norm": "bert.embeddings.LayerNorm",
    "base.layers.{}.attention.query": "bert.encoder.layer.{}.attention.self.query",
    "base.layers.{}.attention.key": "bert.encoder.layer.{}.attention.self.key",
    "base.layers.{}.attention.value": "bert.encoder.layer.{}.attention.self.value",
    "base.layers.{}.attention.out": "bert.encoder.layer.{}.attention.output.dense",
    "base.layers.{}.attention_norm": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "base.layers.{}.up": "bert.encoder.layer.{}.intermediate.dense",
    "base.layers.{}.down": "bert.encoder.layer.{}.output.dense",
    "base.layers.{}.ff_norm": "bert.encoder.layer.{}.output.LayerNorm",
    "head": "cls.predictions",
    "head.transform.0": "cls.predictions.transform.dense",
    "head.transform.2": "cls.predictions.transform.LayerNorm",
    "head.linear": "classifier",
}
_BERT_TYPES = "bert.embeddings.token_type_embeddings.weight"  # (2, D): first and second sentence

Tensors = dict[str, Tensor]
OWN = ("head.first", "head.gaps")  # cuts between ordered classes: transformers has no such head


def counterpart(cfg: TransformerConfig | UniversalConfig) -> str | None:
    """The transformers architecture that computes exactly what `cfg` does: gpt2, bert, or None."""
    if isinstance(cfg, UniversalConfig):
        return None
    free = ("dropout", "tied") if cfg.preset == "gpt" else ("dropout",)
    structure = {key: value for key, value in PRESETS[cfg.preset].items() if key not in free}
    same = all(getattr(cfg, key) == value for key, value in structure.items()) and not cfg.scale_embedding
    return {"gpt": "gpt2", "bert": "bert"}.get(cfg.preset) if same else None


def to_disk(state: Mapping[str, Tensor], cfg: ModelConfig) -> Tensors:
    """The tensors of a Model under the names that plain transformers looks for."""
    if isinstance(cfg, HuggingFaceConfig):
        return {their_name(name, cfg): t for name, t in state.items()}
    match counterpart(cfg):
        case "gpt2":
            return {
                (name := _rename(ours, _GPT2)): t.T.contiguous() if _GPT2_TRANSPOSED.search(name) else t
                for ours, t in state.items()
            }
        case "bert":
            renamed = {_rename(ours, _BERT): t for ours, t in _cut_qkv(state).items()}
            some = next(iter(renamed.values()))
            return {**renamed, _BERT_TYPES: some.new_zeros(2, cfg.width)}
        case _:
            return dict(state)


def from_disk(tensors: Mapping[str, Tensor], cfg: ModelConfig) -> Tensors:
    """The same tensors back under our names."""
    if isinstance(cfg, HuggingFaceConfig):
        return {our_name(name, cfg): t for name, t in tensors.items()}
    match counterpart(cfg):
        case "gpt2":
            back = {theirs: ours for ours, theirs in _GPT2.items()}
            return {
                _rename(name, back): t.T.contiguous() if _GPT2_TRANSPOSED.search(name) else t
                for name, t in tensors.items()
            }
        case "bert":
            back = {theirs: ours for ours, theirs in _BERT.items()}
            state = {_rename(name, back): t for name, t in tensors.items() if name != _BERT_TYPES}
            types = tensors.get(_BERT_TYPES)
            if types is not None and types[0].any():  # every token of ours is of the first sentence
                state["base.positions.weight"] = state["base.positions.weight"] + types[0]
            return _join_qkv(state)
        case _:
            return dict(tensors)


def their_name(name: str, cfg: HuggingFaceConfig) -> str:
    """A tensor of a Model on a base of transformers, as transformers names it beside its own heads."""
    kind = KINDS[cfg.model_type]
    module, _, last = name.rpartition(".")
    if name.startswith("base.inner."):
        return kind.prefix + name.removeprefix("base.inner.")
    if name in OWN:
        return name
    return kind.head[name] if name in kind.head else f"{kind.head[module]}.{last}"


def our_name(name: str, cfg: HuggingFaceConfig) -> str:
    """The same back; a base that was saved without a head has no prefix, and very old files have old names."""
    kind = KINDS[cfg.model_type]
    name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
    back = {theirs: ours for ours, theirs in kind.head.items()}
    module, _, last = name.rpartition(".")
    if name in back or name in OWN:
        return back.get(name, name)
    return f"{back[module]}.{last}" if module in back else f"base.inner.{name.removeprefix(kind.prefix)}"


def _rename(name: str, table: Mapping[str, str]) -> str:
    """`name` by the longest entry of `table` that it begins with, its layer number carried over."""
    number = re.search(r"\.(\d+)\.", name)
    digits = number.group(1) if number and not name.startswith("head") else ""
    generic = name.replace(f".{digits}.", ".{}.", 1) if digits else name
    module, _, kind = generic.rpartition(".")
    return f"{table[module].replace('{}', digits)}.{kind}" if module in table else name


def _cut_qkv(state: Mapping[str, Tensor]) -> Tensors:
    cut: Tensors = {}
    for name, tensor in state.items():
        if ".qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                cut[name.replace("qkv", part)] = piece.contiguous()
        else:
            cut[name] = tensor
    return cut


def _join_qkv(state: Mapping[str, Tensor]) -> Tensors:
    joined: Tensors = {}
    for name, tensor in state.items():
        if ".attention.query." in name:
            parts = [state[name.replace("query", part)] for part in ("query", "key", "value")]
            joined[name.replace("query", "qkv")] = torch.cat(parts)
        elif ".attention.key." not in name and ".attention.value." not in name:
            joined[name] = tensor
    return joined
