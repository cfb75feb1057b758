"""Runs the job that settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.config import FinetuneConfig, JobConfig, MatchConfig, PretrainConfig, TranslateConfig
from headstart.runs.watch import Watch


def run_job(cfg: JobConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train what `cfg` asks for into the run directory `out`; its result."""
    from headstart.jobs.finetune import finetune
    from headstart.jobs.match import match
    from headstart.jobs.pretrain import pretrain
    from headstart.jobs.translate import translate

    jobs: dict[type[JobConfig], Any] = {
        PretrainConfig: pretrain, FinetuneConfig: finetune, TranslateConfig: translate, MatchConfig: match
    }  # fmt: skip
    return jobs[type(cfg)](cfg, out, resume, watch)
