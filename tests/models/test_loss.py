"""The chunked loss is the plain one, to the last digits that matter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headstart.models import loss as chunked
from headstart.models import products
from headstart.models.loss import chunked_cross_entropy


@pytest.fixture(autouse=True, params=[True, False], ids=["oneDNN", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "prefers_onednn", lambda: request.param)


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("vocab", [50, 64])
def test_loss_and_gradients_are_those_of_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool, vocab: int
) -> None:
    monkeypatch.setattr(chunked, "CHUNK", 16)
    monkeypatch.setattr(chunked, "WORTH_PADDING", 1)  # the aligned path, on a small vocabulary
    torch.manual_seed(rows)
    inputs = [torch.randn(rows, 12), torch.randn(vocab, 12)] + ([torch.randn(vocab)] if bias else [])
    target = torch.randint(vocab, (rows,))
    ours = [t.clone().requires_grad_() for t in inputs]
    plain = [t.clone().requires_grad_() for t in inputs]
    total = chunked_cross_entropy(ours[0], ours[1], ours[2] if bias else None, target)
    expected = F.cross_entropy(F.linear(*plain), target, reduction="sum")
    assert_close(total, expected)
    (total * 0.3).backward()
    (expected * 0.3).backward()
    for mine, theirs in zip(ours, plain, strict=True):
        assert_close(mine.grad, theirs.grad, atol=1e-5, rtol=1e-5)


def test_a_second_loss_does_not_disturb_the_first() -> None:
    torch.manual_seed(0)
    weight = torch.randn(50, 8, requires_grad=True)
    a, b = torch.randn(20, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    target = torch.randint(50, (20,))
    first = chunked_cross_entropy(a, weight, None, target)
    chunked_cross_entropy(b, weight, None, target).backward()
    first.backward()
    expected = torch.autograd.grad(F.cross_entropy(a @ weight.T, target, reduction="sum"), a)[0]
    assert_close(a.grad, expected, atol=1e-5, rtol=1e-5)


def test_no_rows_lose_nothing() -> None:
    weight = torch.randn(50, 8, requires_grad=True)
    total = chunked_cross_entropy(torch.empty(0, 8), weight, None, torch.empty(0, dtype=torch.long))
    assert float(total.detach()) == 0.0


def test_a_frozen_matrix_gets_no_gradient() -> None:
    hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(50, 8)
    chunked_cross_entropy(hidden, weight, None, torch.randint(50, (5,))).backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_two_threads_do_not_disturb_each_other() -> None:
    torch.manual_seed(0)
    inputs = [(torch.randn(300, 16), torch.randn(500, 16), torch.randint(500, (300,))) for _ in range(2)]
    expected = [float(F.cross_entropy(h @ w.T, y, reduction="sum")) for h, w, y in inputs]

    def work(i: int) -> list[float]:
        h, w, y = inputs[i]
        return [float(chunked_cross_entropy(h, w, None, y)) for _ in range(40)]

    with ThreadPoolExecutor(2) as pool:
        for found, right in zip(pool.map(work, range(2)), expected, strict=True):
            assert found == pytest.approx([right] * 40, rel=1e-4)


def test_without_gradients_none_are_computed() -> None:
    weight = torch.randn(50, 8, requires_grad=True)
    with torch.no_grad():
        total = chunked_cross_entropy(torch.randn(5, 8, requires_grad=True), weight, None, torch.randint(50, (5,)))
    assert not total.requires_grad
