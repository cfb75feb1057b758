"""The run directory: its only reader and writer, apart from the weights (checkpoint.py, model_dir.py). No torch.

    runs/<name>/
      config.toml        resolved: every default written out
      env.json           versions, command, device, threads, seed, settings as asked, format of this directory;
                         `not_bit_identical`: what changed of these in a resume
      data.json          file hashes, split sizes, overlaps, label counts, truncation
      split.json         matching: the images of each part, with their SHA-256
      receipt.json       fine-tuning: which tensors were copied, and what moved
      log.jsonl          one record a line: `split` is train, valid, sample, spike, nonfinite or receipt; the clock is under `wall`
      tensorboard/       the same as TensorBoard events
      checkpoints/step-NNNNNNN/   safetensors and JSON
      model/             Hugging Face layout
      predictions.jsonl  the test rows, once
      valid_predictions.jsonl   fine-tuning in a study: the validation rows
      conformal.json     fine-tuning: the nonconformity of the validation rows, for label sets
      result.json        written last, atomically: present = finished

A file is written under a temporary name, forced to disk, and renamed: a reader sees all of it or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TextIO, TypeVar

from headstart.config import JobConfig
from headstart.errors import ConfigError, DataError, ModelError, ResourceError, UserError, did_you_mean
from headstart.runs.disk import DRAFT, write_file
from headstart.runs.environment import changes, environment, version, versions
from headstart.runs.kinds import KINDS, kind_of, line_shapes, load_run_config, parse_run_config, run_shape
from headstart.runs.lock import lock_folder
from headstart.runs.log import Log
from headstart.runs.record_shapes import Shape
from headstart.runs.records import read_json, read_lines
from headstart.runs.watch import Watch
from headstart.schema import differences, to_toml
from headstart.strict_json import to_json

C = TypeVar("C", bound=JobConfig)
MAY_CHANGE = (  # when a run is resumed; anything else would make it another run
    *("train.threads", "train.device"),  # these change the last bits of the weights, which is told and kept
    *("train.log_every", "train.checkpoint_every", "train.keep_checkpoints", "train.tensorboard"),
    *("train.skip_nonfinite", "train.gradients", "train.checkpoint_layers", "train.shard"),
)
FORMAT = 1  # of the directory; a newer one than ours is refused by name


class Run:
    writes: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None
        self._log: Log | None = None
        self._fresh = self._made_folder = False  # whether this process began the run, and made its folder
        self.changes: list[str] = []  # of this process against the one before: not the same bits

    @classmethod
    def start(cls, path: str | Path, resume: bool, config: JobConfig, threads: int) -> Run:
        """A locked run directory to write into: a new one, or with `resume` the one that is there.

        `threads` are those that torch will really use: to the last bit, a run repeats only with as many.
        """
        run = cls(Path(path))
        run.must_be_resumable() if resume else run.must_be_free()
        made_folder = not os.path.exists(run.path)
        run._lock = lock_folder(run.path)
        try:
            if resume:
                run._must_agree(config, threads)
            else:
                run.must_be_free()  # still, now that nobody else can write here
                run._fresh, run._made_folder = True, made_folder
                run.write_json("env.json", {"format": FORMAT, **environment(), **_asked(config, threads)})
            run._sweep()
        except BaseException:
            run._leave(failed=True)
            raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A finished run, to read from."""
        run = cls(Path(path))
        if not os.path.isdir(run.path):
            beside = run.path.parent.iterdir() if os.path.isdir(run.path.parent) else ()
            hint = did_you_mean(run.path.name, [], also={p.name: str(p) for p in beside})
            raise ModelError(f"{path}: no such run.{hint}", "RUN_MISSING")
        if not (run.path / "env.json").exists():
            raise ModelError(f"{path}: this folder is not a run (it has no env.json).", "RUN_MISSING")
        run._check_format()
        if not run.finished:
            raise ModelError(
                f"{path}: this run is not finished: it is still at work, or was stopped. To go on with a stopped one: "
                f"headstart {run.verb} --out {path} --resume.",
                "RUN_UNFINISHED",
            )
        return run

    def summary(self) -> dict[str, Any]:
        """What the run is and how it came out, in one flat record; of a damaged one, what is damaged."""
        state, problem = "finished" if self.finished else "unfinished", None
        env: dict[str, Any] = {}
        result: dict[str, Any] = {}
        try:
            env = self.read_json("env.json")
            result = self.read_json("result.json") if self.finished else {}
        except ModelError as error:
            state, problem = "damaged", str(error)
        valid, test = result.get("valid") or {}, result.get("test") or {}
        return {
            "run": str(self.path),
            "job": env.get("asked", {}).get("job"),
            "state": state,
            "problem": problem,
            "started": env.get("started"),
            "seed": env.get("seed"),
            "steps": result.get("steps"),
            "valid_loss": valid.get("loss"),
            "valid_accuracy": valid.get("accuracy"),
            "test_accuracy": test.get("accuracy"),
            "valid_recall@5": _recall(valid),
            "test_recall@5": _recall(test),
            "seconds": result.get("seconds"),
        }

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def there(self) -> bool:
        """Whether the directory holds a run, so that going on with it is possible."""
        return (self.path / "env.json").exists()

    @property
    def begun(self) -> bool:
        """Whether training has logged or learned anything, so that starting over would lose work."""
        first, saved = "step-0000000", (self.path / "checkpoints").glob("step-*")
        return (self.path / "log.jsonl").exists() or any(path.name != first for path in saved)

    @property
    def config(self) -> JobConfig:
        path = self.path / "config.toml"
        if not os.path.lexists(path):
            raise ModelError(f"{self.path}: config.toml is missing.", "RUN_DAMAGED")
        return load_run_config(path)

    def asked(self, kind: type[C]) -> C:
        """The settings as they were asked for when the run began, to go on with."""
        self.must_be_resumable()
        env = self.read_json("env.json")
        if env.get("asked_sha256", settings_digest(env.get("asked"))) != settings_digest(env.get("asked")):
            raise ModelError(
                f"{self.path / 'env.json'} is damaged (its settings are not those that the run began with).",
                "RUN_DAMAGED",
            )
        config = parse_run_config(env.get("asked"), str(self.path / "env.json"))
        if not isinstance(config, kind):
            raise UserError(
                f"{self.path} is a run of another kind ({config.job}). Resume it with headstart {kind_of(config).verb}."
            )
        return config

    def differences(self, config: JobConfig) -> list[str]:
        """What would make a run with these settings another one: `text: minilm, not base`."""
        told = differences(self.asked(type(config)), config.model_dump())
        return [difference for difference in told if difference.partition(":")[0] not in MAY_CHANGE]

    def must_be_resumable(self) -> None:
        if not os.path.exists(self.path / "env.json"):
            raise UserError(f"{self.path}: there is no run here to resume. Leave out --resume to begin one.")
        self._check_format()

    def write_config(self, config: JobConfig) -> None:
        self.write_text("config.toml", to_toml(config))

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, to_json(value, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        write_file(self.path / name, text.encode())

    def write_lines(self, name: str, values: list[dict[str, Any]]) -> None:
        lines = (to_json(value) + "\n" for value in values)
        self.write_text(name, "".join(lines))

    @property
    def job(self) -> str:
        """What was asked for; a baseline of a study has no settings of its own."""
        return str(self.read_json("env.json").get("asked", {}).get("job", "pretrain")) if self.there else "baseline"

    @property
    def verb(self) -> str:
        """The words of the command line that made it."""
        return KINDS[self.job].verb if self.job in KINDS else self.job

    def read_json(self, name: str, shape: type[Shape] | None = None) -> Any:
        """A file of the run, once it is known to hold what the job of the run keeps there."""
        job = "" if name == "env.json" else self.job
        return read_json(self.path / name, shape or run_shape(name, job))

    def read_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The records of a .jsonl file; a last line cut short by a kill is left out."""
        return read_lines(self.path / name, line_shapes(name, self.job))

    def check_files(self, files: list[dict[str, Any]]) -> None:
        """Keep the names and hashes of the data files; when they are kept already, insist that nothing changed."""
        if not (self.path / "data.json").exists():
            self.write_json("data.json", {"files": files})
            return
        before, now = ({f["file"]: f["sha256"] for f in kept} for kept in (self.read_json("data.json")["files"], files))
        changed = sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))
        if changed:
            raise DataError(
                f"{', '.join(changed)}: changed since this run began. Start a new run with another --out.",
                "DATA_CHANGED",
            )

    def add_data_facts(self, facts: Mapping[str, Any]) -> None:
        """Keep what else is known of the data; a run that goes on must have the tokenizer that it began with."""
        kept = self.read_json("data.json")
        if kept.get("tokenizer_sha256", facts["tokenizer_sha256"]) != facts["tokenizer_sha256"]:
            raise ModelError(
                f"{self.path / 'model' / 'tokenizer.json'} is not the tokenizer that this run began with. Put that one "
                "back, or begin a new run.",
                "RUN_DAMAGED",
            )
        self.write_json("data.json", {"files": kept["files"], **facts})

    def note_processes(self, count: int, gradients: str) -> Mapping[str, int | str]:
        """Keep how many processes train it, and how their gradients are added: only one way gives the same bits on any number."""
        env = self.read_json("env.json")
        now: dict[str, int | str] = {"processes": count, "gradients": gradients}
        before = {"processes": env.get("processes", 1), "gradients": env.get("gradients", "ordered")}
        if now == before:
            return now if count > 1 else {}
        if self.begun and {gradients, before["gradients"]} != {"ordered"}:
            self.changes.append(f"processes {before['processes']} ({before['gradients']}) -> {count} ({gradients})")
            env["not_bit_identical"] = [*env.get("not_bit_identical", []), self.changes[-1]]
        self.write_json("env.json", {**env, **now})
        return now

    def log(self, record: dict[str, Any]) -> None:
        """Add a record; where the disk is full it waits for the next checkpoint."""
        if self._log is None:
            self.cut_log(self.log_length())
        assert self._log is not None
        self._log.add(to_json(record).encode() + b"\n")

    def log_length(self) -> int:
        """Bytes in the log, all of them safely on disk."""
        path = self.path / "log.jsonl"
        if self._log is None:
            if path.exists() and not path.is_file():  # to write to a pipe would wait for somebody to read
                raise ModelError(f"{path} is damaged (not a regular file).", "RUN_DAMAGED")
            return path.stat().st_size if path.exists() else 0
        return self._log.sync()

    def cut_log(self, length: int) -> None:
        """Forget what was logged after a checkpoint: it will be logged again, in the same words."""
        assert self._log is None, "nothing is logged before the cut"
        self._log = Log(self.path / "log.jsonl", length)

    def finish(self, result: dict[str, Any], keep_checkpoints: bool = False) -> dict[str, Any]:
        """Write result.json, the mark of a finished run, and clear away what only resuming needs."""
        told = self.read_json("env.json").get("not_bit_identical")
        result = {**result, "not_bit_identical": told} if told else result
        self.write_json("result.json", result)
        self._clear(keep_checkpoints)
        return result

    def finish_again(self, watch: Watch) -> dict[str, Any]:
        """The result of a finished run; clears away what a kill at the very end may have left."""
        watch.note("This run is finished already.")
        self._clear(self.config.train.keep_checkpoints)
        return self.read_json("result.json")

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._lock is not None:
            self._lock.close()
        self._log = self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=value is not None)
        if isinstance(value, ResourceError) and value.code.startswith("DISK") and self.begun:
            raise ResourceError(f"{value} When that is mended, go on with --resume.", value.code) from None

    def _clear(self, keep_checkpoints: bool) -> None:
        if not keep_checkpoints:
            shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _leave(self, failed: bool) -> None:
        try:
            if failed and self._fresh and not self.begun:  # nothing was learned: leave nothing in the way
                with suppress(FileNotFoundError):  # somebody was faster
                    for path in [self.path] if self._made_folder else list(self.path.iterdir()):
                        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        finally:
            self.close()

    def _sweep(self) -> None:
        """Clear away what a killed process was in the middle of writing."""
        for draft in list(self.path.rglob(DRAFT)):
            with suppress(OSError):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()

    def must_be_free(self) -> None:
        if not os.path.exists(self.path) or (self.path.is_dir() and not holds_something(self.path)):
            return
        if self._lock is None and (self.path / ".lock").exists():
            lock_folder(self.path).close()  # says so if another process has it
        done = "holds a finished run" if self.finished else "already exists"
        hint = "" if self.finished else ", or go on with --resume"
        raise UserError(f"{self.path} {done}. Choose another --out{hint}.", "RUN_EXISTS")

    def _must_agree(self, config: JobConfig, threads: int) -> None:
        changed = self.differences(config)
        if changed:
            raise _other_settings(self.path, changed)
        before = self.read_json("env.json")
        now = {**before, "versions": versions(), **_asked(config, threads)}
        if self.begun:
            self.changes = changes(before, now)
        if self.changes:
            now["not_bit_identical"] = [*before.get("not_bit_identical", []), *self.changes]
        if now != before and not self.finished:
            self.write_json("env.json", now)

    def _check_format(self) -> None:
        made = self.read_json("env.json")
        if made["format"] > FORMAT:
            maker = made.get("versions", {}).get("headstart", "a later version")
            raise ModelError(
                f"{self.path} was made by headstart {maker}, which this one ({version('headstart')}) cannot read. "
                "Update headstart.",
                "RUN_NEWER",
            )


def _other_settings(run: Path, changed: list[str]) -> ConfigError:
    """Why a run cannot go on with settings other than its own."""
    reason = ""
    if any(difference.startswith("train.steps:") for difference in changed):
        reason = " The learning rate falls over the steps a run was begun with, so it cannot be made longer or shorter."
    told = "; ".join(changed)
    return ConfigError(
        f"{run} was begun with other settings: {told}.{reason} Leave them out to resume, or begin a new run. "
        f"Only these may change: {', '.join(MAY_CHANGE)}."
    )


def runs_in(folder: str | Path) -> list[Run]:
    """Every run below a folder, by name, the cells of studies aside; the folder may itself be one."""
    if not os.path.isdir(folder):
        raise ModelError(f"{folder}: no such folder.", "RUN_MISSING")
    cells = {path.parent / "cells" for path in Path(folder).rglob("study.json")}
    found = [
        Run(path.parent)
        for path in Path(folder).rglob("env.json")
        if (path.parent / ".lock").exists() and path.parents[1] not in cells
    ]
    return sorted(found, key=lambda run: run.path)


def _asked(config: JobConfig, threads: int) -> dict[str, Any]:
    facts = {"device": config.train.device, "threads": threads, "seed": config.train.seed}
    asked = config.model_dump(mode="json")
    return {**facts, "asked": asked, "asked_sha256": settings_digest(asked)}


def settings_digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _recall(scores: dict[str, Any]) -> float | None:
    """How often a matcher found the image of a caption."""
    return scores["text_to_image"]["recall@5"]["value"] if "text_to_image" in scores else None


def holds_something(folder: Path) -> bool:
    """A lock and a draft are what a run leaves that was killed as it began."""
    return any(path.name != ".lock" and not path.match(DRAFT) for path in folder.iterdir())
