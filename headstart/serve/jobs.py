"""Jobs: the command line in a process group of its own. What is known of them stands in the folder.

    FOLDER/.serve/jobs/<id>/job.json   the command, where it writes, the process
    FOLDER/.serve/jobs/<id>/stdout     its result as JSON
    FOLDER/.serve/jobs/<id>/stderr     its notes; last, an error as JSON

The id of a job is that of the run or study that it makes. A job that runs is found by the lock on that directory, also
one that was started on the command line; a server that was killed has nothing to remember.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from headstart.errors import ModelError, UserError
from headstart.labelling.session import RECORD
from headstart.quantities import data_size
from headstart.regular_file import read_regular
from headstart.runs.disk import make_folder, write_file
from headstart.runs.kinds import KINDS
from headstart.runs.lock import owner_of
from headstart.runs.run import Run
from headstart.serve.command import shown_command
from headstart.serve.problems import Refused, scrubbed
from headstart.serve.registry import ID, Registry
from headstart.serve.settings import OWN, Limits
from headstart.study.progress import StudyProgress, study_progress

State = Literal["starting", "running", "stopped", "failed", "finished"]
TAIL = 64 << 10  # bytes of stderr that are read
GO_ON = ("compare", "lab")  # verbs that go on with what is there without a flag
NICE = 5  # of jobs, so that pages answer meanwhile


class Kept(TypedDict):
    """job.json"""

    words: list[str]  # after `headstart`
    out: str
    pid: int
    born: str | None  # when the process began; another one may get its number
    started: str


class JobError(TypedDict):
    code: str
    message: str


class Job(TypedDict):
    id: str
    name: str
    verb: str
    state: State
    command: str
    started: str | None
    notes: list[str]
    error: JobError | None
    progress: NotRequired[StudyProgress]


class Jobs:
    def __init__(self, registry: Registry, limits: Limits) -> None:
        self.registry, self.limits = registry, limits
        self.folder = registry.folder
        self.kept = self.folder / OWN / "jobs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, words: Sequence[str], out: Path) -> str:
        """Begin a command that writes into `out`; its id."""
        name = self.registry.id_of(out)
        if out.exists() and words[0] not in GO_ON and "--resume" not in words:
            raise UserError(f"{out} already exists. Choose another name.", "RUN_EXISTS")
        if len(self.running()) >= self.limits.jobs:
            raise Refused("Another job is running. Wait for it, or stop it.", "JOB_LIMIT")
        if shutil.disk_usage(self.folder).free < self.limits.free_disk:
            raise Refused(f"Less than {data_size(self.limits.free_disk)} of disk space is free.", "DISK")
        place = self.kept / name
        make_folder(place)
        argv = [sys.executable, "-m", "headstart", *words, "--json"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        with (place / "stdout").open("wb") as output, (place / "stderr").open("wb") as errors:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True, env=environment,
                cwd=self.folder,
            )  # fmt: skip
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        bound(child.pid, self.limits)
        kept: Kept = {"words": list(words), "out": str(out), "pid": child.pid, "born": _born(child.pid), "started": time.strftime("%Y-%m-%dT%H:%M:%S")}  # fmt: skip
        write_file(place / "job.json", json.dumps(kept).encode())
        self._children[name] = child
        return name

    def all(self) -> list[Job]:
        """Every job that the server knows of: started here, or at work in a directory of the folder."""
        mine = [place.parent.name for place in self.kept.glob("*/job.json")]
        others = [e.id for e in self.registry.entries() if e.id not in mine and owner_of(e.path) is not None]
        return sorted((self.get(name) for name in [*mine, *others]), key=lambda job: job["started"] or "", reverse=True)

    def running(self) -> list[str]:
        return [job["id"] for job in self.all() if job["state"] in ("starting", "running")]

    def get(self, wanted: str) -> Job:
        kept = self._kept(wanted)
        out = self.place(wanted)
        verb = str(kept["words"][0]) if kept else "compare" if _is_study(out) else Run(out).verb
        error = self._error(wanted)
        job: Job = {
            "id": wanted,
            "name": self.registry.name_of(out),
            "verb": verb,
            "state": self._state(out, kept, error),
            "command": shown_command(kept["words"] if kept else self._again(out), self.folder),
            "started": kept["started"] if kept else None,
            "notes": self._notes(wanted),
            "error": error,
        }
        if job["state"] in ("starting", "running", "finished"):
            job["error"] = None
        if _is_study(out) or verb == "compare":
            with suppress(UserError):
                job["progress"] = study_progress(out)
        return job

    def place(self, wanted: str) -> Path:
        """The directory that a job writes into."""
        if not re.fullmatch(ID, wanted):
            raise ModelError("There is no job of this id.", "JOB_MISSING")
        if kept := self._kept(wanted):
            return Path(kept["out"])
        try:
            return self.registry.entry(wanted).path
        except ModelError:
            raise ModelError("There is no job of this id.", "JOB_MISSING") from None

    def stop(self, wanted: str) -> None:
        """Ask the process, and those that it started, to save and end."""
        kept, owner = self._kept(wanted), owner_of(self.place(wanted))
        if kept and _alive(kept):
            os.killpg(kept["pid"], signal.SIGTERM)
        elif owner is not None:
            os.kill(owner, signal.SIGTERM)
        else:
            raise Refused("This job is not running.", "NOT_RUNNING")

    def resume(self, wanted: str) -> str:
        """Go on with a job that was stopped or killed."""
        job, out = self.get(wanted), self.place(wanted)
        if job["state"] not in ("stopped", "failed"):
            raise Refused(f"This job is {job['state']}; only a stopped one can go on.", "NOT_STOPPED")
        kept = self._kept(wanted)
        begun = Run(out).there or _is_study(out)
        return self.start(self._again(out) if begun or not kept else kept["words"], out)

    def wait(self, wanted: str, seconds: float) -> None:
        """Until the process of a job started here has ended; for tests and for the end of the server."""
        if child := self._children.get(wanted):
            child.wait(seconds)

    def _again(self, out: Path) -> list[str]:
        if _is_study(out):
            return ["compare", f"--config={out / 'study.toml'}", f"--out={out}", "--yes"]
        run = Run(out)
        verb = KINDS[run.job].verb if run.job in KINDS else run.job
        return [*verb.split(), f"--out={out}", "--resume"]

    def _kept(self, wanted: str) -> Kept | None:
        file = self.kept / wanted / "job.json"
        try:
            found: Kept = json.loads(read_regular(file, 1 << 20))
        except (FileNotFoundError, ValueError):
            return None
        inside = Path(found["out"]).resolve().is_relative_to(self.folder.resolve())
        return found if inside and self.registry.id_of(Path(found["out"])) == wanted else None

    def _state(self, out: Path, kept: Kept | None, error: JobError | None) -> State:
        if child := self._children.get(self.registry.id_of(out)):
            child.poll()  # so that it is no zombie
        owner = owner_of(out)
        if owner is not None:
            return "running"
        if kept and _alive(kept):
            return "starting"
        if _is_study(out):
            progress = study_progress(out)
            if progress["stage"] == "finished" and (out / "results.json").exists():
                return "finished"
        elif Run(out).finished or (out / RECORD).is_file() or _is_lab_done(out):
            return "finished"
        return "failed" if error and error["code"] != "STOPPED" else "stopped"

    def _lines(self, wanted: str) -> list[str]:
        try:
            with (self.kept / wanted / "stderr").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                return file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []

    def _notes(self, wanted: str) -> list[str]:
        told = [line for line in self._lines(wanted) if line.strip() and not line.startswith('{"error"')]
        return [scrubbed(line, self.folder) for line in told[-50:]]

    def _error(self, wanted: str) -> JobError | None:
        for line in reversed(self._lines(wanted)):
            if line.startswith('{"error"'):
                with suppress(ValueError, KeyError, TypeError):
                    found = json.loads(line)["error"]
                    return {"code": str(found["code"]), "message": scrubbed(str(found["message"]), self.folder)}
        return None


def bound(pid: int, limits: Limits) -> None:
    """Limit the processor time and the files of a process and of all that it starts; on Linux, where another process can be limited."""
    seconds = int(3600 * limits.job_hours * (os.cpu_count() or 1))
    if sys.platform == "linux":
        for which, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, limits.job_file), (resource.RLIMIT_CORE, 0)):  # fmt: skip
            with suppress(OSError, ValueError):  # it has ended, or its limits are lower already
                resource.prlimit(pid, which, (most, most))


def _is_study(out: Path) -> bool:
    return (out / "study.toml").exists()


def _born(pid: int) -> str | None:
    """When a process began, by the system's clock; None: it is gone, or has ended and nobody has asked how."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _alive(kept: Kept) -> bool:
    return kept["born"] is not None and _born(kept["pid"]) == kept["born"]


def _is_lab_done(out: Path) -> bool:
    return (out / "lab.json").is_file() and (out / "report.html").is_file()
