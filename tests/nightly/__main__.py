"""What takes longer than .ci/run may: python -m tests.nightly [NAME ...] [--again] [--list].

Each check of checks.py is a process: its output is runs/nightly/NAME.log, its outcome NAME.json. One that has passed at this
commit is not run again, so that a night that was cut off goes on; `--again` repeats it. docs/nightly.md is written from these
files after each check. The exit code is 1 if any check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import headstart
from headstart.quantities import duration
from headstart.runs.environment import processor
from tests.nightly.checks import CHECKS, Check

ROOT = Path(__file__).parents[2]
FOLDER, PAGE = ROOT / "runs" / "nightly", ROOT / "docs" / "nightly.md"
BEFORE = "Checks that take too long to be made before each change. `make nightly` makes them, and writes this page."
PATIENCE = 5  # times the rough minutes of a check
Outcome = dict[str, Any]


def main(words: Sequence[str] | None = None, checks: Sequence[Check] = CHECKS, folder: Path = FOLDER, page: Path = PAGE) -> int:  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__.split("\n\n")[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these checks")
    parser.add_argument("--again", action="store_true", help="those that have passed at this commit too")
    parser.add_argument("--list", action="store_true", help="list the checks, write the page and run none")
    args = parser.parse_args(words)
    if strange := sorted(set(args.names) - {check.name for check in checks}):
        parser.error(
            f"no check is called {', '.join(strange)}. There are: {', '.join(check.name for check in checks)}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    version = commit()
    chosen = [check for check in checks if check.name in args.names or not args.names]
    write_page(page, checks, folder, version)
    for check in chosen:
        if args.list:
            _tell(f"{check.name:20} about {check.minutes} min: {shown(check, check.settings)}")
        elif not args.again and _passed_already(found(check, folder), check, version):
            _tell(f"{check.name}: has passed at this commit already.")
        else:
            _tell(f"{check.name}: about {check.minutes} min; {folder / check.name}.log")
            outcome = run(check, folder, version)
            write_page(page, checks, folder, version)
            _tell(f"{check.name}: {outcome['outcome']} after {duration(outcome['seconds'])}. {outcome['closing']}")
    failed = [check.name for check in chosen if (found(check, folder) or {}).get("outcome") == "failed"]
    if failed and not args.list:
        _tell(f"Failed: {', '.join(failed)}. See {page} and the logs in {folder}.")
    return int(bool(failed) and not args.list)


def run(check: Check, folder: Path, version: str) -> Outcome:
    """One check in a process of its own, with everything that it starts; nothing is kept of one that is interrupted."""
    log, record = folder / f"{check.name}.log", folder / f"{check.name}.json"
    command = [word.replace("{out}", str(folder / "made" / version / check.name)) for word in check.command]
    if record.exists():  # without one, the check was cut off, and may go on with what it has made
        shutil.rmtree(folder / "made" / version / check.name, ignore_errors=True)
        record.unlink()
    began, limit, why = time.time(), check.minutes * 60 * PATIENCE, ""
    environment = {**os.environ, **check.settings, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        try:
            child = subprocess.Popen(
                command, cwd=ROOT, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            code, why = 127, f"cannot be started: {error}"
        else:
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code, why = -signal.SIGKILL, f"ended after {duration(limit)}"
            finally:  # also what it has left behind, and when the night itself is interrupted
                _end(child)
    outcome = {
        "name": check.name,
        "outcome": "failed" if code else "passed",
        "exit_code": code,
        "seconds": round(time.time() - began, 1),
        "closing": why or closing_line(log),
        "settings": check.settings,
        "version": headstart.__version__,
        "commit": version,
        "processor": processor(),
        "cores": os.cpu_count(),
        "began": datetime.fromtimestamp(began).astimezone().isoformat(),
    }
    draft = record.with_suffix(".draft")
    draft.write_text(json.dumps(outcome, indent=1) + "\n", "utf-8")
    os.replace(draft, record)
    return outcome


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def closing_line(log: Path) -> str:
    """The last line that says something, without the rules that pytest draws around it."""
    lines = [line.strip(" =") for line in log.read_text("utf-8", "replace").splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "it said nothing")


def found(check: Check, folder: Path) -> Outcome | None:
    """What is known of a check, if it was run."""
    try:
        return json.loads((folder / f"{check.name}.json").read_text("utf-8"))
    except FileNotFoundError:
        return None


def _passed_already(outcome: Outcome | None, check: Check, version: str) -> bool:
    wanted = {"outcome": "passed", "commit": version, "settings": check.settings}
    return outcome is not None and "+" not in version and {key: outcome[key] for key in wanted} == wanted


def commit() -> str:
    """The commit of the work tree; with a plus where files were changed, the page of results aside."""
    git = ["git", "-C", str(ROOT)]
    status = [*git, "status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}"]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, check=True).stdout
        return head.decode().strip() + "+" * bool(subprocess.run(status, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"git does not say which commit this is ({error}): the nightly checks are run in a clone.")


def shown(check: Check, settings: dict[str, str]) -> str:
    """What a check shows, with how many."""
    number = settings.get(check.variable, "")
    return check.shows.replace("{N}", f"{int(number):,}" if number.isdigit() else number)


def write_page(page: Path, checks: Sequence[Check], folder: Path, version: str) -> None:
    outcomes = {check.name: found(check, folder) for check in checks}
    done = [outcome for outcome in outcomes.values() if outcome]
    failed = sum(outcome["outcome"] == "failed" for outcome in done)
    newest = max(done, key=lambda outcome: outcome["began"], default=None)
    counts = (
        f"{len(done) - failed} of {len(checks)} checks passed, {failed} failed, {len(checks) - len(done)} were not run."
    )
    lines = ["# Nightly checks", "", f"{BEFORE}\n{counts}", ""]
    if newest:
        lines += [f"{newest['began'][:10]}, Headstart {newest['version']} at {_named(newest['commit'])}, {newest['cores']} cores of {newest['processor']}.", ""]  # fmt: skip
    lines += ["| check | what it shows | outcome | last line | time |", "|---|---|---|---|---|"]
    for check in checks:
        outcome = outcomes[check.name]
        cells = [check.name, shown(check, outcome["settings"] if outcome else check.settings)]
        if outcome is None:
            cells += ["not run yet", "", f"about {check.minutes} min"]
        else:
            assert newest
            same = outcome["commit"] == newest["commit"]
            elsewhere = "" if same else f" ({_named(outcome['commit'])}, {outcome['began'][:10]})"
            word = f"**failed**, exit code {outcome['exit_code']}" if outcome["outcome"] == "failed" else "passed"
            cells += [word + elsewhere, f"`{outcome['closing'].replace('|', '/').replace('`', chr(39))}`", duration(outcome["seconds"])]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, "utf-8")


def _named(version: str) -> str:
    return version.replace("+", " with changes that are not committed")


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def watch_signals() -> None:
    """End as after Ctrl-C: a check has a session of its own, and must not outlive the night."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


if __name__ == "__main__":
    watch_signals()
    sys.exit(main())
