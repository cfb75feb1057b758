"""What a verification finds: a list of checks, each passed, failed or not made, and what follows from them. No torch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from headstart.errors import UserError, first_line
from headstart.quantities import counted
from headstart.runs.environment import version

Outcome = Literal["passed", "failed", "not checked"]
MOST_FAULTS = 5  # of one check that are spelled out


@dataclass(frozen=True)
class Check:
    name: str
    outcome: Outcome
    detail: str = ""


class Record(TypedDict):
    """A verification as JSON."""

    folder: str
    kind: str
    state: str
    checks: list[dict[str, str]]
    seed: int | None
    badge: str


@dataclass
class Verification:
    """The checks of a study or a run, in the order in which they were made."""

    folder: Path
    kind: str  # study, grid or run
    checks: list[Check] = field(default_factory=list)
    seed: int | None = None  # that chose the cell to run again

    def hold(self, name: str, faults: Iterable[str], passed: str = "") -> bool:
        """Make one check: it passes where `faults`, read here, holds nothing, and fails where a file cannot be used at all."""
        try:
            found = list(faults)
        except UserError as error:
            found = [first_line(error)]
        more = f"; and {len(found) - MOST_FAULTS} more" if len(found) > MOST_FAULTS else ""
        told = "; ".join(found[:MOST_FAULTS]) + more
        self.checks.append(Check(name, "failed", told) if found else Check(name, "passed", passed))
        return not found

    def leave(self, name: str, why: str) -> None:
        self.checks.append(Check(name, "not checked", why))

    def of(self, outcome: Outcome) -> list[Check]:
        return [check for check in self.checks if check.outcome == outcome]

    @property
    def state(self) -> Literal["verified", "partly verified", "does not verify"]:
        if self.of("failed"):
            return "does not verify"
        return "partly verified" if self.of("not checked") else "verified"

    @property
    def sentence(self) -> str:
        return (
            f"{self.state}: {counted(len(self.of('passed')), 'check')} passed, {len(self.of('failed'))} failed, "
            f"{len(self.of('not checked'))} could not be made"
        )

    @property
    def badge(self) -> str:
        """A line for a model card; it names the results by their hash, so that it cannot be moved to others."""
        results = self.folder / ("result.json" if self.kind == "run" else "results.json")
        digest = hashlib.sha256(results.read_bytes()).hexdigest()[:16] if results.exists() else "missing"
        today = time.strftime("%Y-%m-%d")
        again = [check.name.partition(": ")[2] for check in self.of("passed") if check.name.startswith("run again: ")]
        told = f"; run again: {', '.join(again)}" if again else "; nothing was run again"
        return f"> headstart verify {version('headstart')}, {today}: {self.sentence}{told} (SHA-256 of {results.name} {digest}…)"

    def record(self) -> Record:
        return {
            "folder": str(self.folder),
            "kind": self.kind,
            "state": self.state,
            "checks": [vars(check) for check in self.checks],
            "seed": self.seed,
            "badge": self.badge,
        }
