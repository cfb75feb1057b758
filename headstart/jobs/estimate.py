"""What a run would cost, said before it starts. A few updates are really made; nothing is written."""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from headstart.bases.linear_probe import CS, MOST_ROWS
from headstart.bases.pretrained import open_base
from headstart.bases.regression import ENOUGH, FOLDS
from headstart.config import FinetuneConfig, PretrainConfig, TrainConfig, TranslateConfig
from headstart.errors import ConfigError, DivergedError
from headstart.jobs import finetune, pretrain, translate
from headstart.jobs.finetune import Finetuning
from headstart.jobs.pretrain import LOOKED_BACK_AT, Pretraining, sample
from headstart.jobs.translate import Translating
from headstart.runs.checkpoint import KEPT, Progress, checkpoint_bytes, weight_bytes
from headstart.shapes import PRESETS, pools_to_try
from headstart.text.batch import Batches
from headstart.train.health import REMEDY
from headstart.train.loop import Task, apply_gradients, gradients, prepare_device
from headstart.train.optim import build_optimizer

Job = Pretraining | Finetuning | Translating
TIMED = 2.0  # seconds of updates, but LEAST of them at least: one of a large model takes longer
LEAST, MOST = 3, 50
SAVED = 250e6  # bytes of a checkpoint that are written, forced to disk, read again and verified in a second
FITTING = 5e-3, 5e-8  # seconds of one logistic regression: at least, and for each row x feature x class
LOOKED_AT = 100  # batches at most, among which the longest is looked for: it decides the memory
PROBED = 100  # updates of the run that is estimated to know how many fit into minutes
SPARE = 0.04  # of the updates' time goes into the evaluations of a long run, which look at more text
CLOSING = 0.3  # of the minutes, at most, that are kept for the scores at the end
SPREAD = 0.618034  # multiples of the golden ratio fall evenly, however many are taken
PREDICTED = 150  # bytes beside the text of a test row in predictions.jsonl
LOGGED = 330  # bytes of a measurement, in log.jsonl and for TensorBoard


def estimate(cfg: PretrainConfig | FinetuneConfig | TranslateConfig) -> dict[str, Any]:
    """Parameters, tokens, updates, seconds, memory and disk of a run with these settings, on this machine."""
    threads = prepare_device(cfg.train)
    if isinstance(cfg, FinetuneConfig) and cfg.base not in PRESETS:
        open_base(cfg.base, cfg.allow_pickle)  # the first time imports libraries, which a study does once for all cells
    began = time.perf_counter()
    job = _prepared(cfg)
    opening = preparing = time.perf_counter() - began
    train, model = job.cfg.train, job.model
    first, update_seconds, tokens, timed = _timed_updates(model, job.task, job.batches, train)
    evaluations = len({*range(0, train.steps, train.eval_every), train.steps})
    gathering, evaluating = (
        _timed_evaluation(model, job.task, job.measured, train.device) if job.measured else (0.0, 0.0)
    )
    closing = _closing(job, gathering + evaluating) if isinstance(job, Pretraining) else {}
    evaluating += _timed_samples(job) if isinstance(job, Pretraining) else 0.0
    saves = 2 + (train.steps - 1) // train.checkpoint_every  # one before the first update, one after the last
    saving = checkpoint_bytes(model) / SAVED
    training = first + (train.steps - 1) * update_seconds + gathering + evaluations * evaluating + saves * saving
    if isinstance(job, Finetuning):
        closing = _probing(job, evaluating)
        preparing += closing["reading_seconds"] * min(len(job.text.texts), MOST_ROWS) + closing["probing_seconds"]
    return {
        "job": job.cfg.job,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "vocabulary": job.tokenizer.size,
        "texts": len(job.text.rows),
        "training_tokens": len(job.text.rows.ids),
        "steps": train.steps,
        "epochs": round(train.steps * train.accumulate / job.batches.per_epoch, 2),
        "tokens": round(tokens * train.steps),
        "evaluations": evaluations,
        "seconds": round(training, 3),  # as in result.json: from the first update to the last evaluation
        "preparing_seconds": round(preparing, 3),
        "opening_seconds": round(opening, 3),  # of that, all but a linear probe
        "update_seconds": round(update_seconds, 6),
        "evaluation_seconds": round(evaluating, 6),
        "gathering_seconds": round(gathering, 3),  # of what is evaluated on, once
        "saving_seconds": round(saving, 3),  # one checkpoint
        "writing_seconds": round(weight_bytes(model) / SAVED, 3),  # the weights alone
        **closing,
        "timed_updates": timed,
        "threads": threads,
        **_memory(model),
        **_disk(job, evaluations),
    }


def within_minutes(cfg: PretrainConfig, minutes: float) -> PretrainConfig:
    """`cfg` with as many updates as fit into `minutes` on this machine, finding this out included."""
    if not math.isfinite(minutes):
        raise ConfigError(f"--minutes {minutes:g} is no number of minutes.")
    began = time.perf_counter()
    # Of few updates, so that the evaluations are as short as those of a short run; long runs have SPARE for theirs.
    cost = estimate(_with_steps(cfg, PROBED))
    closing = min(
        cost["closing_seconds"], CLOSING * 60 * minutes
    )  # measuring too long at the end is no reason to refuse
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


def _prepared(cfg: PretrainConfig | FinetuneConfig | TranslateConfig) -> Job:
    if isinstance(cfg, PretrainConfig):
        return pretrain.prepare(cfg)
    if isinstance(cfg, FinetuneConfig):
        # Features would be written, and a linear probe takes a pass over the rows that nobody needs here.
        return finetune.prepare(
            cfg.model_copy(update={"features": None, "fit_head": False, "pool": cfg.pool or "mean"})
        )
    return translate.prepare(cfg)


def _timed_updates(
    model: nn.Module, task: Task[Any, Any], batches: Batches[Any], cfg: TrainConfig
) -> tuple[float, float, float, int]:
    """Seconds of the first update, seconds and tokens of a later one, and how many were made to know.

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

    The latter from a few of its batches: short, middling and long ones.
    """
    began = time.perf_counter()
    count = sum(1 for _ in valid())
    gathering = time.perf_counter() - began
    some = [batch for i, batch in enumerate(valid()) if i % max(1, count // LEAST) == 0]
    began = time.perf_counter()
    task.evaluate(model.eval(), (batch.to(device) for batch in some))
    return gathering, (time.perf_counter() - began) * count / len(some)


def _closing(job: Pretraining, glance_seconds: float) -> dict[str, float]:
    """Seconds of what is measured at the end: the whole of the validation text, and the beginning of the other."""
    valid, train = len(job.valid.rows.ids), len(job.text.rows.ids)
    measured = (valid + min(LOOKED_BACK_AT, train)) / max(1, min(valid, job.glance))
    return {"closing_seconds": round(measured * glance_seconds, 3)}


def _probing(job: Finetuning, evaluating: float) -> dict[str, float]:
    """Seconds in which the base reads one text, of the regressions of a linear probe, and of what follows the training."""
    cfg, train, valid = job.cfg, len(job.data.train), len(job.data.valid)
    reading = 0.0 if cfg.scope == "head" else evaluating / max(1, valid)  # a frozen base has read all rows by then
    taken = job.source is not None and cfg.init == "pretrained"
    probing = taken * len(pools_to_try(cfg.model)) * _regression_seconds(train, valid, job)
    return {
        "reading_seconds": round(reading, 6),
        "probing_seconds": round(probing, 3),
        "closing_seconds": round(reading * len(job.data.test) + weight_bytes(job.model) / SAVED, 3),
    }


def _regression_seconds(train: int, valid: int, job: Finetuning) -> float:
    """Of all the logistic regressions behind one linear probe."""
    least, each = FITTING
    size = min(train, MOST_ROWS) * job.cfg.model.width * (len(job.data.labels) if len(job.data.labels) > 2 else 1)
    return (len(CS) * (FOLDS if valid < ENOUGH else 1) + 1) * (least + each * size)


def _timed_samples(job: Pretraining) -> float:
    if not all(bool(p.isfinite().all()) for p in job.model.parameters()):
        raise DivergedError(f"The weights are not finite after a few updates. {REMEDY}")
    began = time.perf_counter()
    for prompt in job.prompts:
        sample(job.model, job.tokenizer, prompt, job.cfg)
    return time.perf_counter() - began


def _memory(model: nn.Module) -> dict[str, int]:
    """The most that the process has needed so far, which has made real updates, and what is to come on top."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak
    best = weight_bytes(model)
    return {"memory_bytes": max(peak + best, now + best + checkpoint_bytes(model))}


def _disk(job: Job, evaluations: int) -> dict[str, int]:
    """Bytes in the run directory at most while the run lasts (one checkpoint more than are kept), and afterwards."""
    cfg, checkpoint = job.cfg.train, checkpoint_bytes(job.model)
    logged = LOGGED * (cfg.steps // cfg.log_every + evaluations)
    kept = weight_bytes(job.model) + len(job.tokenizer.to_json().encode()) + logged
    if isinstance(job, Finetuning):
        kept += sum(len(example.text.encode()) + PREDICTED for example in job.data.test)
    after = kept + (KEPT * checkpoint if cfg.keep_checkpoints else 0)
    return {"disk_bytes": kept + (KEPT + 1) * checkpoint, "disk_bytes_after": after}
