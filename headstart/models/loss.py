"""Cross-entropy over a large vocabulary without ever holding all its logits.

The plain way makes an (N, V) matrix of logits, another of probabilities and a third of gradients. Here a chunk
of rows at a time goes through one reused buffer (or the memory that the last one freed), and the gradients are formed in the same pass: the numbers are
the same, the memory is that of one chunk. N rows, D width, V vocabulary.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.models.products import fast, product

CHUNK = 512  # rows
MANY_LOGITS = (
    2**22
)  # of a chunk by oneDNN, whose results are new memory each time: the allocator keeps no more than 32 MB
ALIGN = 64  # matrix products with V a multiple of this run up to 1.8 times faster on AVX2
WORTH_PADDING = 4096  # vocabularies below this are too small for the copy to pay

_memory = threading.local()  # each thread its own, so that two trainings in one process do not mix


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """The summed cross-entropy of F.linear(hidden, weight, bias) against target, as one number."""
    if not torch.is_grad_enabled():  # autograd would ask for gradients all the same
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    return _ChunkedCrossEntropy.apply(
        hidden.to(weight.dtype), weight, bias, target
    )  # of layers in bf16, a float32 loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
        vocab = len(weight)
        learn_hidden, learn_weight, learn_bias = ctx.needs_input_grad[:3]
        learn = learn_hidden or learn_weight or learn_bias
        matrix, shift = _aligned(weight, bias)
        d_hidden = torch.empty_like(hidden) if learn_hidden else None
        d_matrix = torch.zeros_like(matrix) if learn_weight else None
        d_shift = torch.zeros(len(matrix), dtype=matrix.dtype, device=matrix.device) if learn_bias else None
        onednn = fast(hidden, matrix)
        most = max(1, MANY_LOGITS // len(matrix)) if onednn else CHUNK
        rows = min(CHUNK, most, max(1, len(hidden)))
        buffer = None if onednn else _buffer("logits", (rows, len(matrix)), hidden)
        total = hidden.new_zeros(())
        for start in range(0, len(hidden), rows):
            x, y = hidden[start : start + rows], target[start : start + rows, None]
            z = product(x, matrix) if buffer is None else torch.mm(x, matrix.T, out=buffer[: len(x)])
            if shift is not None:
                z += shift
            top = z.amax(1, keepdim=True)
            right = z.gather(1, y) - top
            z.sub_(top).exp_()
            mass = z.sum(1, keepdim=True)
            total += (mass.log() - right).sum()
            if not learn:
                continue
            z.div_(mass).scatter_add_(1, y, z.new_full(y.shape, -1.0))  # softmax minus one-hot
            if d_hidden is not None:
                part = d_hidden[start : start + rows]
                part.copy_(product(z, matrix.T)) if onednn else torch.mm(z, matrix, out=part)
            if d_matrix is not None:
                d_matrix.add_(product(z.T, x.T)) if onednn else d_matrix.addmm_(z.T, x)
            if d_shift is not None:
                d_shift += z.sum(0)
        ctx.save_for_backward(
            d_hidden,
            None if d_matrix is None else d_matrix[:vocab],
            None if d_shift is None else d_shift[:vocab],
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if grad is None else grad * scale for grad in ctx.saved_tensors), None


def _aligned(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The matrix and bias with rows added up to a multiple of ALIGN; the added ones can never be chosen."""
    vocab, width = weight.shape
    extra = -vocab % ALIGN
    if not extra or vocab < WORTH_PADDING:
        return weight.detach(), None if bias is None else bias.detach()
    matrix = _buffer("weight", (vocab + extra, width), weight)
    matrix[:vocab] = weight.detach()
    matrix[vocab:] = 0
    shift = _buffer("bias", (vocab + extra,), weight)
    shift[:vocab] = 0 if bias is None else bias.detach()
    shift[vocab:] = -torch.inf
    return matrix, shift


def _buffer(name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Memory that is written anew at every call and never leaves this file."""
    key = (name, shape[1:], like.dtype, like.device)
    buffers: dict[tuple[Any, ...], Tensor] = _memory.__dict__.setdefault("buffers", {})
    held = buffers.get(key)
    if held is None or len(held) < shape[0]:
        held = buffers[key] = torch.empty(shape, dtype=like.dtype, device=like.device)
    return held[: shape[0]]
