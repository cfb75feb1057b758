"""Products by oneDNN, against torch's own layers: values, gradients, and where each is taken."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from headstart.models import products
from headstart.models.products import MANY, Linear, linear, use_fast_products


@pytest.fixture(params=[True, False], ids=["oneDNN", "torch"])
def by_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    wanted = bool(request.param)
    if wanted and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "prefers_onednn", lambda: wanted)
    return wanted


@pytest.mark.parametrize("shape", [(MANY - 1, 48), (MANY, 48), (4, 33, 48), (2, 3, 50, 48)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torch(by_onednn: bool, shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 96, bias)
    ours = copy.deepcopy(layer)
    use_fast_products(ours)
    assert isinstance(ours, Linear)
    x = torch.randn(shape)
    found = []
    for each in (layer, ours):
        given = x.clone().requires_grad_()
        (each(given).square().sum() / x.numel()).backward()
        found.append([given.grad, *(p.grad for p in each.parameters())])
    torch.testing.assert_close(ours(x), layer(x), rtol=1e-5, atol=1e-5)
    for ours_grad, grad in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours_grad, grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learns", ["x", "weight", "bias"])
def test_only_what_learns_gets_a_gradient(by_onednn: bool, learns: str) -> None:
    torch.manual_seed(0)
    given = {"x": torch.randn(MANY, 8), "weight": torch.randn(5, 8), "bias": torch.randn(5)}
    given[learns].requires_grad_()
    linear(**given).sum().backward()
    assert {name for name, t in given.items() if t.grad is not None} == {learns}


def test_columns_of_another_matrix_and_transposed_weights_are_read_where_they_lie(by_onednn: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(MANY, 32)[:, 8:24], torch.randn(16, 20).T
    torch.testing.assert_close(linear(x, weight), x @ weight.T, rtol=1e-5, atol=1e-5)


def test_other_numbers_and_recorded_graphs_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "product", lambda *_: pytest.fail("taken by oneDNN"))
    layer = Linear(8, 4)
    layer.double()(torch.randn(MANY, 8, dtype=torch.float64))
    layer.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=True):
        layer(torch.randn(MANY, 8))
    torch.export.export(layer, (torch.randn(MANY, 8),))
    layer(torch.randn(1, 8))  # a single token


def test_only_plain_layers_are_replaced() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Linear(2, 2), Doubled(2, 2))
    use_fast_products(model)
    assert [type(module) for module in model] == [Linear, Doubled]
