"""The skeleton of a job, once for all of them: prepare, report, train, score, write the model, finish.

A `Job` is what a kind of run brings along; `run_job` makes a run directory of it. runs/kinds.py lists the kinds.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import nn

from headstart.config import JobConfig
from headstart.imported import imported
from headstart.jobs.curves import write_curves
from headstart.runs.checkpoint import Progress
from headstart.runs.joined import JoinedRun
from headstart.runs.kinds import kind_of
from headstart.runs.manifest import read_manifest
from headstart.runs.place import ALONE, Place, must_have_parts
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.text.batch import Batches
from headstart.text.files import file_facts
from headstart.text.tokenizer import Tokenizer
from headstart.train.larger import layers_note
from headstart.train.loop import Task, prepare_device, train
from headstart.train.processes import Group, Processes

C = TypeVar("C", bound=JobConfig)


@dataclass(frozen=True)
class Kept(Generic[C]):
    """What a run directory holds of an earlier start: the resumed run uses it, whatever has become of its sources."""

    cfg: C | None = None  # resolved settings; None while nothing was learned
    tokenizers: Mapping[str, Tokenizer] | None = None  # made once: a resumed run must not depend on how ties are broken

    @classmethod
    def of(cls, run: Run, files: Sequence[str], kind: type[C]) -> Kept[C]:
        paths = {name: run.path / "model" / name for name in files}
        tokenizers = {name: Tokenizer.load(path) for name, path in paths.items() if path.exists()}
        config = run.config if run.begun else None
        assert config is None or isinstance(config, kind), "Run.start has made sure of the job"
        return cls(config, tokenizers if len(tokenizers) == len(files) else None)


@dataclass(frozen=True)
class Sample:
    """What the model makes of a prompt after an evaluation."""

    prompt: str
    text: str
    shown: str  # as the progress shows it


@dataclass(frozen=True)
class Amount:
    """The amount of training data."""

    texts: int
    tokens: int
    vocabulary: int


class Job(ABC, Generic[C]):
    """A run before its first step: data, tokenizers, model, task. Nothing of it is in the run directory yet."""

    tokenizer_files: ClassVar[Sequence[str]] = ("tokenizer.json",)  # below model/
    cfg: C  # with what the data and the base decide filled in
    tokenizer: Tokenizer
    text: Any  # the training texts; `text.rows` are their tokens
    valid: Any  # the validation texts, likewise
    model: nn.Module  # what learns
    task: Task[Any, Any]
    batches: Batches[Any]

    @classmethod
    @abstractmethod
    def files(cls, cfg: C) -> list[Path]:
        """The data files. They must not change between a start and a resume."""

    @classmethod
    @abstractmethod
    def prepare(cls, cfg: C, kept: Kept[C], watch: Watch) -> Self: ...

    @abstractmethod
    def measured(self) -> Sequence[Any]:
        """The validation batches, anew for each evaluation."""

    @abstractmethod
    def facts(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """What data.json keeps; `before` is what it held when the run began."""

    @abstractmethod
    def scores(self, run: Run, progress: Progress) -> Mapping[str, Any]:
        """The job's own part of result.json. Opens the test rows, once, with the kept weights."""

    @abstractmethod
    def card(self, result: Mapping[str, Any]) -> str:
        """The model card."""

    @abstractmethod
    def save(self, folder: Path, card: str) -> None:
        """Write model/, the weights last."""

    # What follows has a default, for jobs that have nothing to add.

    @property
    def tokenizers(self) -> Sequence[Tokenizer]:
        """In the order of `tokenizer_files`."""
        return (self.tokenizer,)

    @property
    def amount(self) -> Amount:
        return Amount(len(self.text.rows), len(self.text.rows.ids), self.tokenizer.size)

    @property
    def held_out(self) -> bool:
        """Whether there are rows to validate on."""
        return len(self.valid.rows) > 0

    def notes(self) -> Iterator[str]:
        """What to report before the first step."""
        yield from ()

    def records(self) -> Mapping[str, Mapping[str, Any]]:
        """Further JSON files of the run directory, by name."""
        return {}

    def receipt(self) -> Mapping[str, Any] | None:
        """What was copied, before the first step."""
        return None

    def check_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Refuse to resume where the receipt no longer holds."""

    def receipt_after(self, receipt: Mapping[str, Any]) -> Mapping[str, Any]:
        """What moved, after the last step."""
        return {}

    def samples(self) -> list[Sample]:
        """After each evaluation."""
        return []

    def finish_training(self) -> None:
        """Undo what only training needs."""

    @property
    def whole(self) -> nn.Module:
        """All parameters, those that do not learn too."""
        return self.model

    @classmethod
    def for_estimate(cls, cfg: C) -> C:
        """`cfg` without what writes files or takes long before the first step."""
        return cfg

    @property
    def prediction_bytes(self) -> int:
        """About the size of predictions.jsonl."""
        return 0

    def closing_costs(self, evaluation: float) -> dict[str, float]:
        """Estimated seconds around the training, where one evaluation takes `evaluation`."""
        return {"closing_seconds": round(evaluation, 3)}


def job_class(cfg: JobConfig) -> type[Job[Any]]:
    """The job behind settings."""
    found: type[Job[Any]] = imported(kind_of(cfg).job)
    return found


def prepare(cfg: JobConfig) -> Any:
    """A job that was never begun, for whoever wants to look at it; nothing is written."""
    return job_class(cfg).prepare(cfg, Kept(), Watch())


def run_job(
    cfg: JobConfig,
    out: str | Path,
    resume: bool = False,
    watch: Watch | None = None,
    curves: bool = True,
    place: Place = ALONE,
) -> dict[str, Any]:
    """Train what `cfg` asks for into the run directory `out`; its result. `curves`: whether to draw curves.png.

    With a `place` among several processes, this is the first of them; the others call `follow_job`.
    """
    watch, kind = watch or Watch(), job_class(cfg)
    must_have_parts(place.count, cfg)
    processes = Group(place) if place.count > 1 else Processes()
    with Run.start(out, resume, cfg, prepare_device(cfg.train, place)) as run:
        if run.finished:
            processes.dismiss()
            return run.finish_again(watch)
        run.check_files(file_facts(kind.files(cfg)))
        began = time.perf_counter()
        job = kind.prepare(cfg, Kept.of(run, kind.tokenizer_files, type(cfg)), watch)
        preparing = time.perf_counter() - began
        receipt = _describe(run, job, watch)
        trained = parameters(job.model, trained=True)
        processes.begin(job.cfg.train, trained)
        told = run.note_processes(place.count, processes.gradients)

        def after_evaluation(step: int) -> None:
            for sample in job.samples():
                run.log({"step": step, "split": "sample", "prompt": sample.prompt, "text": sample.text})
                watch.note(f"step {step}: {sample.shown}")

        valid = job.measured if job.held_out else None
        progress = train(
            job.model, job.task, job.batches, valid, job.cfg.train, run, watch, after_evaluation, processes
        )
        processes.end()
        job.finish_training()
        if receipt is not None:
            run.write_json("receipt.json", {**receipt, **job.receipt_after(receipt), **told})
        result = {
            "run": str(run.path),
            "steps": progress.step,
            "best_step": progress.best_step,
            **job.scores(run, progress),
            "parameters": parameters(job.whole),
            "trained_parameters": trained,
            "tokens": progress.tokens,
            "preparing_seconds": round(preparing, 3),
            "seconds": round(progress.seconds, 3),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
            **({**told, **processes.facts()} if told else {}),
        }
        job.save(run.path / "model", job.card(result))
        result["weights_sha256"] = read_manifest(run.path / "model")["model.safetensors"].sha256
        result["config_sha256"] = sha256((run.path / "config.toml").read_bytes()).hexdigest()
        if curves:
            write_curves(run)
        return run.finish(result, job.cfg.train.keep_checkpoints)


def follow_job(out: str | Path, place: Place) -> None:
    """Train beside the first process of a job, which writes its run directory `out`, until it is done.

    It begins as a run that is resumed: with the settings and the tokenizers of the directory, and its newest checkpoint.
    """
    processes = Group(place)
    if not processes.called():
        return
    run = JoinedRun(Path(out))
    cfg = run.asked(JobConfig)
    prepare_device(cfg.train, place)
    kind = job_class(cfg)
    job = kind.prepare(cfg, Kept.of(run, kind.tokenizer_files, type(cfg)), Watch())
    processes.begin(job.cfg.train, parameters(job.model, trained=True))
    valid = job.measured if job.held_out else None
    train(job.model, job.task, job.batches, valid, job.cfg.train, run, Watch(), processes=processes)
    processes.end()


def _describe(run: Run, job: Job[Any], watch: Watch) -> Mapping[str, Any] | None:
    """Write what is known before the first step, report it, and return the receipt, where the job has one."""
    if note := layers_note(job.whole, job.cfg.train):
        watch.note(f"Note: {note}")
    for name, tokenizer in zip(job.tokenizer_files, job.tokenizers, strict=True):
        run.write_text(f"model/{name}", tokenizer.to_json())
    run.write_config(job.cfg)
    if run.begun and (run.path / "receipt.json").exists():
        receipt: Mapping[str, Any] | None = run.read_json("receipt.json")
        job.check_receipt(receipt or {})
    else:
        receipt = job.receipt()
        if receipt is not None:
            run.write_json("receipt.json", receipt)
    run.add_data_facts(job.facts(run.read_json("data.json")))
    for name, record in job.records().items():
        run.write_json(name, record)
    for note in job.notes():
        watch.note(note)
    return receipt


def parameters(model: nn.Module, trained: bool = False) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trained)
