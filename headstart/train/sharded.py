"""What learns in a process: the model and its optimizer, or, with `--shard`, this process's part of both (FSDP2).

Of a sharded model each process keeps a part of every weight that learns, of its gradient and of its two moments. During a step
the weights of a layer come together for the time that the layer takes. For an evaluation all weights come together in the
model that was given, and for a checkpoint the moments too, at the first process: so a checkpoint knows no processes, and nothing but a step
knows of shards. Frozen weights are whole in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from headstart.config import TrainConfig
from headstart.errors import ConfigError
from headstart.runs.checkpoint import Tensors, load_weights, weights
from headstart.train.larger import repeated_layers
from headstart.train.optim import build_optimizer
from headstart.train.processes import Processes


class Learner:
    """The model and the optimizer that were given."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.given, self.saved_optimizer = model, optimizer
        self.model, self.optimizer = model, optimizer  # that take the steps

    def task(self, task: Any) -> Any:
        """The task for `model`."""
        return task

    @contextmanager
    def whole(self) -> Iterator[None]:
        """In the block the model that was given has its weights."""
        yield

    @contextmanager
    def saved(self) -> Iterator[None]:
        """In the block the model and the optimizer that were given are fit to be saved by the first process."""
        yield

    def end(self, best: Tensors | None) -> None:
        """No step is taken any more: the model that was given has its weights, or the best, where there are some."""
        if best is not None:
            load_weights(self.given, best)

    def kept(self) -> Tensors | None:
        """A copy of the weights, in a process that needs one."""
        return {name: t.clone() for name, t in weights(self.given).items()}


def learner(model: nn.Module, optimizer: torch.optim.Optimizer, cfg: TrainConfig, processes: Processes) -> Learner:
    return Sharded(model, optimizer, cfg, processes.place.leads) if processes.gradients == "sharded" else Learner(model, optimizer)  # fmt: skip


class Step(nn.Module):
    """The loss of a task as a forward pass, before and after which FSDP does its work."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.learned = model

    def forward(self, task: Any, batch: Any) -> tuple[Tensor, float]:
        loss: tuple[Tensor, float] = task.loss(self.learned, batch)
        return loss


class Within:
    """A task whose loss is that of another one, within a `Step`."""

    def __init__(self, task: Any) -> None:
        self.asked = task

    def loss(self, step: Step, batch: Any) -> tuple[Tensor, float]:
        found: tuple[Tensor, float] = step(self.asked, batch)
        return found


class Sharded(Learner):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, cfg: TrainConfig, leads: bool) -> None:
        super().__init__(model, optimizer)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard
        from torch.distributed.tensor import distribute_tensor

        must_be_divisible(model)
        self.leads = leads
        mesh = init_device_mesh(torch.device(cfg.device).type, (torch.distributed.get_world_size(),))
        parts = deepcopy(
            model, {id(p): p for p in model.parameters()}
        )  # no weight twice: they are `model`'s, until divided
        frozen = {p for p in model.parameters() if not p.requires_grad}
        for layer in repeated_layers(parts):
            if any(p.requires_grad for p in layer.parameters()):
                fully_shard(layer, mesh=mesh, ignored_params=frozen)
        self.model = Step(parts)
        fully_shard(self.model, mesh=mesh, ignored_params=frozen)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # the loop divides, by all that was counted
                module.set_force_sum_reduction_for_comms(True)
        self.optimizer = build_optimizer(parts, cfg)
        self.parts = parts
        divided: dict[str, Any] = dict(parts.named_parameters())
        self.pairs = [(p, divided[name]) for name, p in model.named_parameters() if p.requires_grad]
        for p, part in self.pairs:
            if p in optimizer.state:
                state = optimizer.state.pop(p)
                self.optimizer.state[part] = {
                    key: distribute_tensor(value, mesh, part.placements) if value.dim() else value
                    for key, value in state.items()
                }
        self._release()

    def task(self, task: Any) -> Any:
        return Within(task)

    def end(self, best: Tensors | None) -> None:
        self._gather()
        self.optimizer.state.clear()
        super().end(best)

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._gather()
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Moments go to the memory of the processor, one after the other; the other processes only send theirs."""
        with self.whole():
            for p, part in self.pairs:
                moments = {key: _gathered(value) for key, value in self.optimizer.state.get(part, {}).items()}
                if moments and self.leads:
                    self.saved_optimizer.state[p] = {key: value.cpu() for key, value in moments.items()}
            try:
                yield
            finally:
                self.saved_optimizer.state.clear()

    def kept(self) -> Tensors | None:
        return {name: t.to("cpu", copy=True) for name, t in weights(self.given).items()} if self.leads else None

    def _gather(self) -> None:
        for p, part in self.pairs:
            p.data = _gathered(part)
        own: Mapping[str, Tensor] = dict(self.parts.named_buffers())
        for name, buffer in self.given.named_buffers():
            if buffer is not own[name]:
                buffer.copy_(own[name])

    def _release(self) -> None:
        for p, _ in self.pairs:
            p.data = p.data.new_empty(0)


def must_be_divisible(model: nn.Module) -> None:
    if any(p.requires_grad and not p.dim() for p in model.parameters()):
        raise ConfigError(
            "This model learns a single number, such as the temperature of a matcher, which cannot be divided. Leave out --shard.",
            "SHARD",
        )


def _gathered(tensor: Any) -> Tensor:
    """The whole of a tensor of which each process has a part."""
    return tensor.full_tensor().detach() if hasattr(tensor, "full_tensor") else tensor.detach().clone()
