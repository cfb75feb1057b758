"""One thread that does all work with models. Requests that wait for the same model are answered in one forward pass.

Clients that were answered together ask again within moments of each other: the next pass waits for most of them, at most for
a few milliseconds. A client that is alone never waits.

While the thread is at work, a second one answers what may go on beside it: passes that only read another model, as /predict does.

Generations go on one token at a time, in turn, so that a long one keeps nobody else waiting for longer than a token.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headstart.serve.metrics import Metrics
from headstart.serve.problems import OVERLOADED, Refused
from headstart.serve.settings import Limits

Call = Callable[[list[Any]], Sequence[Any]]
GATHERING = 0.006  # seconds that a pass waits at most
ENOUGH = 5 / 6  # of the requests of the last pass


@dataclass
class _Batch:
    """Items for `call`, which answers one for each; those under the same key may be joined."""

    key: Hashable
    call: Call
    items: list[Any]
    deadline: float
    future: Future[list[Any]] | asyncio.Future[list[Any]]
    beside: bool = False  # whether it may be answered while other work goes on


Outcome = tuple[_Batch, list[Any] | None, Exception | None]  # the answers, or why there are none


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
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._spare = threading.Condition(lock)  # for the second thread, which a lone request need not wake
        self._stopped = False
        self._busy = False  # whether the first thread is at work
        self._key: Hashable = None  # of the requests that it answers
        self._joined = 1  # requests of its last pass
        self._enough = 1  # requests that it waits for
        self._threads = [threading.Thread(target=work, daemon=True, name="models") for work in (self._work, self._help)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No new work; what has begun is finished, as far as that takes no more than a few seconds."""
        with self._changed:
            self._stopped = True
            for generation in self._generations:
                generation.cancelled.set()
            self._changed.notify_all()
            self._spare.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5.0)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._generations)

    def submit(self, key: Hashable, call: Call, items: list[Any]) -> Future[list[Any]]:
        """The answers of `call`, some time, for a thread that waits; refused at once where too many wait already."""
        future: Future[list[Any]] = Future()
        self._queue(_Batch(key, call, items, time.monotonic() + self.limits.seconds, future))
        return future

    def ask(
        self, key: Hashable, call: Call, items: list[Any], seconds: float, beside: bool = False
    ) -> asyncio.Future[list[Any]]:
        """The same for a coroutine, which waits so long. Its loop is woken once for all that were answered together."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._queue(_Batch(key, call, items, time.monotonic() + seconds, future, beside))
        return future

    def _queue(self, batch: _Batch) -> None:
        with self._changed:
            self._must_have_room()
            self._waiting.append(batch)
            if len(self._waiting) >= self._enough:
                self._changed.notify()
            if self._busy and self._may_go_beside(batch):
                self._spare.notify()

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
                self._busy = False
                while not (self._waiting or self._generations or self._stopped):
                    self._changed.wait()
                if self._stopped and not self._waiting and not self._generations:
                    return
                if not self._generations:
                    self._gather()
                together = self._taken(self._waiting)
                self._busy, self._joined, self._key = True, len(together), together[0].key if together else None
                if self._waiting:
                    self._spare.notify()
                generation = self._generations.popleft() if self._generations else None
            if together:
                self._answer(together)
            if generation:
                self._key = None
                if self._advance(generation):
                    with self._changed:
                        self._generations.append(generation)

    def _gather(self) -> None:
        """Wait for most of the clients that were answered together."""
        until, self._enough = time.monotonic() + GATHERING, math.ceil(ENOUGH * self._joined)
        while len(self._waiting) < self._enough and not self._stopped and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)
        self._enough = 1

    def _help(self) -> None:
        while True:
            with self._changed:
                while not (able := [b for b in self._waiting if self._may_go_beside(b)] if self._busy else []):
                    if self._stopped:
                        return
                    self._spare.wait()
                together = self._taken(able)
            self._answer(together)

    def _may_go_beside(self, batch: _Batch) -> bool:
        """Whether the second thread may answer; what could be joined in the next pass of the first one waits for that."""
        return batch.beside and batch.key != self._key

    def _taken(self, able: Sequence[_Batch]) -> list[_Batch]:
        """Of those, the request that waits longest, and others like it that fit into the same forward pass."""
        together: list[_Batch] = []
        size = 0
        for batch in [batch for batch in able if batch.key == able[0].key]:
            if not together or size + len(batch.items) <= self.limits.batch:
                self._waiting.remove(batch)
                together.append(batch)
                size += len(batch.items)
        return together

    def _answer(self, together: list[_Batch]) -> None:
        now = time.monotonic()
        alive: list[_Batch] = []
        late: list[_Batch] = []
        for batch in together:
            if _wanted(batch.future):
                (late if batch.deadline < now else alive).append(batch)
        _tell([(batch, None, Refused("The request waited too long. Try again later.", "LATE")) for batch in late])
        if not alive:
            return
        self.metrics.add("batches")
        self.metrics.add("batched_requests", len(alive))
        try:
            answers = list(alive[0].call([item for batch in alive for item in batch.items]))
        except Exception as error:  # one text must not spoil the answers to others
            _tell([(alive[0], None, error)] if len(alive) == 1 else [self._alone(batch) for batch in alive])
            return
        outcomes: list[Outcome] = []
        for batch in alive:
            outcomes.append((batch, answers[: len(batch.items)], None))
            answers = answers[len(batch.items) :]
        _tell(outcomes)

    def _alone(self, batch: _Batch) -> Outcome:
        try:
            return batch, list(batch.call(batch.items)), None
        except Exception as error:
            return batch, None, error

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


def _wanted(future: Future[Any] | asyncio.Future[Any]) -> bool:
    """Whether somebody waits; a thread can then no longer cancel it."""
    return future.set_running_or_notify_cancel() if isinstance(future, Future) else not future.cancelled()


def _tell(outcomes: Sequence[Outcome]) -> None:
    """Whoever waits hears of it; a loop once for all of its futures, which only it may settle."""
    loops: defaultdict[asyncio.AbstractEventLoop, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        future = outcome[0].future
        if isinstance(future, Future):
            _settle([outcome])
        else:
            loops[future.get_loop()].append(outcome)
    for loop, own in loops.items():
        with suppress(RuntimeError):  # the server is closing
            loop.call_soon_threadsafe(_settle, own)


def _settle(outcomes: Sequence[Outcome]) -> None:
    for batch, answers, error in outcomes:
        if batch.future.cancelled():  # in the meantime
            continue
        if error is not None:
            batch.future.set_exception(error)
        else:
            assert answers is not None
            batch.future.set_result(answers)
