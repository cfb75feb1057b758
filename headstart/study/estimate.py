"""How long a study will take, before it starts: a few steps on each base are timed, the rest is arithmetic."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from headstart.bases.regression import ENOUGH
from headstart.config import FinetuneConfig, JobConfig, Objective
from headstart.jobs.estimate import Cost, estimate
from headstart.jobs.finetune import FEW
from headstart.prompts import CALIBRATED_ON
from headstart.shapes import PRESETS
from headstart.study.asked import with_language_heads
from headstart.study.baselines import refuse_impossible
from headstart.study.classify import refuse_untrained
from headstart.study.ensemble import MOST_ASKED
from headstart.study.plan import (
    BaseRun,
    Cell,
    StudyConfig,
    arms_of,
    cells,
    finetuning,
    named_bases,
    trials,
)
from headstart.study.run import Planned
from headstart.text.split import SELECTED_FROM, split_labelled

TFIDF = (
    0.2,
    1.6e-3,
    5e-4,
)  # seconds: at least, for each row with cross-validation, and with validation rows to choose on
HEAD_STEP = 2e-3  # seconds of a step of a head alone
STARTED = 5.0  # seconds until a process of its own has imported everything
TEMPLATES = 2  # of a family of labels, for most
USUAL_BATCH = 16  # rows of a step that is timed
PAGE = 3.0  # seconds until the results are gathered and drawn


class StudyEstimate(TypedDict):
    """What a study costs from its very start, pretraining included."""

    seconds: float
    pretraining_seconds: float
    cells: int
    jobs: int
    disk_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Costs:
    """What the runs of a study cost, by what was timed of each base."""

    cfg: StudyConfig
    rows: int  # training and validation rows, all of them
    test: int
    timed: dict[str, Cost]  # by base

    def seconds(self, cell: Cell) -> float:
        """Of one run, but for what the runs on one base share."""
        rows = cell.labels or self.rows
        valid = rows // 5 if rows >= SELECTED_FROM else 0
        least, folded, chosen = TFIDF
        linear = least + rows * (chosen if valid >= ENOUGH else folded)
        if cell.arm.base is None or cell.arm.kind == "stack":
            return cell.arm.row.effort * linear or 0.1
        cost = self.timed[cell.arm.base.name]
        if cell.labels is None:  # every template is a pass over the test rows and those for calibration
            passes = len(self.cfg.prompts) or TEMPLATES
            return cost["opening_seconds"] + passes * (self.test + CALIBRATED_ON) * cost["reading_seconds"]
        if not cell.arm.fine_tuned:
            return cost["opening_seconds"] + cell.arm.row.effort * linear + self._asking(cell, rows - valid)
        steps = max(self.cfg.least_steps, cost["steps"] * rows / self.rows)
        looks = cost["evaluations"] if valid else 1
        if cell.arm.row.prompted:
            return self._prompted(cost, cell, rows, valid)
        if cell.arm.kind == "frozen":  # its optimizer has hardly anything to save
            return cost["opening_seconds"] + 2 * cost["writing_seconds"] + steps * HEAD_STEP
        fixed = cost["opening_seconds"] + 2 * cost["saving_seconds"]
        read = looks * valid + (0 if cell.trial else self.test)
        if cell.arm.kind == "contrastive":  # steps are of pairs, and each evaluation fits the head to the training rows
            steps, read = 2 * steps, read + looks * (rows - valid)
            fixed += looks * cost["probing_seconds"] * rows / self.rows
        return fixed + steps * cost["update_seconds"] + read * cost["reading_seconds"]

    def _asking(self, cell: Cell, rows: int) -> float:
        """The passes of another base over the labelled rows, each template one."""
        if cell.arm.asked is None:
            return 0.0
        cost, passes = self.timed[cell.arm.asked.name], len(self.cfg.prompts) or TEMPLATES
        return cost["opening_seconds"] + passes * min(rows, MOST_ASKED) * cost["reading_seconds"]

    def _prompted(self, cost: Cost, cell: Cell, rows: int, valid: int) -> float:
        """Fewer and smaller steps than the others; the template makes each text longer by a few tokens."""
        assert cell.arm.base is not None
        job = finetuning(self.cfg, cell, Path(), "accuracy")
        steps = job.usual_steps(-(-(rows - valid) // job.train.batch_size), few=not valid)
        read = (job.epochs * valid if valid else CALIBRATED_ON) + (0 if cell.trial else self.test)
        if job.scope == "head":  # the test rows are read once for all seeds
            shared = (self.test + CALIBRATED_ON) / max(1, self.cfg.seeds)
            return cost["opening_seconds"] + (rows + shared) * cost["reading_seconds"]
        update = cost["update_seconds"] * job.train.batch_size / USUAL_BATCH
        return cost["opening_seconds"] + steps * update + read * cost["reading_seconds"]

    def reading(self, base: str, keys: Sequence[tuple[str, int, int]]) -> float:
        """The pass of a frozen base over the rows: the test rows, and all others once or those that each cell draws."""
        counts = [labels for _, labels, _ in keys]
        whole = any(not labels or self.rows <= FEW * labels for labels in counts)
        drawn = sum(labels for labels in counts if labels and self.rows > FEW * labels)
        return self.timed[base]["reading_seconds"] * (self.test + drawn + (self.rows if whole else 0))

    def shared(self, cell: Cell) -> tuple[tuple[str, int, int], float]:
        """What cells on one base and the same rows share, by a key: the pass over the rows, and the linear probe."""
        base = cell.arm.base
        assert base is not None
        assert cell.labels is not None
        cost = self.timed[base.name]
        draw = cell.seed if cell.labels else 0
        return (base.name, cell.labels, draw), cost["probing_seconds"] * (cell.labels or self.rows) / self.rows


def study_estimate(cfg: StudyConfig, jobs: int = 1) -> tuple[StudyEstimate, dict[str, float]]:
    """What a study costs from its very start, on this machine; and the seconds of each of its cells."""
    refuse_untrained(cfg)
    data = split_labelled(cfg.data)
    refuse_impossible(cfg, data)
    every = len(data.train) + len(data.valid)
    pretraining = [estimate(cfg.pretraining(objective)) for objective in cfg.objectives if cfg.pretrain]
    threads = {"train": {"threads": max(1, (os.cpu_count() or 1) // jobs)}} if jobs > 1 else {}
    timed: list[Cost] = []
    if cfg.trained:
        jobs_given = [cfg.finetuning({"base": base, "check": False, **_fresh(base), **threads}) for base in cfg.bases]
        made = [_untrained(cfg, objective) for objective in cfg.objectives if cfg.pretrain]
        timed = [estimate(job) for job in [*jobs_given, *made]]
    names = [*cfg.bases, *(cfg.objectives if cfg.pretrain else ())]
    bases = named_bases([BaseRun(name, Path(name), str(i)) for i, name in enumerate(names)])
    given = len(cfg.bases)
    arms = arms_of(cfg, [*with_language_heads(cfg, bases[:given]), *bases[given:]])
    wanted = [*trials(cfg, arms, every), *cells(cfg, arms, {})]
    costs = Costs(cfg, every, len(data.test), dict(zip((base.name for base in bases), timed, strict=False)))
    probed = [
        c
        for c in wanted
        if c.arm.base and c.labels is not None and not c.arm.row.prompted and c.arm.kind not in ("scratch", "stack")
    ]
    shared = dict(costs.shared(cell) for cell in probed)
    reading = sum(costs.reading(name, [key for key in shared if key[0] == name]) for name in {key[0] for key in shared})
    by_cell = {cell.name: costs.seconds(cell) for cell in wanted}
    runs = sum(by_cell.values()) + sum(shared.values())
    before = sum(p["seconds"] + p["preparing_seconds"] + p["closing_seconds"] for p in pretraining)
    cost: StudyEstimate = {
        "seconds": round(before + reading + runs / jobs + (STARTED if jobs > 1 else 0.0) + PAGE, 1),
        "pretraining_seconds": round(before, 1),
        "cells": len(wanted),
        "jobs": jobs,
        "disk_bytes": sum(p["disk_bytes"] for p in pretraining) + sum(t["disk_bytes"] for t in timed),
        "memory_bytes": max((t["memory_bytes"] for t in [*pretraining, *timed]), default=0) * jobs,
    }
    return cost, by_cell


def _fresh(base: str) -> dict[str, str]:
    """A preset has no weights to begin with."""
    return {"init": "scratch"} if base in PRESETS else {}


def _untrained(cfg: StudyConfig, objective: Objective) -> FinetuneConfig:
    """Fine-tuning of a base that is not there yet: the same shape with fresh weights takes as long."""
    job = cfg.pretraining(objective)
    if job.base:
        return cfg.finetuning({"base": job.base, "check": False})
    model, tokenizer = job.model, job.tokenizer
    shape = {"model": model.model_dump(exclude_none=True), "tokenizer": tokenizer.model_dump()}
    return cfg.finetuning({"base": shape["model"]["preset"], "init": "scratch", "check": False, **shape})


class GridCost(TypedDict):
    cells: int  # all of them
    missing: int
    seconds: float  # of those that are missing
    jobs: int


def grid_estimate(planned: Sequence[Planned], out: Path, jobs: int = 1) -> GridCost:
    """What a grid still costs, on this machine; cells that differ only in their seed are timed once."""
    missing = [cell.work for cell in planned if not (out / "cells" / cell.name / "result.json").exists()]
    threads = {"threads": max(1, (os.cpu_count() or 1) // jobs)} if jobs > 1 else {}
    alike = Counter(
        job.model_copy(update={"train": job.train.model_copy(update={"seed": 0, **threads})})
        for job in missing
        if isinstance(job, JobConfig)
    )
    costs = ((estimate(job), count) for job, count in alike.items())
    total = sum(
        count * (cost["preparing_seconds"] + cost["seconds"] + cost["closing_seconds"]) for cost, count in costs
    )
    started = STARTED if jobs > 1 and missing else 0.0
    return {"cells": len(planned), "missing": len(missing), "seconds": round(total / jobs + started, 1), "jobs": jobs}
