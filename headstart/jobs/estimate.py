"""What a run would cost, estimated before it starts. A few steps are really made; nothing is written."""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypedDict

from torch import nn

from headstart.bases.pretrained import open_base
from headstart.config import FinetuneConfig, JobConfig, PretrainConfig, TrainConfig
from headstart.errors import ConfigError, DivergedError
from headstart.jobs.job import Job, Kept, job_class, parameters
from headstart.models.heads import Model
from headstart.runs.checkpoint import KEPT, Progress, checkpoint_bytes, weight_bytes
from headstart.runs.watch import Watch
from headstart.shapes import PRESETS
from headstart.tasks.contrast import Contrast
from headstart.text.batch import Batches
from headstart.train.health import REMEDY
from headstart.train.loop import Task, apply_gradients, gradients, prepare_device
from headstart.train.optim import build_optimizer

TIMED = 2.0  # seconds of steps, but LEAST of them at least: one of a large model takes longer
LEAST, MOST = 3, 50
SAVED = 250e6  # bytes of a checkpoint that are written, forced to disk, read again and verified in a second
LOOKED_AT = 100  # batches at most, among which the longest is looked for: it decides the memory
PROBED = 100  # steps of the run that is estimated to know how many fit into minutes
SPARE = 0.04  # of the steps' time goes into the evaluations of a long run, which look at more text
CLOSING = 0.3  # of the minutes, at most, that are kept for the scores at the end
SPREAD = 0.618034  # multiples of the golden ratio fall evenly, however many are taken
LOGGED = 330  # bytes of a measurement, in log.jsonl and for TensorBoard


class Cost(TypedDict, total=False):
    """What a run would cost; seconds are those of this machine."""

    job: str
    parameters: int
    trained_parameters: int
    vocabulary: int
    texts: int
    training_tokens: int
    steps: int
    epochs: float
    tokens: int
    evaluations: int
    seconds: float  # as in result.json: from the first step to the last evaluation
    preparing_seconds: float
    opening_seconds: float  # of that, all but a linear probe
    update_seconds: float  # one step
    evaluation_seconds: float
    gathering_seconds: float  # of what is evaluated on, once
    saving_seconds: float  # one checkpoint
    writing_seconds: float  # the weights alone
    closing_seconds: float  # scores and weights after the training
    reading_seconds: float  # fine-tuning: the base reads one text
    probing_seconds: float  # fine-tuning: the logistic regressions of the linear probe
    before_seconds: float  # fine-tuning: the linear probe as a whole
    timed_updates: int
    threads: int
    memory_bytes: int
    disk_bytes: int
    disk_bytes_after: int


def estimate(cfg: JobConfig) -> Cost:
    """Parameters, tokens, steps, seconds, memory and disk of a run with these settings, on this machine."""
    threads, kind = prepare_device(cfg.train), job_class(cfg)
    if isinstance(cfg, FinetuneConfig) and cfg.base not in PRESETS:
        open_base(
            cfg.base, cfg.allow_pickle, cfg.init == "pretrained"
        )  # the first time imports libraries, which a study does once for all cells
    began = time.perf_counter()
    job = kind.prepare(kind.for_estimate(cfg), Kept(), Watch())
    opening = time.perf_counter() - began
    train, model, amount = job.cfg.train, job.model, job.amount
    first, update_seconds, tokens, timed = _timed_updates(model, job.task, job.batches, train)
    evaluations = len({*range(0, train.steps, train.eval_every), train.steps})
    gathering, evaluating = (
        _timed_evaluation(model, job.task, job.measured, train.device) if job.held_out else (0.0, 0.0)
    )
    around = job.closing_costs(gathering + evaluating)
    writing, saving = weight_bytes(job.whole) / SAVED, checkpoint_bytes(model) / SAVED
    around["closing_seconds"] = round(around["closing_seconds"] + writing, 3)
    evaluating += _timed_samples(job)
    saves = 2 + (train.steps - 1) // train.checkpoint_every  # one before the first step, one after the last
    training = first + (train.steps - 1) * update_seconds + gathering + evaluations * evaluating + saves * saving
    return Cost(
        job=job.cfg.job,
        parameters=parameters(job.whole),
        trained_parameters=parameters(model, trained=True),
        vocabulary=amount.vocabulary,
        texts=amount.texts,
        training_tokens=amount.tokens,
        steps=train.steps,
        epochs=round(train.steps * train.accumulate / job.batches.per_epoch, 2),
        tokens=round(tokens * train.steps),
        evaluations=evaluations,
        seconds=round(training, 3),
        preparing_seconds=round(opening + around.get("before_seconds", 0.0), 3),
        opening_seconds=round(opening, 3),
        update_seconds=round(update_seconds, 6),
        evaluation_seconds=round(evaluating, 6),
        gathering_seconds=round(gathering, 3),
        saving_seconds=round(saving, 3),
        writing_seconds=round(writing, 3),
        **around,  # type: ignore[typeddict-item]
        timed_updates=timed,
        threads=threads,
        memory_bytes=_memory(model),
        **_disk(job, evaluations),
    )


def within_minutes(cfg: PretrainConfig, minutes: float) -> PretrainConfig:
    """`cfg` with as many steps as fit into `minutes` on this machine, finding this out included."""
    if not math.isfinite(minutes):
        raise ConfigError(f"--minutes {minutes:g} is no number of minutes.")
    began = time.perf_counter()
    # Of few steps, so that the evaluations are as short as those of a short run; long runs have SPARE for theirs.
    cost = estimate(_with_steps(cfg, PROBED))
    closing = min(cost["closing_seconds"], CLOSING * 60 * minutes)  # long scores at the end are no reason to refuse
    spent = time.perf_counter() - began + closing
    spent += cost["preparing_seconds"] + cost["gathering_seconds"]  # the run itself does both once more
    update_seconds = (1 + SPARE) * cost["update_seconds"]
    if cfg.train.eval_every:
        update_seconds += cost["evaluation_seconds"] / cfg.train.eval_every
    else:
        spent += cost["evaluations"] * cost["evaluation_seconds"]
    steps = max(0, int((60 * minutes - spent) / update_seconds))
    if not steps and not cfg.counted:
        raise ConfigError(f"--minutes {minutes:g}: preparing alone takes {spent:.0f} s. Give more.")
    return _with_steps(cfg, steps)


def _with_steps(cfg: PretrainConfig, steps: int) -> PretrainConfig:
    return cfg.model_copy(update={"train": cfg.train.model_copy(update={"steps": steps})})


def _timed_updates(
    model: nn.Module, task: Task[Any, Any], batches: Batches[Any], cfg: TrainConfig
) -> tuple[float, float, float, int]:
    """Seconds of the first step, seconds and tokens of a later one, and how many were made to know.

    The first includes what happens once, when a batch is first asked for: a frozen base reads all texts.
    """
    began = time.perf_counter()
    optimizer, free, now = build_optimizer(model, cfg), [p for p in model.parameters() if p.requires_grad], Progress()
    most = max(1, min(cfg.steps, batches.per_epoch // cfg.accumulate))
    spread = [int(i * SPREAD % 1 * most) for i in range(LOOKED_AT)]
    longest, most_tokens = 0, 0
    for step in spread[:most]:
        tokens = batches(step * cfg.accumulate).tokens
        longest, most_tokens = (step, tokens) if tokens > most_tokens else (longest, most_tokens)
        if time.perf_counter() - began > TIMED:  # a teacher is asked of every batch, and takes a second for each
            break

    def timed(step: int) -> float:
        now.step, start = step, time.perf_counter()
        update = gradients(model, task, batches, free, cfg, now)
        apply_gradients(optimizer, update["lr"])
        return time.perf_counter() - start

    timed(longest)
    first, now.tokens = time.perf_counter() - began, 0
    seconds: list[float] = []
    while len(seconds) < LEAST or (sum(seconds) < TIMED and len(seconds) < MOST):
        seconds.append(timed(spread[len(seconds)]))
    return first, sum(seconds) / len(seconds), now.tokens / len(seconds), len(seconds)


def _timed_evaluation(
    model: nn.Module, task: Task[Any, Any], valid: Callable[[], Iterable[Any]], device: str
) -> tuple[float, float]:
    """Seconds until its batches are there for the first time, and of one evaluation.

    The latter from a few of its batches: short, middling and long ones; fitting a head takes the same time for any number.
    """
    began = time.perf_counter()
    count = sum(1 for _ in valid())
    gathering = time.perf_counter() - began
    some = [batch for i, batch in enumerate(valid()) if i % max(1, count // LEAST) == 0]
    began = time.perf_counter()
    if isinstance(task, Contrast) and isinstance(model, Model):
        task.fit_head(model)
    fitting = time.perf_counter() - began
    task.evaluate(model.eval(), (batch.to(device) for batch in some))
    evaluating = max(0.0, time.perf_counter() - began - 2 * fitting)  # which has fitted it once more
    return gathering, fitting + evaluating * count / len(some)


def _timed_samples(job: Job[Any]) -> float:
    if not all(bool(p.isfinite().all()) for p in job.model.parameters()):
        raise DivergedError(f"The weights are not finite after a few steps. {REMEDY}")
    began = time.perf_counter()
    job.samples()
    return time.perf_counter() - began


def _memory(model: nn.Module) -> int:
    """The most that the process has needed so far, which has made real steps, and what is to come on top."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak
    best = weight_bytes(model)
    return max(peak + best, now + best + checkpoint_bytes(model))


class Disk(TypedDict):
    disk_bytes: int  # at most while the run lasts: one checkpoint more than are kept
    disk_bytes_after: int


def _disk(job: Job[Any], evaluations: int) -> Disk:
    cfg, checkpoint = job.cfg.train, checkpoint_bytes(job.model)
    logged = LOGGED * (cfg.steps // cfg.log_every + evaluations)
    tokenizers = sum(len(tokenizer.to_json().encode()) for tokenizer in job.tokenizers)
    kept = weight_bytes(job.whole) + tokenizers + logged + job.prediction_bytes
    after = kept + (KEPT * checkpoint if cfg.keep_checkpoints else 0)
    return {"disk_bytes": kept + (KEPT + 1) * checkpoint, "disk_bytes_after": after}
