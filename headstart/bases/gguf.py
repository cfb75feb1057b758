"""GGUF files, in which llama.cpp keeps a decoder of the Llama kind: settings, tokenizer and quantized weights in one.

Quantized weights are opened to 32 bits: what is trained starts from the numbers that the file can express.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from headstart.errors import ModelError, UserError, first_line
from headstart.regular_file import open_regular
from headstart.text.tokenizer import Tokenizer

MOST_ENTRIES = 4_000_000  # of metadata; a vocabulary of 256,000 with its merges has about half of this
CONTROL = 3  # the kind of a token that is never part of a text
_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# How each tokenizer cuts a text before it looks at its merges, by the name that llama.cpp gives it.
_DIGITS_APART = ("smollm",)
_PLAIN = ("gpt-2",)


@dataclass(frozen=True)
class Gguf:
    described: dict[str, Any]  # as in config.json of transformers
    tokenizer: Tokenizer
    tensors: dict[str, Tensor] = field(default_factory=dict)


def read_gguf(file: Path, weights: bool = True) -> Gguf:
    """The model of a GGUF file as transformers would describe it, with or without its weights."""
    with _opened(file) as (gguf, reader):
        return _read(gguf, reader, file, weights)


def parameters_of(file: Path) -> int:
    """How many parameters the file has, however they are quantized."""
    with _opened(file) as (_, reader):
        return sum(int(tensor.n_elements) for tensor in reader.tensors)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[ModuleType, Any]]:
    try:
        import gguf
    except ImportError:
        raise UserError(f"{file.name} needs the library gguf: pip install 'headstart[hf]'.", "NOT_INSTALLED") from None
    try:
        open_regular(file).close()  # a pipe would keep the reader waiting
        yield gguf, _bounded(gguf.GGUFReader)(file)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # what is damaged ends in many kinds: of gguf, of numpy, of the tokenizers
        raise ModelError(f"{file}: not a GGUF file that can be read ({first_line(error)}).") from None


def _read(gguf: ModuleType, reader: Any, file: Path, weights: bool) -> Gguf:
    facts = {name: f.contents() for name, f in reader.fields.items()}
    architecture = facts.get("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{file}: a GGUF file of the kind '{architecture}' is not supported; llama is.")
    described = _described(facts, {t.name: t.shape for t in reader.tensors}, file)
    tensors = {}
    for t in reader.tensors if weights else ():
        name = _their_name(t.name, file)
        tensor = torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), np.float32))
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in name:
                tensor = _unpermuted(tensor, described[heads])
        tensors[name] = tensor
    return Gguf(described, _tokenizer(facts, file), tensors)


def _bounded(reader: Any) -> Any:
    """The library's reader, which trusts every count in the file: reads past the end, and too many of them, are errors."""

    class Bounded(reader):  # type: ignore[misc]
        data: Any
        entries = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **orders: Any) -> Any:
            self.entries += 1
            self.data = np.asarray(self.data)  # views of a memmap take more than twice the memory
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("it ends in the middle of an entry")
            if self.entries > MOST_ENTRIES:
                raise ValueError(f"it has more than {MOST_ENTRIES:,} entries")
            return super()._get(offset, dtype, count, *order, **orders)

    return Bounded


def _described(facts: dict[str, Any], shapes: dict[str, Any], file: Path) -> dict[str, Any]:
    keys = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "rope_theta": "rope.freq_base",
        "max_position_embeddings": "context_length",
    }
    missing = [f"llama.{key}" for key in keys.values() if f"llama.{key}" not in facts]
    if missing or "token_embd.weight" not in shapes:
        raise ModelError(f"{file}: {', '.join(missing) or 'token_embd.weight'} missing.")
    width = facts["llama.embedding_length"] // facts["llama.attention.head_count"]
    unscaled = {
        "scaling.type": ("none",),
        "scaling.factor": (1, 0),
        "scale_linear": (1, 0),
        "dimension_count": (width,),
    }
    for key, plain in unscaled.items():
        if (found := facts.get(f"llama.rope.{key}", plain[0])) not in plain:
            raise ModelError(f"{file}: a model with rope.{key} = {found} is not supported.")
    return {
        "model_type": "llama",
        **{theirs: facts[f"llama.{key}"] for theirs, key in keys.items()},
        "vocab_size": int(shapes["token_embd.weight"][1]),
        "tie_word_embeddings": "output.weight" not in shapes,
    }


def _their_name(name: str, file: Path) -> str:
    """
    >>> _their_name("blk.3.attn_q.weight", Path("a.gguf"))
    'model.layers.3.self_attn.q_proj.weight'
    """
    *before, module, last = name.split(".")
    if module not in _TENSORS or (before and before[0] != "blk"):
        raise ModelError(f"{file}: the tensor {name} is not one of a Llama model.")
    return f"model.layers.{before[1]}.{_TENSORS[module]}.{last}" if before else f"{_TENSORS[module]}.{last}"


def _unpermuted(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp turns pairs of neighbours, transformers turns halves: the same rows in another order."""
    return weight.view(heads, -1, 2, weight.size(1)).transpose(1, 2).reshape(weight.shape)


def _tokenizer(facts: dict[str, Any], file: Path) -> Tokenizer:
    kind, cut = facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in (*_DIGITS_APART, *_PLAIN):
        raise ModelError(f"{file}: its tokenizer ({kind}, {cut}) is not supported.")
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.add_special_tokens(
        [AddedToken(t, special=True) for t, k in zip(tokens, kinds, strict=True) if k == CONTROL]
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if cut in _DIGITS_APART else byte_level
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)
