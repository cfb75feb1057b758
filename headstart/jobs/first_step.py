"""The first step of a finished run, made again from its settings and data; nothing is written."""

from __future__ import annotations

from headstart.config import FinetuneConfig, JobConfig
from headstart.jobs.job import Kept, job_class
from headstart.runs.checkpoint import Progress
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.text.files import file_facts
from headstart.train.loop import apply_gradients, gradients, prepare_device, step_receipt
from headstart.train.optim import build_optimizer


def first_step(run: Run) -> dict[str, str]:
    """The receipt of the first step; a UserError where its data are not there, or are others."""
    asked, kind = run.asked(JobConfig), job_class(run.config)
    train = asked.train.model_copy(update={"threads": run.read_json("env.json")["threads"]})
    cfg = asked.model_copy(update={"train": train, **({"features": None} if isinstance(asked, FinetuneConfig) else {})})
    run.check_files(file_facts(kind.files(cfg)))
    prepare_device(train)
    tokenizers = Kept.of(run, kind.tokenizer_files, type(cfg)).tokenizers
    job = kind.prepare(
        cfg, Kept(tokenizers=tokenizers), Watch()
    )  # as one that was never begun: its base is opened again
    optimizer = build_optimizer(job.model, job.cfg.train)
    free = [p for p in job.model.parameters() if p.requires_grad]
    update = gradients(job.model, job.task, job.batches, free, job.cfg.train, Progress())
    apply_gradients(optimizer, update["lr"])
    return step_receipt(job.model)
