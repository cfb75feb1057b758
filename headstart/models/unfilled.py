"""Models without numbers of their own: shapes without memory, and memory that weights are about to be loaded into.

Drawing weights that are overwritten at once takes as long as reading them, and torch draws them on its meta device by way
of its compiler, which takes longer to import than torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FILLS = (Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_)


class Unfilled(TorchFunctionMode):
    """Initialization does nothing: a parameter holds whatever its memory held, until weights are loaded."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in FILLS or getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Models that are built in the block have shapes, and no memory."""
    with torch.device("meta"), Unfilled():
        yield
