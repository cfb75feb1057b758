"""Recurrent parts against torch's own, and against their equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headstart.models.recurrent import AdditiveAttention, GRUCell, Recurrent, WrittenGRU
from headstart.shapes import Seq2SeqConfig

TIGHT = {"atol": 1e-6, "rtol": 1e-5}


def test_the_written_cell_is_torch_gru_cell() -> None:
    torch.manual_seed(0)
    ours, theirs = GRUCell(5, 7), nn.GRUCell(5, 7)
    _give_weights(ours, theirs.weight_ih, theirs.weight_hh, theirs.bias_ih, theirs.bias_hh)
    x, h = torch.randn(3, 5), torch.randn(3, 7)
    assert_close(ours(x, h), theirs(x, h), **TIGHT)


def test_the_reset_gate_before_the_matrix_is_the_cell_of_the_paper() -> None:
    torch.manual_seed(0)
    cell = GRUCell(5, 7, reset_before=True)
    x, h = torch.randn(3, 5), torch.randn(3, 7)
    (wir, wiz, wih), (bir, biz, bih) = cell.of_input.weight.chunk(3), cell.of_input.bias.chunk(3)
    (whr, whz, whh), (bhr, bhz, bhh) = cell.of_state.weight.chunk(3), cell.of_state.bias.chunk(3)
    # Its update gate is the share of what is new; torch's is the share of what stays: the same with the sign turned.
    z = torch.sigmoid(-(x @ wiz.T + biz + h @ whz.T + bhz))
    r = torch.sigmoid(x @ wir.T + bir + h @ whr.T + bhr)
    g = torch.tanh(x @ wih.T + bih + (r * h) @ whh.T + bhh)
    assert_close(cell(x, h), (1 - z) * h + z * g, **TIGHT)
    after = GRUCell(5, 7)
    after.load_state_dict(cell.state_dict())
    assert not torch.allclose(after(x, h), cell(x, h), atol=1e-3)


def test_layers_of_written_cells_are_torch_gru() -> None:
    torch.manual_seed(0)
    theirs = nn.GRU(6, 6, 2, batch_first=True)
    ours = WrittenGRU(6, 2, 0.0, reset_before=False)
    for i, cell in enumerate(ours.cells):
        _give_weights(
            cell, *(getattr(theirs, f"{name}_l{i}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        )
    x, h = torch.randn(3, 4, 6), torch.randn(2, 3, 6)
    for mine, yours in zip(ours(x, h), theirs(x, h), strict=True):
        assert_close(mine, yours, **TIGHT)


@pytest.mark.parametrize("kind", ["gru", "gru-additive"])
def test_fused_and_written_models_give_the_same_logits(kind: str) -> None:
    torch.manual_seed(0)
    shape = {"kind": kind, "vocab": 11, "target_vocab": 13, "hidden": 8, "layers": 2}
    fused, written = (
        Recurrent(Seq2SeqConfig.model_validate({**shape, "cell": cell})).eval() for cell in ("fused", "written")
    )
    shared = {name: t for name, t in fused.state_dict().items() if not name.startswith(("encoder", "decoder"))}
    written.load_state_dict(shared, strict=False)
    for side in ("encoder", "decoder"):
        for i, cell in enumerate(getattr(written, side).cells):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            _give_weights(cell, *(getattr(getattr(fused, side), f"{name}_l{i}") for name in names))
    source, target = torch.randint(11, (3, 5)), torch.randint(13, (3, 4))
    mask = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    assert_close(written(source, mask, target), fused(source, mask, target), **TIGHT)


def test_additive_attention_is_a_network_of_two_layers_on_query_and_key() -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(6)
    query, keys, mask = torch.randn(2, 3, 6), torch.randn(2, 4, 6), torch.ones(2, 4, dtype=torch.bool)
    mask[1, 3:] = False
    first = torch.cat([attention.of_query.weight, attention.of_key.weight], dim=1)
    scores = torch.empty(2, 3, 4)
    for b in range(2):
        for t in range(3):
            for s in range(4):
                joined = torch.cat([query[b, t], keys[b, s]])
                scores[b, t, s] = attention.score(torch.relu(first @ joined + attention.of_key.bias))
    scores[1, :, 3:] = -torch.inf
    context, weights = attention(query, attention.of_key(keys), keys, mask)
    assert_close(weights, scores.softmax(-1), **TIGHT)
    assert_close(context, scores.softmax(-1) @ keys, **TIGHT)


def _give_weights(cell: GRUCell, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> None:
    with torch.no_grad():
        cell.of_input.weight.copy_(w_ih)
        cell.of_state.weight.copy_(w_hh)
        cell.of_input.bias.copy_(b_ih)
        cell.of_state.bias.copy_(b_hh)
