"""Texts read without their padding: the states that the usual way gives."""

from __future__ import annotations

import pytest
import torch

from headstart.models.transformer import Transformer
from headstart.shapes import TransformerConfig

LENGTHS = {"one": [9], "short": [3, 1, 4], "alike": [20] * 5, "many": [3, 9, 9, 30, 1, 60, 22, 64], "two groups": [60, 60, 2, 1]}  # fmt: skip


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("preset", ["gpt", "bert", "classic"])
def test_reading_gives_the_states_of_every_real_token(preset: str, lengths: list[int]) -> None:
    torch.manual_seed(0)
    base = Transformer(TransformerConfig(preset=preset, size="nano", vocab=50)).eval()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(0, 50, mask.shape)
    with torch.inference_mode():
        torch.testing.assert_close(base.read(ids, mask)[mask], base(ids, mask).last[mask], rtol=1e-4, atol=1e-4)
