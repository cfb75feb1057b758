"""What a fine-tuning run begins with, whatever its task: rows, tokenizer, and a model with the weights of the base or fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headstart.bases.pretrained import open_base
from headstart.bases.verbalizer import start_from_words
from headstart.config import FinetuneConfig
from headstart.jobs.continued import continue_from, take_head
from headstart.jobs.job import Kept
from headstart.jobs.resolved import head_spec, poolings, refuse_for_task, resolved, shape_and_tokenizer, with_prompt
from headstart.models.heads import ClassHead, Model
from headstart.runs.checkpoint import load_weights, weights
from headstart.runs.model_dir import Saved, build_model
from headstart.shapes import PRESETS, Pool
from headstart.tasks.classify import class_weights
from headstart.text.split import Labelled, draw, split_labelled
from headstart.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Opened:
    cfg: FinetuneConfig  # resolved
    whole: Labelled  # all rows
    data: Labelled  # those that are drawn
    source: Saved | None  # the base as it was found; None for a preset, and in a resumed run
    taken: Saved | None  # the base whose weights the model has
    tokenizer: Tokenizer
    model: Model
    pools: Sequence[Pool]  # to choose among


def opened(cfg: FinetuneConfig, kept: Kept[FinetuneConfig]) -> Opened:
    whole = split_labelled(cfg.data)
    data = draw(whole, cfg.data.labels, cfg.data.draw, cfg.data.balanced) if cfg.data.labels else whole
    refuse_for_task(cfg, data.target.task, data.reads)
    further = cfg.init == "pretrained"
    source = None if kept.cfg or cfg.base in PRESETS else open_base(cfg.base, cfg.allow_pickle, further)
    shape, tokenizer = shape_and_tokenizer(cfg, data, source, kept)
    taken = source if cfg.init == "pretrained" else None
    cfg, data = continue_from(cfg, kept.cfg, taken, data)
    cfg = resolved(with_prompt(cfg, kept.cfg, data, shape, taken), shape, data)
    pools = poolings(cfg, kept.cfg, shape, pretrained=taken is not None)
    torch.manual_seed(cfg.train.seed)
    model = build_model(shape, head_spec(cfg, data, pools[0], tokenizer, shape))
    assert isinstance(model.head, ClassHead)
    if taken:
        load_weights(model.base, weights(taken.model.base))
        take_head(model, taken)
    if cfg.class_weights:
        model.head.weights.copy_(class_weights(data.train, data.labels))
    if taken and cfg.whole_prompt:
        start_from_words(model, taken.model, cfg.whole_prompt, tokenizer)
    model.to(cfg.train.device)
    return Opened(cfg, whole, data, source, taken, tokenizer, model, pools)
