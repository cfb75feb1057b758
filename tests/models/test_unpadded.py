"""Texts read without their padding: the states that the usual way gives."""

from __future__ import annotations

import pytest
import torch

from headstart.models.transformer import Transformer
from headstart.models.unpadded import MANY, linear
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


@pytest.mark.parametrize("rows", [MANY - 1, MANY, 200])
def test_a_product_is_that_of_the_layer(rows: int) -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        for layer in (torch.nn.Linear(48, 96), torch.nn.Linear(48, 96, bias=False), torch.nn.Linear(48, 96).double()):
            x = torch.randn(rows, 48, dtype=layer.weight.dtype)
            torch.testing.assert_close(linear(layer, x), layer(x), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_more_than_a_product_is_asked_itself() -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    layer, x = Doubled(8, 8), torch.randn(MANY, 8)
    with torch.inference_mode():
        assert torch.equal(linear(layer, x), layer(x))
