"""The kinds of runs, one row for each job. Whatever has to tell jobs apart reads this table. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from headstart.config import FinetuneConfig, JobConfig, MatchConfig, PretrainConfig, TranslateConfig
from headstart.errors import ConfigError, ModelError, did_you_mean
from headstart.runs import record_shapes as shapes
from headstart.runs.record_shapes import Shape
from headstart.schema import explain, read_toml

C = TypeVar("C", bound=JobConfig)


@dataclass(frozen=True)
class Kind:
    """What a run is called, what it was asked for, and what its files hold."""

    name: str  # `job` in config.toml
    verb: str  # `headstart VERB` trains one
    noun: str  # what the run holds, in messages
    config: type[JobConfig]
    job: str  # module:class below headstart.jobs; imported when it is needed, because it loads torch
    result: type[Shape]  # result.json
    receipt: type[Shape] = Shape  # receipt.json
    evaluation: type[Shape] = shapes.Evaluation  # a line of log.jsonl about the validation rows
    prediction: type[Shape] = Shape  # a line of predictions.jsonl
    use: str = ""  # `headstart USE` puts it to work


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "pretrain", "pretrain", "a language model", PretrainConfig, "headstart.jobs.pretrain:Pretraining",
            shapes.Pretrained, use="generate",
        ),
        Kind(
            "finetune", "finetune", "a classifier", FinetuneConfig, "headstart.jobs.finetune:Finetuning",
            shapes.Finetuned, shapes.FinetuneReceipt, shapes.ClassEvaluation, shapes.Prediction, use="predict",
        ),
        Kind(
            "translate", "translate train", "a translator", TranslateConfig, "headstart.jobs.translate:Translating",
            shapes.Translated, use="translate apply",
        ),
        Kind(
            "match", "match train", "a matcher", MatchConfig, "headstart.jobs.match:Matching",
            shapes.Matched, shapes.MatchReceipt, use="search",
        ),
    )
}  # fmt: skip


def kind_of(config: JobConfig) -> Kind:
    return KINDS[config.job]


def run_shape(name: str, job: str) -> type[Shape]:
    """What a file of a run must hold; a baseline of a study is of no kind."""
    kind = KINDS.get(job)
    files: dict[str, type[Shape]] = {
        "env.json": shapes.Environment,
        "data.json": shapes.Files,
        "split.json": shapes.MatchSplit,
        "result.json": kind.result if kind else shapes.Baseline,
        "receipt.json": kind.receipt if kind else Shape,
    }
    return files.get(name, Shape)


def line_shapes(name: str, job: str) -> dict[str, type[Shape]]:
    """What the lines of a .jsonl file of a run must hold, by their `split`; under "" what all of them must."""
    kind = KINDS.get(job)
    if name == "log.jsonl":
        return {"": shapes.Logged, "train": shapes.Step, "valid": kind.evaluation if kind else shapes.Evaluation}
    return {"": kind.prediction if kind else shapes.Prediction}


def load_run_config(path: Path) -> JobConfig:
    return parse_run_config(read_toml(path), str(path))


def parse_run_config(settings: Any, source: str) -> JobConfig:
    """Settings of any job; their key `job` names it."""
    job = settings.get("job") if isinstance(settings, dict) else None
    if not isinstance(job, str) or job not in KINDS:
        hint = did_you_mean(job, KINDS) if isinstance(job, str) else ""
        raise ConfigError(f"{source}: job is one of {', '.join(KINDS)}, not {job!r}.{hint}")
    kind = KINDS[job].config
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, [kind], source)) from None


def must_be(config: JobConfig, kind: type[C], path: object) -> C:
    """The settings of a run, if it is of the `kind` that is needed; otherwise what it is, and what makes the right one."""
    if not isinstance(config, kind):
        found, wanted = kind_of(config), KINDS[kind.model_fields["job"].default]
        use = f" (for headstart {found.use})" if found.use else ""
        raise ModelError(f"{path} holds {found.noun}{use}, not {wanted.noun}. Train one: headstart {wanted.verb}.")
    return config
