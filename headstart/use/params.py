"""Where the parameters of a model are, and the product behind each number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from headstart.config import PRESETS, FinetuneConfig, TransformerConfig
from headstart.errors import ConfigError, did_you_mean
from headstart.models.base import freeze, parameter_table
from headstart.models.heads import Model
from headstart.schema import parse
from headstart.train.model_dir import HeadSpec, build_model, read_model
from headstart.train.run import Run


def preset_parameters(settings: dict[str, Any], head: str, labels: int) -> dict[str, Any]:
    """The parameters of a preset; no weights are made."""
    cfg = parse(TransformerConfig, settings)
    if not cfg.vocab:
        raise ConfigError("A preset has no vocabulary yet: give its size with --vocab.")
    spec = HeadSpec("language") if head == "lm" else HeadSpec("classify", tuple(map(str, range(labels))))
    with torch.device("meta"):
        return describe(build_model(cfg, spec))


def run_parameters(path: str | Path) -> dict[str, Any]:
    """The parameters of a finished run, those that were frozen marked."""
    if not os.path.exists(path):
        raise ConfigError(
            f"'{path}' is neither a run nor a preset ({', '.join(PRESETS)}).{did_you_mean(str(path), PRESETS)}"
        )
    run = Run.open(path)
    model, config = read_model(run.path / "model").model, run.config
    if isinstance(config, FinetuneConfig):
        freeze(model.base, config.scope)
    return describe(model)


def describe(model: Model) -> dict[str, Any]:
    rows = parameter_table(model)
    of_base = sum(p.numel() for p in model.base.parameters())
    return {
        "total": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "base": of_base,
        "layer": sum(p.numel() for p in model.base.blocks[0].parameters()),
        "modules": rows,
    }
