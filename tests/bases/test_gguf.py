"""A GGUF file is opened as llama.cpp means it, or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from headstart.bases.pretrained import open_base
from headstart.errors import ModelError
from headstart.shapes import HuggingFaceConfig

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def llama(elsewhere: Callable[..., HuggingFaceConfig]) -> Any:
    torch.manual_seed(0)
    shape = elsewhere("llama", vocab_size=7, tie_word_embeddings=True)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape.settings)).eval()
    with torch.no_grad():  # away from where they begin, so that any slip shows
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def test_it_gives_the_same_logits(llama: Any, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama, {"llama.rope.dimension_count": 8, "llama.rope.scaling.type": "none"})
    ours, ids = open_base(str(tmp_path)), torch.tensor([[3, 4, 5, 6, 1]])
    assert_close(ours.model(ids, ids > 0), llama(input_ids=ids).logits, atol=1e-5, rtol=1e-4)
    assert ours.tokenizer.decode(ours.tokenizer.encode(["ab 12"])[0]) == "ab 12"


@pytest.mark.parametrize(
    ("key", "value"),
    [("scaling.type", "yarn"), ("scaling.factor", 8.0), ("scale_linear", 4.0), ("dimension_count", 4)],
)
def test_positions_that_are_turned_otherwise_are_refused(key: str, value: Any, llama: Any, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama, {f"llama.rope.{key}": value})
    with pytest.raises(ModelError, match=rf"a model with rope\.{key} = {value} is not supported"):
        open_base(str(tmp_path))


@pytest.mark.parametrize(
    ("facts", "tensors"),
    [
        ({"tokenizer.ggml.merges": None}, {}),
        ({"tokenizer.ggml.merges": ["ab"]}, {}),
        ({"tokenizer.ggml.token_type": [1]}, {}),
        ({"llama.attention.head_count": 0}, {}),
        ({}, {"token_embd.weight": np.zeros(7, np.float32)}),
        ({}, {"blk.0.attn_q.bias": np.zeros(16, np.float32)}),
        ({}, {"blk.attn_q.weight": np.zeros((16, 16), np.float32)}),
    ],
)
def test_what_is_damaged_is_one_sentence(facts: Any, tensors: Any, llama: Any, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama, facts, tensors)
    with pytest.raises(ModelError, match="not a GGUF file that can be read"):
        open_base(str(tmp_path))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("length", [1000, 1 << 40])
def test_an_array_longer_than_the_file_is_refused_at_once(length: int, llama: Any, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", llama, {})
    whole, kinds = (tmp_path / "model.gguf").read_bytes(), np.array([3] + [1] * 6, "<i4").tobytes()
    at = whole.index(kinds) - 8  # the length of the array of token types
    (tmp_path / "model.gguf").write_bytes(whole[:at] + np.uint64(length).tobytes() + kinds)
    with pytest.raises(ModelError, match="it ends in the middle of an entry"):
        open_base(str(tmp_path))


def test_metadata_without_end_is_refused(llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "model.gguf", llama, {})
    monkeypatch.setattr("headstart.bases.gguf.MOST_ENTRIES", 50)
    with pytest.raises(ModelError, match="more than 50 entries"):
        open_base(str(tmp_path))


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"not a GGUF file that can be read \(.*not a regular file"):
        open_base(str(tmp_path))


def write_gguf(file: Path, model: Any, facts: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
    """`model` as llama.cpp's own converter would write it, with other facts (None: left out) and tensors."""
    c, writer = model.config, gguf.GGUFWriter(file, "llama")
    tokens = ["<|endoftext|>", "a", "b", "1", "2", "Ġ", "ab"]
    facts = {
        "llama.context_length": c.max_position_embeddings,
        "llama.embedding_length": c.hidden_size,
        "llama.feed_forward_length": c.intermediate_size,
        "llama.block_count": c.num_hidden_layers,
        "llama.attention.head_count": c.num_attention_heads,
        "llama.attention.head_count_kv": c.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1),
        "tokenizer.ggml.merges": ["a b"],
        **facts,
    }
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
    for key, value in facts.items():
        if value is not None:
            add[type(value)](key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    found = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        data = tensor
        for part, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads)):
            if part in name:  # as in llama.cpp's convert_hf_to_gguf.py
                data = tensor.reshape(heads, 2, -1, tensor.size(1)).swapaxes(1, 2).reshape(tensor.shape)
        found[names.get_name(name, (".weight",))] = data.numpy().astype(np.float32)
    for name, data in {**found, **(tensors or {})}.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
