"""How long a study will take, said before it starts: a few updates of each base are timed, the rest is arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.config import FinetuneConfig
from headstart.shapes import PRESETS
from headstart.study.plan import BaseRun, Cell, StudyConfig, arms_of, cells, named_bases, trials
from headstart.text.split import SELECTED_FROM, split_labelled
from headstart.train.estimate import estimate

TFIDF_SECONDS = 1e-3  # a row, for a strength


def study_estimate(cfg: StudyConfig, jobs: int = 1) -> dict[str, Any]:
    """Seconds and cells of a study from its very start, on this machine."""
    data = split_labelled(cfg.data)
    every = len(data.train) + len(data.valid)
    pretraining = [estimate(cfg.pretraining(objective)) for objective in cfg.objectives if cfg.pretrain]
    timed: list[dict[str, Any]] = []
    if cfg.trained:
        timed += [estimate(cfg.finetuning({"base": base, "check": False, **_fresh(base)})) for base in cfg.bases]
        timed += [estimate(_untrained(cfg, objective)) for objective in cfg.objectives if cfg.pretrain]
    names = [*cfg.bases, *(cfg.objectives if cfg.pretrain else ())]
    bases = named_bases([BaseRun(name, Path(name), str(i)) for i, name in enumerate(names)])
    arms = arms_of(cfg, bases)
    enough = [n for n in cfg.labels if (n or every) >= SELECTED_FROM]
    wanted = [*trials(cfg, arms, enough), *cells(cfg, arms, {})]
    rate = dict(zip((base.name for base in bases), timed, strict=False))

    def seconds(cell: Cell) -> float:
        rows = cell.labels or every
        if cell.arm.base is None:
            return 3 * TFIDF_SECONDS * rows if cell.arm.kind == "tfidf" else 0.0
        cost = rate[cell.arm.base.name]
        if cell.arm.kind == "frozen":  # the base reads the rows once for all cells
            return 1.0
        steps = max(cfg.least_steps, cost["steps"] * rows / every)
        looks = cost["evaluations"] if rows >= SELECTED_FROM else 0
        return steps * cost["update_seconds"] + looks * cost["evaluation_seconds"] * rows / every

    tested = sum(len(data.test) / max(1, len(data.valid)) * rate[c.arm.base.name]["evaluation_seconds"]
                 for c in wanted if c.arm.base and not c.trial and c.arm.kind != "frozen")  # fmt: skip
    trained = (sum(map(seconds, wanted)) + tested) / jobs
    before = sum(p["seconds"] + p["preparing_seconds"] for p in pretraining)
    return {
        "seconds": round(before + trained, 1),
        "pretraining_seconds": round(before, 1),
        "cells": len(wanted),
        "jobs": jobs,
        "disk_bytes": sum(p["disk_bytes"] for p in pretraining) + sum(t["disk_bytes"] for t in timed),
        "memory_bytes": max((t["memory_bytes"] for t in [*pretraining, *timed]), default=0) * jobs,
    }


def _fresh(base: str) -> dict[str, str]:
    """A preset has no weights to begin with."""
    return {"init": "scratch"} if base in PRESETS else {}


def _untrained(cfg: StudyConfig, objective: Any) -> FinetuneConfig:
    """Fine-tuning of a base that is not there yet: the same shape with fresh weights takes as long."""
    job = cfg.pretraining(objective)
    if job.base:
        return cfg.finetuning({"base": job.base, "check": False})
    model, tokenizer = job.model, job.tokenizer
    shape = {"model": model.model_dump(exclude_none=True), "tokenizer": tokenizer.model_dump()}
    return cfg.finetuning({"base": shape["model"]["preset"], "init": "scratch", "check": False, **shape})
