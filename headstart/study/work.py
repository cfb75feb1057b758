"""Workers on one study: any number of them, on any machines that share its folder, each taking a cell at a time. No torch.

`compare --prepare` has planned the study; every worker plans the same from its folder, and leases.py says who runs what. Whoever
comes to the end first gathers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headstart.errors import BusyError, ModelError, Stopped
from headstart.runs.lock import owner_of
from headstart.runs.watch import Watch
from headstart.study.classify import work_on_study
from headstart.study.grid import work_on_grid
from headstart.study.leases import BEAT, Lease, Leases
from headstart.study.run import Cells, Outcome, Planned, WithinCell, run_cell
from headstart.study.study import Study, grid_in

GATHERING = "gather"  # no cell is called so: their names have a tilde or a dash


class LeasedCells(Cells):
    """Runs those cells that no other worker has, and waits for the others."""

    def __init__(self, out: Path, planned: Sequence[Planned], watch: Watch, leases: Leases) -> None:
        super().__init__(out, planned, 1, watch)
        self.leases = leases

    def _outcomes(self, missing: Sequence[Planned]) -> Iterator[Outcome]:
        left = list(missing)
        while left:
            outcome = next(filter(None, map(self._ended, left)), None) or self._one_of(left)
            if outcome is None:
                time.sleep(min(1.0, self.leases.beat / 2))
                continue
            left = [cell for cell in left if cell.name != outcome.cell]
            yield outcome

    def _ended(self, cell: Planned) -> Outcome | None:
        """How a cell ended, here or elsewhere."""
        if not self._missing([cell]):
            return Outcome(cell.name)
        told = self.leases.outcome(cell.name)
        return Outcome(cell.name, told["exit"], told["message"]) if told and told.get("exit") else None

    def _one_of(self, cells: Sequence[Planned]) -> Outcome | None:
        """Run the first cell that is free; None: others are at work on all of them."""
        for cell in cells:
            lease = self.leases.take(cell.name)
            if lease and (outcome := self._run(cell, lease)):
                return outcome
        return None

    def _run(self, cell: Planned, lease: Lease) -> Outcome | None:
        """How a cell ended that this worker has; None where it turned out that another one still has it."""
        try:
            with lease.held(_stop):
                outcome = self._ended(cell) or run_cell(cell, self.out, watch=WithinCell(self, cell.name))
        except Stopped:
            if lease.lost:
                return None
            raise
        if outcome.exit == BusyError.exit_code:
            lease.leave({"done": False})
            return None
        lease.leave({"done": True} if not outcome.exit else {"exit": outcome.exit, "message": outcome.message})
        return outcome


def _stop() -> None:
    """Training that another worker has taken over saves its state and ends; what is no training may come to its end."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGTERM)


def work(out: Path, watch: Watch, beat: float = BEAT) -> None:
    """Run cells of the study in `out` until none is left; then gather, unless another worker has."""
    grid = grid_in(out)
    if grid is None and not (out / "study.toml").exists():
        raise ModelError(
            f"{out} holds no study. Prepare one: headstart compare ... --prepare --out {out}.", "RUN_MISSING"
        )
    if (owner := owner_of(out)) is not None:
        raise BusyError(
            f"{out} is in use by process {owner}: a study is run by one command, or by workers. Wait for it."
        )
    leases = Leases(out / "leases", beat)

    def engine(planned: Sequence[Planned]) -> LeasedCells:
        return LeasedCells(out, planned, watch, leases)

    finish = work_on_grid(grid, out, engine) if grid else work_on_study(out, engine, watch)
    while not (leases.outcome(GATHERING) or {}).get("done"):
        if lease := leases.take(GATHERING):
            with lease.held():
                finish()
                if not grid:
                    Study.open(out).write()
            lease.leave({"done": True})
            return
        time.sleep(min(1.0, beat / 2))
