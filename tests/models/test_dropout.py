"""Dropout from few random numbers: its rate, independence and scale beside torch's own, and attention with it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.models.dropout import LEVELS, Dropout, attention, dropout, noise, use_fast_dropout

RATES = [0.1, 0.25, 0.5, 0.9]
MANY = 400_001  # numbers; no multiple of four


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def scale(p: float) -> float:
    return LEVELS / (LEVELS - round(p * LEVELS))


@pytest.mark.parametrize("p", RATES)
def test_as_many_are_dropped_as_by_torch_and_the_rest_keeps_the_mean(p: float) -> None:
    for drop in (Dropout(p), nn.Dropout(p)):
        y = drop.train()(torch.ones(MANY))
        five_deviations = 5 * (p * (1 - p) / MANY) ** 0.5
        assert abs(float((y == 0).double().mean()) - p) < five_deviations
        assert abs(float(y.double().mean()) - 1) < five_deviations / (1 - p)


@pytest.mark.parametrize("p", RATES)
def test_what_is_kept_is_scaled_by_exactly_the_rate_that_is_drawn(p: float) -> None:
    x = torch.randn(MANY)
    y = dropout(x, p)
    kept = y != 0
    assert torch.equal(y[kept], x[kept] * scale(p))
    assert abs(scale(p) * (1 - p) - 1) < 1e-4


@pytest.mark.parametrize("p", RATES)
@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 64, 4096])
def test_numbers_are_dropped_independently(p: float, lag: int) -> None:
    """The four that share 64 bits, too, and what lies rows apart."""
    dropped = (noise(torch.empty(MANY), p) == 0).double() - p
    correlation = float((dropped[lag:] * dropped[:-lag]).mean()) / (p * (1 - p))
    assert abs(correlation) < 5 / MANY**0.5


def test_each_of_the_16_bits_of_a_number_is_drawn_evenly() -> None:
    for p in (2**-k for k in range(1, 9)):
        rate = float((noise(torch.empty(MANY), p) == 0).double().mean())
        assert abs(rate - p) < 5 * (p * (1 - p) / MANY) ** 0.5
    places = (noise(torch.empty(100_000, 4), 0.5) == 0).double().mean(0)  # within 64 bits
    assert float((places - 0.5).abs().max()) < 5 * 0.5 / 100_000**0.5


def test_a_seed_is_all_that_dropout_depends_on_and_each_call_draws_anew() -> None:
    x, masks = torch.ones(1000), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks += [dropout(x, 0.5), dropout(x, 0.5)]
    assert torch.equal(masks[0], masks[2])
    assert torch.equal(masks[1], masks[3])
    pairs = [(masks[0], masks[1]), (masks[0], masks[4])]
    assert all(0.4 < float((a == b).double().mean()) < 0.6 for a, b in pairs)


@pytest.mark.parametrize("drop", [Dropout(0.0).train(), Dropout(0.5).eval()], ids=["p = 0", "eval"])
def test_nothing_is_drawn_where_nothing_is_dropped(drop: Dropout) -> None:
    x, before = torch.randn(10), torch.get_rng_state()
    assert torch.equal(drop(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("p", [1e-7, 0.9999999, 1.0])
def test_rates_that_16_bits_cannot_tell_from_none_and_all_are_left_to_torch(p: float) -> None:
    x = torch.randn(1000)
    torch.manual_seed(3)
    ours = dropout(x, p)
    torch.manual_seed(3)
    assert torch.equal(ours, F.dropout(x, p))


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shapes_and_numbers_of_every_kind_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    y = dropout(torch.ones(shape, dtype=dtype), 0.5)
    assert (y.shape, y.dtype) == (shape, dtype)
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_the_gradient_passes_where_the_number_did() -> None:
    x = torch.ones(1000, requires_grad=True)
    y = dropout(x, 0.3)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_dropout_of_a_model_made_elsewhere_is_ours() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2), nn.Dropout(0.2, inplace=True))
    use_fast_dropout(model)
    assert [type(module) for module in model] == [nn.Linear, Dropout, nn.Dropout]


def parts(causal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys, the identity as values, so that weights come out, and what may be seen."""
    q, k = torch.randn(2, 3, 64, 16), torch.randn(2, 3, 64, 16)
    seen = torch.arange(64) < torch.tensor([[40], [64]])
    return q, k, torch.eye(64).expand(2, 3, 64, 64), None if causal else seen[:, None, None, :]


@pytest.mark.parametrize("causal", [True, False])
def test_attention_drops_weights_and_scales_the_others(causal: bool) -> None:
    q, k, v, allowed = parts(causal)
    weights = F.scaled_dot_product_attention(q, k, v, allowed, is_causal=causal)
    found = attention(q, k, v, allowed, 0.25, causal)
    kept = found != 0
    torch.testing.assert_close(found[kept], weights[kept] * scale(0.25), rtol=1e-4, atol=1e-6)
    assert not bool(kept[weights == 0].any())
    assert abs(float(kept[weights > 0].double().mean()) - 0.75) < 0.03


@pytest.mark.parametrize("causal", [True, False])
def test_attention_has_the_gradients_of_torch(causal: bool) -> None:
    """Where the dropped weights are few enough not to matter, and the others are scaled by hardly more than one."""
    q, k, v, allowed = parts(causal)
    found = []
    for p in (0.0, 1 / LEVELS):
        given = [each.clone().requires_grad_() for each in (q, k, v[..., :16])]
        attention(*given, allowed, p, causal).square().sum().backward()
        found.append([each.grad for each in given])
    for torchs, ours in zip(*found, strict=True):
        assert float((ours - torchs).norm() / torchs.norm()) < 0.02


def test_attention_without_dropout_is_torchs_to_the_last_bit() -> None:
    q, k, v, allowed = parts(causal=False)
    assert torch.equal(attention(q, k, v, allowed, 0.0), F.scaled_dot_product_attention(q, k, v, allowed))


def test_a_text_without_a_token_is_no_nan() -> None:
    q, k, v, allowed = parts(causal=False)
    assert bool(attention(q, k, v, torch.zeros_like(allowed), 0.1).isfinite().all())
