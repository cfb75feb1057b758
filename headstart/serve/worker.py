"""One thread that does all work with models. Requests that wait for the same model are answered in one forward pass.

Generations go on one token at a time, in turn, so that a long one keeps nobody else waiting for longer than a token.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headstart.serve.metrics import Metrics
from headstart.serve.problems import OVERLOADED, Refused
from headstart.serve.settings import Limits

Call = Callable[[list[Any]], Sequence[Any]]


@dataclass
class _Batch:
    """Items for `call`, which answers one for each; those under the same key may be joined."""

    key: Hashable
    call: Call
    items: list[Any]
    deadline: float
    future: Future[list[Any]] = field(default_factory=Future)


@dataclass
class Generation:
    """Something that is made step by step; `tell` hears of each step, and of the end or an error."""

    start: Callable[[], Iterator[Any]]
    tell: Callable[[Any, BaseException | None, bool], None]
    deadline: float
    cancelled: threading.Event = field(default_factory=threading.Event)
    steps: Iterator[Any] | None = None


class Worker:
    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self._waiting: deque[_Batch] = deque()
        self._generations: deque[Generation] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="models")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No new work; what has begun is finished, as far as that takes no more than a few seconds."""
        with self._changed:
            self._stopped = True
            for generation in self._generations:
                generation.cancelled.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(5.0)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._generations)

    def submit(self, key: Hashable, call: Call, items: list[Any]) -> Future[list[Any]]:
        """The answers of `call`, some time; refused at once where too many wait already."""
        batch = _Batch(key, call, items, time.monotonic() + self.limits.seconds)
        with self._changed:
            self._must_have_room()
            self._waiting.append(batch)
            self._changed.notify()
        return batch.future

    def generate(
        self, start: Callable[[], Iterator[Any]], tell: Callable[[Any, BaseException | None, bool], None]
    ) -> Generation:
        generation = Generation(start, tell, time.monotonic() + self.limits.seconds)
        with self._changed:
            self._must_have_room()
            self._generations.append(generation)
            self._changed.notify()
        return generation

    def _must_have_room(self) -> None:
        if self._stopped or self.waiting >= self.limits.queue:
            self.metrics.add("refused")
            raise Refused(OVERLOADED, "OVERLOADED")

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._generations or self._stopped):
                    self._changed.wait()
                if self._stopped and not self._waiting and not self._generations:
                    return
                together = self._taken()
                generation = self._generations.popleft() if self._generations else None
            if together:
                self._answer(together)
            if generation and self._advance(generation):
                with self._changed:
                    self._generations.append(generation)

    def _taken(self) -> list[_Batch]:
        """The request that waits longest, and others like it that fit into the same forward pass."""
        if not self._waiting:
            return []
        together = [self._waiting.popleft()]
        size = len(together[0].items)
        for other in [batch for batch in self._waiting if batch.key == together[0].key]:
            if size + len(other.items) <= self.limits.batch:
                self._waiting.remove(other)
                together.append(other)
                size += len(other.items)
        return together

    def _answer(self, together: list[_Batch]) -> None:
        now = time.monotonic()
        alive = []
        for batch in together:
            if not batch.future.set_running_or_notify_cancel():
                continue
            if batch.deadline < now:
                batch.future.set_exception(Refused("The request waited too long. Try again later.", "LATE"))
            else:
                alive.append(batch)
        if not alive:
            return
        self.metrics.add("batches")
        self.metrics.add("batched_requests", len(alive))
        try:
            answers = list(alive[0].call([item for batch in alive for item in batch.items]))
        except Exception as error:
            if len(alive) == 1:
                alive[0].future.set_exception(error)
            else:  # one text must not spoil the answers to others
                for batch in alive:
                    self._alone(batch)
            return
        for batch in alive:
            batch.future.set_result(answers[: len(batch.items)])
            answers = answers[len(batch.items) :]

    def _alone(self, batch: _Batch) -> None:
        try:
            batch.future.set_result(list(batch.call(batch.items)))
        except Exception as error:
            batch.future.set_exception(error)

    def _advance(self, generation: Generation) -> bool:
        """One more step; False when it is over."""
        if generation.cancelled.is_set():
            return False
        try:
            if generation.deadline < time.monotonic():
                raise Refused("The generation took too long.", "LATE")
            if generation.steps is None:
                generation.steps = generation.start()
            step = next(generation.steps, None)
        except Exception as error:
            generation.tell(None, error, True)
            return False
        generation.tell(step, None, step is None)
        self.metrics.add("steps")
        return step is not None
