"""Our GELU is torch's, there and back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headstart.models.gelu import TanhGELU


def test_it_is_the_function_of_torch_and_has_its_slope() -> None:
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([-1e4, 0.0, 1e4])]).requires_grad_()
    above = torch.randn(len(x), generator=torch.Generator().manual_seed(0))
    ours, theirs = TanhGELU()(x), F.gelu(x, approximate="tanh")
    assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    (slope,), (their_slope,) = (torch.autograd.grad(y, x, above) for y in (ours, theirs))
    assert_close(slope, their_slope, atol=2e-6, rtol=1e-5)


def test_its_slope_is_the_limit_of_differences() -> None:
    x = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(TanhGELU(), (x,))


@pytest.mark.parametrize("learns", [True, False])
def test_what_came_in_is_left_as_it_was(learns: bool) -> None:
    x = torch.randn(5, 7, requires_grad=learns)
    before = x.detach().clone()
    TanhGELU()(x)
    assert torch.equal(x, before)
