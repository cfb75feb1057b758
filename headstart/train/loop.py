"""The one training loop. It knows nothing of the task: a task is a loss and an evaluation."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from headstart.config import TrainConfig
from headstart.errors import ConfigError, Stopped
from headstart.runs.checkpoint import Progress, Saver, Tensors, fingerprint, load_checkpoint, weights
from headstart.runs.environment import processor
from headstart.runs.place import ALONE, Place
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.text.batch import AnyBatch, B, Batches, Dealt
from headstart.train.events import Events
from headstart.train.freed_memory import keep_freed_memory
from headstart.train.health import Health
from headstart.train.larger import half, layers_as_asked, must_be_possible
from headstart.train.memory import memory_errors
from headstart.train.optim import build_optimizer, learning_rate
from headstart.train.processes import Micro, Processes, threads_of
from headstart.train.sharded import Learner, learner

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ALL = Processes()  # one process: all there is
M = TypeVar("M", bound=nn.Module)
R = TypeVar("R")
M_contra = TypeVar("M_contra", bound=nn.Module, contravariant=True)
B_contra = TypeVar("B_contra", bound=AnyBatch, contravariant=True)


class Task(Protocol[M_contra, B_contra]):
    def loss(self, model: M_contra, batch: B_contra) -> tuple[Tensor, float]: ...

    def evaluate(self, model: M_contra, batches: Iterable[B_contra]) -> Mapping[str, Any]: ...

    def rank(self, scores: Mapping[str, Any]) -> tuple[float, ...]:
        """Picks the kept weights; larger is better."""
        ...


def prepare_device(cfg: TrainConfig, place: Place = ALONE) -> int:
    """Threads as asked, and how many they are; a clear word when the device is not there."""
    keep_freed_memory()
    if threads := threads_of(cfg, place):
        torch.set_num_threads(threads)
    try:
        if cfg.device == "cuda" and place.local_count > 1:
            torch.cuda.set_device(place.local_rank)
        float(torch.zeros(1, device=cfg.device))
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"Device '{cfg.device}' cannot be used: {str(error).splitlines()[0]}") from None
    must_be_possible(cfg)
    return torch.get_num_threads()


def train(
    model: M,
    task: Task[M, B],
    batches: Batches[B],
    valid: Callable[[], Sequence[B]] | None,
    cfg: TrainConfig,
    run: Run,
    watch: Watch,
    after_evaluation: Callable[[int], None] = lambda step: None,
    processes: Processes = ALL,
) -> Progress:
    """Train `model` in place and leave it with its best weights; goes on from a checkpoint if `run` has one."""
    optimizer = build_optimizer(model, cfg)
    with processes.leader_first():  # whose checkpoint the others go on from
        now, best = _resume(run, model, optimizer, watch)
        began = time.perf_counter() - now.seconds
        saver = Saver(run, model, optimizer, watch, saved=now.step if run.begun else None)
        saver.save(
            now, None, insist=True
        )  # before anything is logged, so that a run that has begun always has a checkpoint
    learns = learner(model, optimizer, cfg, processes)
    free = [p for p in learns.model.parameters() if p.requires_grad]
    state, health = _State(saver, now, best, began, cfg, processes, learns), Health(batches, cfg, run, watch)
    with (
        _signals() as state.asked_to_stop,
        Events(run, cfg.tensorboard and run.writes, now.step, watch) as events,
        watch.bar(run.path.name, cfg.steps, now.step),
        memory_errors(learns.model, cfg),
        layers_as_asked(learns.model, cfg),
    ):
        while True:
            due = now.step % cfg.eval_every == 0 or now.step == cfg.steps
            if due and not now.evaluated:
                with learns.whole():
                    if valid is not None:
                        _measure(model, task, valid(), state, health, run, events)
                    after_evaluation(now.step)
                now.evaluated = True
            if now.step == cfg.steps or (cfg.patience and now.stale >= cfg.patience):
                break
            state.stop_if_asked()
            if now.step and now.step % cfg.checkpoint_every == 0:
                state.save()
            update = gradients(learns.model, learns.task(task), batches, free, cfg, now, processes)
            if health.allows(update, now):
                apply_gradients(learns.optimizer, update["lr"])
                health.check_weights(free, now)
                health.look_for_spike(update, now)
                if (now.step + 1) % cfg.log_every == 0 or now.step == 0:
                    run.log({"step": now.step + 1, "split": "train", **update, "wall": _wall(began, now)})
                    events.add("train", update, now.step + 1)
                if now.step == 0:
                    with learns.whole():
                        run.log({"step": 1, "split": "receipt", **step_receipt(model)})
            now.step, now.evaluated = now.step + 1, False
            watch.advance(now.step, update["loss"], now.tokens / max(1e-9, time.perf_counter() - began))
    state.save(insist=True)  # a kill while the closing files are written is repaired from here
    learns.end(state.best)
    model.eval()
    return now


@dataclass
class _State:
    """What a stop must not lose: it is saved, and a signal that arrives is heeded between two batches."""

    saver: Saver
    now: Progress
    best: Tensors | None  # weights
    began: float
    cfg: TrainConfig
    processes: Processes
    learns: Learner
    asked_to_stop: list[int] = field(default_factory=list)  # signals that have arrived

    def save(self, insist: bool = False) -> None:
        self.now.seconds = time.perf_counter() - self.began
        with self.learns.saved():
            self.saver.save(self.now, self.best if self.now.best_step != self.now.step else None, insist)

    def stop_if_asked(self) -> None:
        if number := self.processes.agreed(self.asked_to_stop[0] if self.asked_to_stop else 0):
            self.save(insist=True)
            raise Stopped(f"at step {self.now.step} of {self.cfg.steps}", number)


@dataclass(frozen=True)
class MeasuredBatches(Dealt[B]):
    """Validation batches, which the processes share. An evaluation can take minutes; begun again, it gives the same."""

    state: _State
    batches: Sequence[B]

    def __iter__(self) -> Iterator[B]:
        for batch in self.batches:
            self.state.stop_if_asked()
            yield batch.to(self.state.cfg.device)

    def map(self, function: Callable[[B], R]) -> Iterator[R]:
        state = self.state
        return state.processes.map(
            lambda batch: function(batch.to(state.cfg.device)), self.batches, state.stop_if_asked
        )


def _measure(
    model: M, task: Task[M, B], valid: Sequence[B], state: _State, health: Health, run: Run, events: Events
) -> None:
    """An evaluation; the weights are kept if its scores are the best so far."""
    now = state.now
    scores = task.evaluate(model.eval(), MeasuredBatches(state, valid))
    health.check_scores(scores, now)
    run.log({"step": now.step, "split": "valid", **scores, "wall": _wall(state.began, now)})
    events.add("valid", scores, now.step)
    if now.best is not None and not task.rank(scores) > task.rank(now.best):
        now.stale += 1
        return
    now.best, now.best_step, now.stale = scores, now.step, 0
    state.best = state.learns.kept()


def gradients(
    model: M,
    task: Task[M, B],
    batches: Batches[B],
    free: list[nn.Parameter],
    cfg: TrainConfig,
    now: Progress,
    processes: Processes = ALL,
) -> dict[str, float]:
    """The gradients of the next step, accumulated over `accumulate` batches, divided by their total count and clipped."""
    model.zero_grad()  # a skipped step leaves its gradients

    def backward(micro: int) -> Micro:
        _seed_step(cfg, now.step, micro)
        batch = batches(now.step * cfg.accumulate + micro).to(cfg.device)
        with half(cfg):
            loss, counted = task.loss(
                model.train(), batch
            )  # a frozen base that reads the rows now has turned dropout off
        loss.backward()
        return float(loss.detach()), counted, batch.tokens

    total = count = 0.0
    for loss, counted, tokens in processes.accumulate(backward, cfg.accumulate, free):
        total, count, now.tokens = total + loss, count + counted, now.tokens + tokens
    found = [p.grad for p in free if p.grad is not None]
    norm = float(nn.utils.get_total_norm(found)) / count
    torch._foreach_mul_(found, min(1.0, (cfg.clip or math.inf) / (norm + 1e-6)) / count)
    return {"loss": total / count, "lr": learning_rate(now.step, cfg), "grad_norm": norm}


def step_receipt(model: nn.Module) -> dict[str, str]:
    """The weights that learn after a step, for whoever runs that step again; the same bits on the same processor alone."""
    free = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {"weights_sha256": fingerprint(free), "processor": processor()}


def apply_gradients(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    optimizer.step()
    optimizer.zero_grad()


def _resume(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, watch: Watch
) -> tuple[Progress, Tensors | None]:
    found = load_checkpoint(run, model, optimizer)
    if found is None:
        return Progress(), None
    now, best, passed_over = found
    for reason in passed_over:
        watch.note(f"Passed over a damaged checkpoint: {reason}.")
    for change in run.changes:
        watch.note(f"Note: not bit-identical: {change}.")
    run.cut_log(now.log_bytes)
    watch.note(f"Going on from step {now.step}.")
    if best is None and now.best is not None:
        best = {name: t.clone() for name, t in weights(model).items()}
    return now, best


def _seed_step(cfg: TrainConfig, step: int, micro: int) -> None:
    """Dropout of a step depends on the step alone. Seeding devices that are not used formats a stack trace for each."""
    seed = int(np.random.SeedSequence([cfg.seed, 4, step, micro]).generate_state(1, np.uint64)[0] >> 1)
    (torch.default_generator if cfg.device == "cpu" else torch).manual_seed(seed)


def _wall(began: float, now: Progress) -> dict[str, float]:
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 3), "tokens_per_second": round(now.tokens / max(seconds, 1e-9), 1)}


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The first SIGINT, SIGTERM or SIGHUP asks for a stop; a second SIGINT is Python's own, at once.

    A terminal that goes away sends SIGHUP; where that is ignored, as nohup does, training goes on.
    """
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return

    def handle(number: int, frame: object) -> None:
        arrived.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    heard = [n for n in STOPS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
