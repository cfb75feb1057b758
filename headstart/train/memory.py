"""One sentence when the memory is not enough, with numbers to try instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from headstart.config import TrainConfig
from headstart.errors import ResourceError, out_of_memory
from headstart.quantities import data_size


@contextmanager
def memory_errors(model: nn.Module, cfg: TrainConfig) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ResourceError(
            f"Out of memory on {cfg.device}: the model alone takes {data_size(_held(model))} in training, and each "
            f"batch of {cfg.batch_size} comes on top. {_smaller(cfg)}",
            "MEMORY",
        ) from None


def _held(model: nn.Module) -> int:
    """Bytes of the weights and of the best so far; of gradients and Adam's two moments for trainable ones."""
    return sum((5 if p.requires_grad else 2) * p.nbytes for p in model.parameters())


def _smaller(cfg: TrainConfig) -> str:
    """What to try: a quarter of the batch, as often as gives the same number of examples."""
    size = max(1, cfg.batch_size // 4)
    if cfg.batch_size == 1:
        return "Try a shorter --context or a smaller --size, in a new run."
    times = -(-cfg.batch_size * cfg.accumulate // size)
    return f"Try --batch-size {size} --set train.accumulate={times} in a new run, or a smaller --size."
