"""The engine of every study: planned cells in, whatever is missing run. Torch is loaded by the jobs alone.

A cell is a run directory below `cells/`; result.json in it means that it is finished. Cells run one after the other or
in several processes; a cell that fails is remembered with its exit code, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headstart.config import JobConfig
from headstart.errors import Stopped, UserError
from headstart.runs.disk import make_folder
from headstart.runs.lock import lock_folder
from headstart.runs.manifest import unverified, verifying
from headstart.runs.parent import end_with_parent
from headstart.runs.run import Run
from headstart.runs.threads import torch_threads
from headstart.runs.watch import Watch

Work = JobConfig | Callable[[Path], object]  # a job, or a baseline that writes its result.json into a folder
KILLED = 137  # exit code of a process that the system has killed


@dataclass(frozen=True)
class Planned:
    """A cell that a study needs. All of it can be sent to another process."""

    name: str
    work: Work
    keep_weights: bool = True
    weight: float = 1.0  # its duration relative to that of other cells


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: str
    exit: int = 0
    message: str = ""


@contextmanager
def study_folder(out: Path) -> Iterator[None]:
    """The folder of a study, locked: one process writes into it, and what stops that process names the way to go on."""
    make_folder(out)
    with lock_folder(out):
        try:
            yield
        except Stopped as stop:  # --resume is for single runs
            raise stop.but(f"everything is saved in {out}. The same command or call goes on there.") from None


class Cells:
    """Runs cells, `jobs` at once, remembers which failed, and shows the progress of all of them."""

    def __init__(
        self,
        out: Path,
        planned: Sequence[Planned],
        jobs: int,
        watch: Watch,
        expected: Mapping[str, float] | None = None,
    ) -> None:
        """`planned` are all cells of the study; `expected` the seconds of each, where they have been estimated."""
        self.out, self.jobs, self.watch, self.expected = out, jobs, watch, expected
        self.failures: list[Outcome] = []
        self.weights = {cell.name: cell.weight for cell in self._missing(planned)}
        if expected:  # a cell that is not in it counts as the mean
            usual = sum(expected.values()) / max(1, len(expected))
            self.weights = {name: expected.get(name, usual) for name in self.weights}
        self.total, self.done, self.began, self.spent = len(self.weights), 0, time.monotonic(), 0.0

    def __enter__(self) -> Self:
        self.workers = Workers(self.out, self.jobs)
        self.watch.start("runs", self.total)
        self.report()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.stop()
        self.workers.close()

    def run(self, wanted: Sequence[Planned]) -> None:
        """Run those of `wanted` that are not finished."""
        for outcome in self._outcomes(self._missing(wanted)):
            self.done, self.spent = self.done + 1, self.spent + self.weights.get(outcome.cell, 0.0)
            if outcome.exit:
                self.failures.append(outcome)
                self.watch.note(f"{outcome.cell} failed (exit code {outcome.exit}): {outcome.message}")
            self.report(outcome.cell)

    def report(self, state: str = "") -> None:
        """The number of finished cells, and the time left: extrapolated from them, at first as expected."""
        left = sum(self.weights.values()) - self.spent
        first = left / self.jobs if self.expected else None
        seconds = (time.monotonic() - self.began) * left / self.spent if self.spent else first
        self.watch.reach(self.done, state, seconds if left > 0 else None)

    def _missing(self, wanted: Sequence[Planned]) -> list[Planned]:
        return [cell for cell in wanted if not (self.out / "cells" / cell.name / "result.json").exists()]

    def _outcomes(self, missing: Sequence[Planned]) -> Iterator[Outcome]:
        if self.jobs > 1:
            yield from self.workers.run(missing)
            return
        for cell in missing:
            yield run_cell(cell, self.out, watch=WithinCell(self, cell.name))


Engine = Callable[[Sequence[Planned]], Cells]  # what runs all cells of a study


class WithinCell(Watch):
    """The steps of a cell as the state of the bar over all cells."""

    def __init__(self, cells: Cells, name: str) -> None:
        self.cells, self.name, self.steps = cells, name, 0

    def start(self, title: str, total: int, done: int = 0) -> None:
        self.steps = total

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        self.cells.report(f"{self.name}, step {done} of {self.steps}, loss {loss:.3f}")


class Workers:
    """Processes that run cells, each kept for the next; one that is killed takes no other with it."""

    def __init__(self, out: Path, jobs: int) -> None:
        self.out, self.jobs, self.context = out, jobs, multiprocessing.get_context("spawn")
        self.pools, self.idle = ExitStack(), list[ProcessPoolExecutor]()  # of one worker each
        self.threads = max(1, (os.cpu_count() or 1) // jobs)

    def close(self) -> None:
        self.pools.close()

    def run(self, cells: Sequence[Planned]) -> Iterator[Outcome]:
        """How cells end that run several at once; one whose process is killed gets a second try, the others go on."""
        rest, verify = list(cells), verifying()
        waiting: dict[Future[Outcome], tuple[Planned, ProcessPoolExecutor, bool]] = {}

        def start(cell: Planned, again: bool = False) -> None:
            pool = self.idle.pop() if self.idle else self._worker()
            try:
                waiting[pool.submit(run_cell, cell, self.out, self.threads, verify)] = cell, pool, again
            except BrokenProcessPool:  # killed between two cells
                start(cell, again)

        for _ in range(min(self.jobs, len(rest))):
            start(rest.pop(0))
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                cell, pool, again = waiting.pop(future)
                broken = isinstance(future.exception(), BrokenProcessPool)
                if not broken:
                    self.idle.append(pool)
                elif not again:  # what it had saved is not done twice
                    start(cell, again=True)
                    continue
                yield Outcome(cell.name, KILLED, "its process was killed, twice") if broken else future.result()
                if rest:
                    start(rest.pop(0))

    def _worker(self) -> ProcessPoolExecutor:
        return self.pools.enter_context(ProcessPoolExecutor(1, self.context, end_with_parent))


def run_cell(cell: Planned, out: Path, threads: int = 0, verify: bool = True, watch: Watch | None = None) -> Outcome:
    """Run one cell; its own failure is its outcome, a stop from outside is passed on.

    `threads` are for a job that does not set its own. `verify`: another process does not know what this one was told.
    """
    path = out / "cells" / cell.name
    try:
        with nullcontext() if verify else unverified():
            _run(cell, path, threads, watch)
    except Stopped:
        raise
    except UserError as error:
        if error.code.startswith("DISK"):  # the cells after it would fail likewise
            raise type(error)(f"{error} The same command goes on in {out}.", error.code) from None
        return Outcome(cell.name, error.exit_code, str(error))
    except MemoryError:
        return Outcome(cell.name, 6, "out of memory")
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="headstart-crash-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
        return Outcome(cell.name, 1, f"{type(error).__name__}: {error}. Details: {file.name}")
    return Outcome(cell.name)


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """So many threads for what is no job, of torch and of BLAS; torch may be loaded only meanwhile, or never."""
    from threadpoolctl import threadpool_limits

    before, usual = torch_threads(), os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if before:
        sys.modules["torch"].set_num_threads(threads)
    try:
        with threadpool_limits(threads, "blas"):
            yield
    finally:
        os.environ.pop("OMP_NUM_THREADS") if usual is None else os.environ.update(OMP_NUM_THREADS=usual)
        if torch_threads():
            sys.modules["torch"].set_num_threads(before or os.cpu_count() or 1)


def _run(cell: Planned, path: Path, threads: int, watch: Watch | None) -> None:
    if not isinstance(cell.work, JobConfig):
        with at_most(threads) if threads else nullcontext():
            cell.work(path)
        return
    from headstart.jobs.job import run_job

    cfg = cell.work
    if threads and not cfg.train.threads:
        cfg = cfg.model_copy(update={"train": cfg.train.model_copy(update={"threads": threads})})
    run_job(cfg, path, resume=Run(path).there, watch=watch, curves=False)
    if not cell.keep_weights:
        shutil.rmtree(path / "model")
