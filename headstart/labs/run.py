"""The steps of a lab, run one after the other as commands of their own. No torch here.

    <out>/
      lab.json               which lab, and how it is run
      steps/<name>/
        log.txt              stderr of the command
        result.json          its answer
        step.json            its words, exit code and seconds; exit code 0 = done
      results.json  report.html   made of these (results.py, page.py)

A step that is done is not run again, so an interrupted lab goes on where it stopped. A step ends with the lab that started
it, and Python files that lie beside a lab are not among the modules that it finds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headstart.errors import ConfigError, ModelError, StepFailed, UserError
from headstart.hub.cache import cache_folder
from headstart.labs.folder import RUN_AGAIN, read_facts, read_step
from headstart.labs.lab import Lab, lab_path
from headstart.labs.rules import Folders, check_command
from headstart.runs.disk import attempt, make_folder, write_file
from headstart.runs.environment import environment
from headstart.runs.lock import lock_folder
from headstart.runs.parent import PARENT
from headstart.runs.run import Run, holds_something
from headstart.runs.watch import Watch
from headstart.strict_json import to_json

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_steps(name: str, lab: Lab, out: Path, data: Path | None, quick: bool, watch: Watch) -> None:
    """Every step that is not done; the first that fails ends the lab with its own sentence and exit code."""
    if not lab.steps(quick, data is not None):
        raise ConfigError(
            f"The lab {name} has no steps to run. It has tasks: headstart lab start {name}.", "LAB_NO_STEPS"
        )
    lab.check_data(data, quick)
    commands = lab.commands(str(out), str(data or ""), quick)
    folders = Folders(lab_path(name).absolute().parent, out, data)
    for called, words in commands.items():
        folders.check(called, check_command(words))
    make_folder(out)
    with lock_folder(out):
        _refuse_another(out, name, data, quick)
        done = {step: record for step in commands if (record := read_step(out, step))}
        changed = [step for step, record in done.items() if not record["exit"] and record["words"] != commands[step]]
        if changed:
            raise ConfigError(
                f"{out} was begun with other commands ({', '.join(changed)}). Choose another --out, or remove it."
            )
        if not (out / "lab.json").exists():
            facts = {"lab": name, "quick": quick, "data_dir": str(data or ""), "environment": environment()}
            write_file(out / "lab.json", to_json(facts, indent=1).encode())
        steps = lab.steps(quick, data is not None)
        left = [step for step in steps if step.name not in done or done[step.name]["exit"]]
        first = len(steps) - len(left)
        if first and left:
            watch.note(f"{first} of {len(steps)} steps were done before.")
        with watch.bar(f"lab {name}", len(steps), first):
            for n, step in enumerate(left, start=first):
                watch.note(f"step {n + 1} of {len(steps)}, {step.name}: {step.shows}")
                watch.reach(n, step.name)
                before = done[step.name]["seconds"] if step.name in done else 0.0
                _execute(folders, step.name, commands[step.name], before)


def _refuse_another(out: Path, name: str, data: Path | None, quick: bool) -> None:
    """What is not of this lab stays as it is."""
    file = out / "lab.json"
    if not file.exists():
        found = "already exists and is not a lab" if holds_something(out) else ""
    else:
        before = read_facts(out)
        found, with_data = "", bool(before["data_dir"])
        if with_data != (data is not None) and not quick:
            found = f"holds a lab that was begun {'with' if with_data else 'without'} --data"
        if before["quick"] != quick:
            found = f"holds a lab that was begun {'without' if quick else 'with'} --quick"
        if Path(before["lab"]).stem != Path(name).stem:
            found = f"holds the lab {before['lab']}"
    if found:
        raise UserError(f"{out} {found}. Choose another --out.", "RUN_EXISTS")


def _execute(folders: Folders, step: str, words: list[str], seconds_before: float) -> None:
    folders.check(step, check_command(words))  # once more: the steps before it have made files
    folder = folders.out / "steps" / step
    make_folder(folder)
    log = folder / "log.txt"
    if log.exists() and not log.is_file():
        raise ModelError(f"{log} is damaged (not a regular file). {RUN_AGAIN.format(folder=folder)}.", "LAB_DAMAGED")
    before = log.stat().st_size if log.exists() else 0  # of an earlier try
    began = time.monotonic()
    exit_code, answer = _run([*words, *_going_on(words), "--json"], log, folders.home)
    if exit_code == 0:
        write_file(folder / "result.json", answer)
    record = {"words": words, "exit": exit_code, "seconds": round(seconds_before + time.monotonic() - began, 1)}
    write_file(folder / "step.json", to_json(record).encode())
    if exit_code:
        code, message = _last_error(log.read_bytes()[before:].decode(errors="replace"))
        if code == "STOPPED":
            raise StepFailed(f"Stopped in the step '{step}'. The same command goes on there.", code, exit_code)
        raise StepFailed(f"Step '{step}' failed: {message} Its log: {log}.", code, exit_code)


def _run(words: list[str], log: Path, home: Path) -> tuple[int, bytes]:
    """Exit code and stdout of a headstart command; its stderr is added to `log`."""
    argv = [sys.executable, "-m", "headstart", *words]
    none, pipe = subprocess.DEVNULL, subprocess.PIPE
    with attempt(log, lambda: log.open("ab")) as stderr:
        # In a session of its own: Ctrl-C reaches it through us, once, and not also from the terminal.
        process = subprocess.Popen(
            argv, stdin=none, stdout=pipe, stderr=stderr, start_new_session=True, cwd=home, env=_environment()
        )
        try:
            with _passing_signals_on(process):
                answer, _ = process.communicate()
        finally:
            process.kill()  # which does nothing to one that has ended
    return process.returncode if process.returncode >= 0 else 128 - process.returncode, answer


def _environment() -> dict[str, str]:
    """That of a step: nothing in it is relative to a folder of a stranger's, where modules would be found."""
    modules = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(modules),
        "HEADSTART_CACHE": str(cache_folder().absolute()),
        PARENT: str(os.getpid()),
    }


def _going_on(words: list[str]) -> list[str]:
    """--resume for a command whose --out holds a run that it began before."""
    out = words[words.index("--out") + 1] if "--out" in words[:-1] else None
    return ["--resume"] if out and Run(Path(out)).there else []


@contextmanager
def _passing_signals_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """While this lasts, whoever wants to stop us stops the command, which saves its state first."""
    before = {number: signal.signal(number, lambda n, _: process.send_signal(n)) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_error(output: str) -> tuple[str, str]:
    """Code and sentence of the error that a command ended with."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"error": ') and line.endswith("}}"):  # a kill can cut it short
            error = json.loads(line)["error"]
            return error["code"], error["message"]
    return "STEP", "it was killed."
