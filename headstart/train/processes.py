"""The processes that train one model: who computes what, and how their results become one.

The micro-batches of a step are fixed by the settings (train.accumulate); process r of W computes those with m mod W = r.
Every process holds all weights and takes every step. Gradients are added in the order of the micro-batches, so that the
weights are the same to the last bit on any number of processes; above ORDERED parameters by all-reduce, whose order depends
on the number of processes. What is sent is tensors: nothing is pickled.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import TCPStore, rendezvous  # type: ignore[attr-defined]

from headstart.config import TrainConfig
from headstart.errors import ConfigError, ResourceError, first_line, out_of_memory
from headstart.runs.place import ALONE, LISTENING, Place

ORDERED = 50_000_000  # trained parameters; with more, K times their size would have to be sent at each step
PREPARING = timedelta(days=7)  # the others wait for the first process to read its data, however long that takes
SILENCE = timedelta(minutes=30)  # a process that lives and says nothing for so long is taken for lost
NUMBER = "number"  # in the name of what was no tensor
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
Added = Literal["ordered", "all-reduce", "sharded"]  # how gradients are
B = TypeVar("B")
R = TypeVar("R")
Micro = tuple[float, float, int]  # of a micro-batch: the sum of its losses, what that counts, its tokens


class Processes:
    """One process, which has everything to itself."""

    place: Place = ALONE
    gradients: Added = "ordered"
    waited: float = 0.0  # seconds in which this process sent, received, and waited for others

    def accumulate(self, backward: Callable[[int], Micro], micros: int, free: Sequence[nn.Parameter]) -> list[Micro]:
        """Add up the gradients of all micro-batches of a step in `free`; what each came to, in order."""
        return [backward(micro) for micro in range(micros)]

    def map(self, measure: Callable[[B], R], batches: Sequence[B], between: Callable[[], None]) -> Iterator[R]:
        """What `measure` makes of each batch, in order; `between` is called before each."""
        for batch in batches:
            between()
            yield measure(batch)

    def agreed(self, number: int) -> int:
        """The first number of any process that is not 0: all of them get the same one."""
        return number

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The first process goes through the block before the others do."""
        yield

    def begin(self, cfg: TrainConfig, parameters: int) -> None:
        """Call the others, and wait until all are ready to train so many parameters."""

    def dismiss(self) -> None:
        """The others have nothing to do."""

    def end(self) -> None:
        """Nothing is shared any more."""

    def facts(self) -> dict[str, float]:
        """What result.json has of the sharing; of a sharded model layers wait too, which is not measured."""
        return {} if self.gradients == "sharded" else {"communication_seconds": round(self.waited, 3)}


class Group(Processes):
    """One of several. The store comes first: through it the first process calls the others, once it is prepared."""

    def __init__(self, place: Place) -> None:
        self.place = place
        if place.one_machine:  # otherwise gloo takes the address of the host's name, which others can reach
            os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK)
        with _together():
            self._store = _store(place)

    def called(self) -> bool:
        """Wait until the first process is prepared; whether there is something to train."""
        with _together():
            self._store.wait(["called"], PREPARING)
            return bool(self._store.get("called") == b"train")

    def dismiss(self) -> None:
        self._store.set("called", b"nothing")

    def begin(self, cfg: TrainConfig, parameters: int) -> None:
        self.gradients, self._device = how(cfg, parameters), torch.device(cfg.device)
        if self.place.leads:
            self._store.set("called", b"train")
        backend = "cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo"
        store = PrefixStore("group", self._store)
        try:
            dist.init_process_group(
                backend, store=store, rank=self.place.rank, world_size=self.place.count, timeout=SILENCE
            )
            dist.barrier()
        except RuntimeError as error:
            raise unconnected(error) from None

    def end(self) -> None:
        with suppress(RuntimeError):
            dist.destroy_process_group()

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        if not self.place.leads:
            self._barrier()
        yield
        if self.place.leads:
            self._barrier()

    def agreed(self, number: int) -> int:
        numbers = self._gathered(torch.tensor([number]))
        return next((int(n) for n in numbers if n), 0)

    def accumulate(self, backward: Callable[[int], Micro], micros: int, free: Sequence[nn.Parameter]) -> list[Micro]:
        sums = SUMS[self.gradients](self, micros)
        facts = torch.zeros(micros, 3, dtype=torch.float64)
        touched = torch.zeros(len(free), dtype=torch.float64)  # by parameter: a gradient that nobody has stays None
        for first in range(0, micros, self.place.count):
            micro = first + self.place.rank
            if micro < micros:
                with _computing():
                    facts[micro] = torch.tensor(backward(micro), dtype=torch.float64)
                touched += torch.tensor([p.grad is not None for p in free])
            sums.add(free, first)
        self._sum(facts)  # each row has one process that is not 0: any order gives the same
        self._sum(touched)
        sums.give(free, touched)
        self._continue_after((micros - 1) % self.place.count)
        return [(loss, count, int(tokens)) for loss, count, tokens in facts.tolist()]

    def map(self, measure: Callable[[B], R], batches: Sequence[B], between: Callable[[], None]) -> Iterator[R]:
        for first in range(0, len(batches), self.place.count):
            between()
            mine = first + self.place.rank
            found = _packed(measure(batches[mine]) if mine < len(batches) else ())
            yield from map(self._unpacked, self._exchanged(found)[: len(batches) - first])

    def _exchanged(self, data: Tensor) -> list[Tensor]:
        """The bytes of every process, in their order."""
        sizes = [int(size) for size in self._gathered(torch.tensor([len(data)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = data
        return [part[:size] for part, size in zip(self._gathered(padded), sizes, strict=True)]

    def _unpacked(self, data: Tensor) -> Any:
        found = sorted(load(data.numpy().tobytes()).items())
        return tuple(float(t) if name.endswith(NUMBER) else t.to(self._device) for name, t in found)

    def _continue_after(self, rank: int) -> None:
        """Random numbers that are drawn after a step go on where one process would: after the last micro-batch."""
        state = torch.get_rng_state()
        with self._talking():
            dist.broadcast(state, rank)
        torch.set_rng_state(state)

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self.place.count)]
        with self._talking():
            dist.all_gather(found, tensor)
        return found

    def _sum(self, tensor: Tensor) -> None:
        with self._talking():
            dist.all_reduce(tensor)

    def _barrier(self) -> None:
        with self._talking():
            dist.barrier()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        began = time.perf_counter()
        with _together():
            yield
        self.waited += time.perf_counter() - began


def _packed(found: Any) -> Tensor:
    """A tuple of at most ten numbers and tensors as bytes."""
    named = {
        f"{i}" if isinstance(x, Tensor) else f"{i} {NUMBER}": torch.as_tensor(
            x, dtype=None if isinstance(x, Tensor) else torch.float64
        )
        for i, x in enumerate(found)
    }
    data = save({name: t.detach().cpu().contiguous() for name, t in named.items()})
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class _InOrder:
    """Each process adds up one part of the parameters, over all micro-batches in their order; then all get all parts."""

    def __init__(self, group: Group, micros: int) -> None:
        self.group, self.micros, self.total = group, micros, torch.empty(0)

    def add(self, free: Sequence[nn.Parameter], first: int) -> None:
        """The micro-batches from `first` on, one of each process."""
        count = self.group.place.count
        size = sum(p.numel() for p in free)
        sent = torch.full(
            (-(-size // count) * count,), -0.0, dtype=free[0].dtype, device=free[0].device
        )  # x + -0.0 is x
        for part, p in zip(sent[:size].split([p.numel() for p in free]), free, strict=True):
            assert p.dtype == sent.dtype, f"weights of one kind are trained, not {p.dtype} beside {sent.dtype}"
            if p.grad is not None:
                part.copy_(p.grad.reshape(-1))
                p.grad = None
        received = torch.empty_like(sent)
        with self.group._talking():
            dist.all_to_all_single(received, sent)
        for part in received.view(count, -1)[: self.micros - first]:
            self.total = self.total.add_(part) if len(self.total) else part.clone()

    def give(self, free: Sequence[nn.Parameter], touched: Tensor) -> None:
        whole = torch.cat(self.group._gathered(self.total))
        for part, p, has in zip(
            whole[: sum(p.numel() for p in free)].split([p.numel() for p in free]), free, touched, strict=True
        ):
            p.grad = part.view_as(p) if has else None


class _AllReduced:
    """Each process adds up its own micro-batches, then all-reduce adds up the processes: less is sent, in no fixed order."""

    def __init__(self, group: Group, micros: int) -> None:
        self.group = group

    def add(self, free: Sequence[nn.Parameter], first: int) -> None: ...  # backward has added to the gradients

    def give(self, free: Sequence[nn.Parameter], touched: Tensor) -> None:
        for p, has in zip(free, touched, strict=True):
            if has:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                self.group._sum(p.grad)


class _Scattered(_AllReduced):
    """Of a sharded model the backward pass adds up the gradients of all processes, and leaves each its part."""

    def give(self, free: Sequence[nn.Parameter], touched: Tensor) -> None: ...


SUMS: dict[Added, type[_InOrder] | type[_AllReduced]] = {
    "ordered": _InOrder,
    "all-reduce": _AllReduced,
    "sharded": _Scattered,
}


def how(cfg: TrainConfig, parameters: int) -> Added:
    """
    >>> how(TrainConfig(), 1_000_000), how(TrainConfig(), 100_000_000), how(TrainConfig(shard=True), 1)
    ('ordered', 'all-reduce', 'sharded')
    """
    if cfg.shard:
        return "sharded"
    return ("ordered" if parameters <= ORDERED else "all-reduce") if cfg.gradients == "auto" else cfg.gradients


def threads_of(cfg: TrainConfig, place: Place) -> int:
    """Threads of a process: as asked; of several on a machine, each gets its share of the cores. 0: as torch chooses."""
    shared = 0 if place.count == 1 else max(1, (os.cpu_count() or 1) // place.local_count)
    return cfg.threads or shared


def unconnected(error: Exception) -> ConfigError:
    return ConfigError(
        f"The processes cannot reach each other ({first_line(error)}). Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME on GPUs) to "
        "the network interface that the hosts share, such as eth0; `ip address` lists them.",
        "PROCESSES",
    )


def lost() -> ResourceError:
    return ResourceError(
        "Another process of this job ended, or cannot be reached. What was learned up to the last checkpoint is saved: go on "
        "with --resume, on any number of processes.",
        "PROCESS_LOST",
    )


@contextmanager
def _together() -> Iterator[None]:
    """What torch says when a process is gone, in our words."""
    try:
        yield
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise lost() from error


@contextmanager
def _computing() -> Iterator[None]:
    """The same for steps in which a sharded model talks too; what fails in them for another reason stays what it is."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise lost() from error
        raise


def _store(place: Place) -> Any:
    """Where the processes find each other: of `--processes` on loopback alone, of torchrun as it has made it."""
    if listening := os.environ.get(LISTENING):
        port = int(os.environ["MASTER_PORT"])
        return TCPStore(
            "127.0.0.1", port, place.count, place.leads, timeout=PREPARING, wait_for_workers=False,
            master_listen_fd=int(listening) if place.leads else None,
        )  # fmt: skip
    store, _, _ = next(iter(rendezvous("env://", timeout=PREPARING)))
    return store
