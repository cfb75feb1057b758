"""The run directory: its only reader and writer, apart from the weights (checkpoint.py, model_dir.py). No torch.

    runs/<name>/
      config.toml        resolved: every default written out
      env.json           versions, command, device, threads, seed, format of this directory
      data.json          file hashes, split sizes, overlaps, label counts, truncation
      receipt.json       fine-tuning: which tensors were copied, and what moved
      log.jsonl          one measurement a line; everything that depends on the clock is under `wall`
      tensorboard/       the same as TensorBoard events
      checkpoints/step-NNNNNNN/   safetensors and JSON, MANIFEST.json last
      model/             Hugging Face layout
      predictions.jsonl  the test rows, once
      result.json        written last, atomically: present = finished

A file is written under a temporary name, forced to disk, and renamed: a reader sees all of it or none.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, TypeVar

from headstart.config import FinetuneConfig, PretrainConfig, TrainConfig, load_run_config, to_toml
from headstart.errors import BusyError, DataError, ModelError, ResourceError, UserError, did_you_mean

C = TypeVar("C", PretrainConfig, FinetuneConfig)
FORMAT = 1  # of the directory; a newer one than ours is refused by name


class Run:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None
        self._log: TextIO | None = None
        self._fresh = self._made_folder = False  # whether this process began the run, and made its folder

    @classmethod
    def start(cls, path: str | Path, resume: bool) -> Run:
        """A locked run directory to write into: a new one, or with `resume` the one that is there."""
        run = cls(Path(path))
        if resume:
            run._must_be_here()
        elif os.path.exists(run.path) and (not run.path.is_dir() or any(run.path.iterdir())):
            if (run.path / ".lock").exists():
                run._take_lock()  # says so if another process has it
                run.close()
            raise UserError(f"{path} already exists. Choose another --out, or go on with --resume.", "RUN_EXISTS")
        run._fresh, run._made_folder = not resume, not os.path.exists(run.path)
        with disk_errors(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        run._take_lock()
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A finished run, to read from."""
        run = cls(Path(path))
        if not os.path.isdir(run.path):
            beside = [p.name for p in run.path.parent.iterdir()] if os.path.isdir(run.path.parent) else []
            raise ModelError(f"{path}: no such run.{did_you_mean(run.path.name, beside)}", "RUN_MISSING")
        if not (run.path / "env.json").exists():
            raise ModelError(f"{path}: this folder is not a run (it has no env.json).", "RUN_MISSING")
        run._check_format()
        if not run.finished:
            raise ModelError(f"{path}: this run is not finished. Go on with --resume.", "RUN_UNFINISHED")
        return run

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def begun(self) -> bool:
        """Whether training has logged anything, so that starting over would lose work."""
        return (self.path / "log.jsonl").exists()

    @property
    def config(self) -> PretrainConfig | FinetuneConfig:
        path = self.path / "config.toml"
        if not path.exists():
            raise ModelError(f"{self.path}: config.toml is missing.", "RUN_DAMAGED")
        return load_run_config(path)

    def resumable(self, kind: type[C]) -> C | None:
        """The settings of an unfinished run to go on with; None when it was killed before it had any."""
        self._must_be_here()
        if not (self.path / "config.toml").exists():
            return None
        config = self.config
        if not isinstance(config, kind):
            raise UserError(
                f"{self.path} is a run of another kind ({config.job}). Resume it with headstart {config.job}."
            )
        return config

    def write_config(self, config: PretrainConfig | FinetuneConfig) -> None:
        self.write_text("config.toml", to_toml(config))

    def write_env(self, cfg: TrainConfig) -> None:
        if (self.path / "env.json").exists():
            return
        names = ("headstart", "torch", "tokenizers", "numpy", "safetensors")
        self.write_json(
            "env.json",
            {
                "format": FORMAT,
                "versions": {"python": platform.python_version(), **{name: _version(name) for name in names}},
                "platform": platform.platform(),
                "git_commit": _git_commit(),
                "command": sys.argv,
                "folder": os.getcwd(),
                "device": cfg.device,
                "threads": cfg.threads,
                "seed": cfg.seed,
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            },
        )

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        write_file(self.path / name, text.encode())

    def write_lines(self, name: str, values: list[dict[str, Any]]) -> None:
        lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        self.write_text(name, "".join(lines))

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text("utf-8"))
        except FileNotFoundError:
            raise ModelError(f"{self.path}: {name} is missing.", "RUN_DAMAGED") from None
        except ValueError as error:
            raise ModelError(f"{self.path / name} is damaged ({error}).", "RUN_DAMAGED") from None

    def read_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The records of a .jsonl file; a last line cut short by a kill is left out."""
        with (self.path / name).open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def keep_data_facts(self, facts: dict[str, Any]) -> None:
        """Write data.json, or, when it is there already, insist that the files have not changed since."""
        if (self.path / "data.json").exists():
            before = {f["file"]: f["sha256"] for f in self.read_json("data.json")["files"]}
            changed = [f["file"] for f in facts["files"] if before.get(f["file"]) != f["sha256"]]
            if changed:
                raise DataError(
                    f"{', '.join(changed)}: changed since this run began. Start a new run with another --out.",
                    "DATA_CHANGED",
                )
        self.write_json("data.json", facts)

    def log(self, record: dict[str, Any]) -> None:
        if self._log is None:
            self._log = (self.path / "log.jsonl").open("a", encoding="utf-8")
        with disk_errors(self.path / "log.jsonl"):
            self._log.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._log.flush()

    def log_length(self) -> int:
        """Bytes in the log, all of them safely on disk."""
        if self._log is None:
            return (self.path / "log.jsonl").stat().st_size if self.begun else 0
        os.fsync(self._log.fileno())
        return self._log.tell()

    def cut_log(self, length: int) -> None:
        """Forget what was logged after a checkpoint: it will be logged again, in the same words."""
        if self.begun:
            os.truncate(self.path / "log.jsonl", length)

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        self.write_json("result.json", result)
        return result

    def close(self) -> None:
        for file in (self._log, self._lock):
            if file is not None:
                file.close()
        self._log = self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if value is not None and self._fresh and not self.begun:  # nothing was learned: leave nothing in the way
            for path in [self.path] if self._made_folder else list(self.path.iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _must_be_here(self) -> None:
        if not os.path.exists(self.path / "env.json"):
            raise UserError(f"{self.path}: there is no run here to resume. Leave out --resume to begin one.")
        self._check_format()

    def _take_lock(self) -> None:
        # The kernel holds the lock and drops it when the process ends, however it ends.
        file = (self.path / ".lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise BusyError(f"{self.path} is in use by {owner}. Wait for it, or choose another --out.") from None
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}")
        file.flush()
        self._lock = file

    def _check_format(self) -> None:
        made = self.read_json("env.json")
        try:
            newer = int(made["format"]) > FORMAT
            version = made.get("versions", {}).get("headstart", "a later version")
        except (KeyError, TypeError, ValueError):
            raise ModelError(f"{self.path / 'env.json'} is damaged.", "RUN_DAMAGED") from None
        if newer:
            raise ModelError(
                f"{self.path} was made by headstart {version}, which this one ({_version('headstart')}) cannot read. "
                "Update headstart.",
                "RUN_NEWER",
            )


class disk_errors:
    """Turn a full disk or a forbidden folder into one sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(value, OSError) and value.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ResourceError(f"Disk full writing {self.path}. Free some space and go on with --resume.", "DISK_FULL")
        if isinstance(value, OSError) and value.errno in (
            errno.EACCES,
            errno.EROFS,
            errno.EPERM,
            errno.ENAMETOOLONG,
            errno.ENOTDIR,
        ):
            raise ResourceError(f"{self.path} cannot be written ({value.strerror}).", "DISK_DENIED")


def write_file(path: Path, data: bytes) -> None:
    """`data` at `path`, all of it or none, on disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to disk: without it a rename can be lost with the power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _git_commit() -> str | None:
    """The commit of the folder the user works in, if it is a repository."""
    with suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        return found.stdout.strip()
    return None
