"""The verb that checks a study or a run: verify."""

from __future__ import annotations

from headstart.cli.app import app, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_table
from headstart.errors import UserError, VerificationError


@verb(app, "verify")
def verify(given: Given) -> None:
    """Check that a STUDY or RUN is what its files claim. Recomputes its statistics, and runs one cell again."""
    from headstart.study.verify import verify as verified

    if given["--cell"] and given["--no-rerun"]:
        raise UserError("--cell names what to run again, and --no-rerun runs nothing: give one of them.")
    found = verified(
        given["STUDY|RUN"], given["--cell"] or (), not given["--no-rerun"], given["--seed"], Bar(given["--quiet"])
    )
    if given["--json"]:
        show_json(found.record())
    else:
        show_table(["check", "outcome", ""], [[c.name, c.outcome, c.detail] for c in found.checks])
        show(f"\n{found.folder} {found.sentence}.")
        show(f"For the model card:\n{found.badge}")
    if failed := found.of("failed"):
        raise VerificationError(f"{found.folder} does not verify: {', '.join(check.name for check in failed)}.")
