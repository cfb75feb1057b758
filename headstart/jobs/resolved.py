"""The settings of a fine-tuning run with what the rows and the base decide: shape, tokenizer, prompt, pooling, head, steps."""

from __future__ import annotations

from headstart.bases.at_hand import knows_words
from headstart.bases.pretrained import within
from headstart.config import FinetuneConfig
from headstart.errors import ConfigError
from headstart.jobs.job import Kept
from headstart.models.huggingface import KINDS
from headstart.prompts import AUTO, prompts_for
from headstart.runs.model_dir import HeadSpec, Saved
from headstart.shapes import HuggingFaceConfig, ModelConfig, Pool, pools_to_try, usual_pool
from headstart.targets.tasks import TARGETS
from headstart.task import Input, Task
from headstart.text.inputs import INPUTS, singles
from headstart.text.prompted import prompt_tokens
from headstart.text.split import Labelled
from headstart.text.tokenizer import Tokenizer, tokenizer_for


def shape_and_tokenizer(
    cfg: FinetuneConfig, data: Labelled, source: Saved | None, kept: Kept[FinetuneConfig]
) -> tuple[ModelConfig, Tokenizer]:
    if kept.cfg and kept.tokenizers:
        return kept.cfg.model, kept.tokenizers["tokenizer.json"]
    if source:
        return _separated(within(source.config, cfg.context), source.tokenizer, data), source.tokenizer
    if cfg.init == "pretrained":
        raise ConfigError(
            f"The preset '{cfg.base}' has no weights. Give a pretrained run as --base, or train from nothing with "
            "--init scratch."
        )
    tokenizer = tokenizer_for(singles([e.text for e in data.train]), cfg.tokenizer)
    return cfg.model.model_copy(update={"vocab": tokenizer.size}), tokenizer


def _separated(shape: ModelConfig, tokenizer: Tokenizer, data: Labelled) -> ModelConfig:
    """`shape` with the token after which a second text begins, where a base has token types."""
    if (
        not INPUTS[data.reads].several
        or not isinstance(shape, HuggingFaceConfig)
        or not KINDS[shape.model_type].token_types
    ):
        return shape
    return shape.model_copy(update={"separator": tokenizer.end})


def with_prompt(
    cfg: FinetuneConfig, before: FinetuneConfig | None, data: Labelled, shape: ModelConfig, taken: Saved | None
) -> FinetuneConfig:
    """`cfg` with its template and all label words, where it has a prompt."""
    if not cfg.prompt:
        return cfg
    if before:
        return cfg.model_copy(update={"prompt": before.prompt, "label_words": before.label_words})
    if taken and not knows_words(taken, cfg.base):
        raise ConfigError(
            f"{cfg.base} has no language head, which a prompt needs. Take a causal or masked language model such as smollm2, "
            "or leave out --prompt."
        )
    templates = () if cfg.prompt == AUTO else (cfg.prompt,)
    prompt = prompts_for(data.labels, shape.causal, templates, cfg.label_words)[0]
    return cfg.model_copy(update={"prompt": prompt.template, "label_words": prompt.words})


def poolings(
    cfg: FinetuneConfig, before: FinetuneConfig | None, shape: ModelConfig, pretrained: bool
) -> tuple[Pool, ...]:
    """The poolings to choose among, the usual one first."""
    if cfg.prompt:
        return ("last",)
    settled = cfg.pool or (before.pool if before else None)
    return (settled,) if settled else pools_to_try(shape) if pretrained else (usual_pool(shape),)


def head_spec(cfg: FinetuneConfig, data: Labelled, pool: Pool, tokenizer: Tokenizer, shape: ModelConfig) -> HeadSpec:
    prompt = cfg.whole_prompt
    tail = prompt_tokens(prompt, tokenizer, shape.causal).tail if prompt else 0
    calibrated = cfg.calibrate and not data.valid
    task = data.target.task
    biased = task != "classify" or (
        bool(prompt) and (calibrated or cfg.scope == "head")
    )  # of a calibration and a probe
    return HeadSpec(
        "classify", data.target.names, pool, cfg.head_dropout, cfg.long, prompt, tail, biased, task, reads=data.reads
    )


def refuse_for_task(cfg: FinetuneConfig, task: Task, reads: Input = "text") -> None:
    """Settings that are for one class per row alone, or for single texts."""
    single = {"--prompt": cfg.prompt, "--objective contrastive": cfg.objective == "contrastive", "--long window": cfg.long == "window"}  # fmt: skip
    if INPUTS[reads].several and any(single.values()):
        flag = next(flag for flag, there in single.items() if there)
        raise ConfigError(f"{flag} is for single texts; the rows here are {INPUTS[reads].brief}. Leave it out.")
    given = {"--prompt": cfg.prompt, "--objective contrastive": cfg.objective == "contrastive", "--class-weights": cfg.class_weights}  # fmt: skip
    if task != "classify" and any(given.values()):
        flag = next(flag for flag, there in given.items() if there)
        raise ConfigError(f"{flag} is for rows with one class each; the task here is {task}. Leave it out.")
    if TARGETS[task].by_word and cfg.long == "window":
        raise ConfigError(f"--long window has no effect on {task}s: long texts are read in parts anyway. Leave it out.")
    if cfg.score and cfg.score not in TARGETS[task].titles:
        raise ConfigError(
            f"score = '{cfg.score}': the scores of the task {task} are {', '.join(TARGETS[task].titles)}."
        )


def resolved(cfg: FinetuneConfig, shape: ModelConfig, data: Labelled) -> FinetuneConfig:
    """`cfg` with what the data and the base decide."""
    if cfg.long == "window" and not shape.causal and shape.context < 3:
        raise ConfigError(
            "--long window: a context of 2 tokens holds a start and an end, and nothing of the text. Give --context 3 or more."
        )
    per_epoch = -(-len(data.train) // (cfg.train.batch_size * cfg.train.accumulate))
    steps = cfg.usual_steps(per_epoch, few=bool(cfg.data.labels) and not data.valid)
    train = cfg.train.scheduled(steps, eval_every=per_epoch if data.valid else steps // 10)
    if not train.lr:
        train = train.model_copy(update={"lr": cfg.usual_rate(shape)})
    return cfg.model_copy(update={"model": shape, "train": train})
