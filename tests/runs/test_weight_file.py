"""Files of weights: read as they are, refused when they are no weights of a model."""

from __future__ import annotations

import json
import os
import random
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from headstart.errors import ModelError
from headstart.runs.weight_file import read_weights


def written(file: Path, shapes: dict[str, list[int]], padding: int = 0) -> Path:
    """A file of zeros under these names."""
    header, place = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(torch.tensor(shape).prod())
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode() + b" " * padding
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(place))
    return file


def test_every_tensor_is_read_as_it_is(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(2, 3), "b": torch.tensor(1.5), "c": torch.arange(3).bfloat16()}
    save_file(tensors, tmp_path / "a.safetensors")
    found = read_weights(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], t) and found[name].dtype == t.dtype for name, t in tensors.items())


@pytest.mark.parametrize(
    ("shapes", "padding", "says"),
    [
        ({f"layer.{i}": [0] for i in range(60_000)}, 0, r"60,000 tensors, where a model has 3,000 at most"),
        ({"a": [3], "b": [2, 0]}, 0, "the tensor b is empty"),
        ({"a": [3]}, 90_000_000, r"is damaged \(a header of 90,000,0\d\d bytes"),
    ],
    ids=["many", "empty", "header"],
)
def test_what_no_model_has_is_refused_at_once(shapes, padding, says, tmp_path: Path) -> None:
    file = written(tmp_path / "a.safetensors", shapes, padding)
    began = time.monotonic()
    with pytest.raises(ModelError, match=says):
        read_weights(file)
    assert time.monotonic() - began < 5


def test_a_pipe_a_folder_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match=r"pipe: cannot be read \(not a regular file"):
        read_weights(tmp_path / "pipe")
    with pytest.raises(ModelError, match=r"cannot be read \(Is a directory\)"):
        read_weights(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_weights(tmp_path / "nowhere")


def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = written(tmp_path / "a.safetensors", {"a": [3], "b": [2, 2]})
    whole, rng = file.read_bytes(), random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data) - 28)] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.2 else None])
        with suppress(ModelError):  # nothing else is raised
            read_weights(file)
