"""What the routes share: the folder, its runs, files and jobs, and the thread that works with models."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request

from headstart.serve.files import Files
from headstart.serve.jobs import Jobs
from headstart.serve.labellings import Labellings
from headstart.serve.metrics import Metrics
from headstart.serve.models import Models
from headstart.serve.problems import LATE, Refused
from headstart.serve.registry import Model, Registry
from headstart.serve.settings import Settings
from headstart.serve.worker import Worker

T = TypeVar("T")
GONE = 0.2  # seconds between two looks whether the client is still there


@dataclass(frozen=True)
class Studio:
    settings: Settings
    metrics: Metrics
    registry: Registry
    files: Files
    jobs: Jobs
    models: Models
    worker: Worker
    labellings: Labellings
    tables: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))  # labelled at a time

    @classmethod
    def open(cls, settings: Settings) -> Studio:
        metrics, registry = Metrics(), Registry(settings.folder)
        files, jobs = Files(settings.folder, settings.limits.files), Jobs(registry, settings.limits)
        models, worker = Models(settings.memory), Worker(settings.limits, metrics)
        return cls(settings, metrics, registry, files, jobs, models, worker, Labellings(registry))

    async def model(self, wanted: str | None, *jobs: str) -> Model:
        """The model that a request names, or the newest of a kind that it can mean."""
        if wanted is None:
            return await asyncio.to_thread(self.registry.newest, *jobs)
        if known := self.registry.known(wanted):
            return known
        return await asyncio.to_thread(self.registry.model, wanted)

    async def answers(
        self,
        request: Request,
        model: Model,
        what: str,
        call: Callable[[list[Any]], Any],
        items: list[Any],
        seconds: float | None = None,
        beside: bool = False,
    ) -> list[Any]:
        """What `call` gives for each item, together with other requests for `what` of the same model; where it only reads
        the model, `beside` other work."""
        seconds = self.settings.limits.seconds if seconds is None else seconds
        future = self.worker.ask((what, model.id, model.made), call, items, seconds, beside)
        return await self.waited(request, future, seconds)

    async def waited(self, request: Request, waiting: asyncio.Future[T], seconds: float) -> T:
        """The result of what a request waits for, unless its client goes or the time is up."""
        deadline = time.monotonic() + seconds
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=GONE)
            if done:
                return waiting.result()
            if await request.is_disconnected():
                waiting.cancel()
                raise Refused("The client has gone.", "GONE")
            if time.monotonic() > deadline:
                waiting.cancel()
                raise Refused(LATE, "LATE")

    async def steps(self, request: Request, start: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
        """What a generation makes, step by step; it ends with the client."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[Any, BaseException | None, bool]] = asyncio.Queue()

        def tell(step: Any, error: BaseException | None, over: bool) -> None:
            with suppress(RuntimeError):  # the server is closing
                loop.call_soon_threadsafe(queue.put_nowait, (step, error, over))

        generation = self.worker.generate(start, tell)
        try:
            while True:
                try:
                    step, error, over = await asyncio.wait_for(queue.get(), GONE)
                except TimeoutError:
                    if await request.is_disconnected():
                        return
                    continue
                if error:
                    raise error
                if over:
                    return
                yield step
                if queue.empty() and await request.is_disconnected():
                    return
        finally:
            generation.cancelled.set()

    def must_write(self) -> None:
        if self.settings.read_only:
            raise Refused("This server was started with --read-only.", "READ_ONLY")


def studio_of(request: Request) -> Studio:
    found: Studio = request.app.state.studio
    return found
