"""Tiny models, tiny data, one thread: what every test stands on."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from headstart.config import TransformerConfig

settings.register_profile("headstart", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("headstart")

SENTENCES = [
    f"{who} {verb} {article} {animal}."
    for who in ("I", "She", "He", "They")
    for verb in ("hold", "rub", "see")
    for article in ("a", "the")
    for animal in ("dog", "cat", "bird")
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """A corpus of 72 sentences, one a line."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(SENTENCES), "utf-8")
    return path


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """80 labelled rows that a classifier can learn from one word."""
    good, bad = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
    rows = [
        f"film {i} was {(good if i % 2 else bad)[i // 2 % 4]} from end to end,{'positive' if i % 2 else 'negative'}"
        for i in range(80)
    ]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    return path


@pytest.fixture
def tiny() -> Callable[..., TransformerConfig]:
    """A transformer small enough to run in a millisecond."""

    def make(preset: str = "gpt", **settings: Any) -> TransformerConfig:
        shape = {"vocab": 53, "layers": 2, "heads": 2, "width": 16, "ff": 32, "context": 24}
        return TransformerConfig.model_validate({"preset": preset, **shape, **settings})

    return make
