"""Where the parameters of a model that is built are, the product behind each number, and what they cost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headstart.bases.translator import build_seq2seq, read_translator
from headstart.config import FinetuneConfig, TranslateConfig
from headstart.errors import ConfigError, did_you_mean
from headstart.models.base import freeze, parameter_table
from headstart.models.heads import Model, every_token
from headstart.models.seq2seq import Seq2Seq
from headstart.models.unfilled import shapes_alone
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.shapes import PRESETS, Seq2SeqConfig
from headstart.show.parameters import Module, Parameters

GATES = {"gru": 3, "lstm": 4}  # matrices of a recurrent layer, for its input and for its state


def run_parameters(path: str | Path) -> Parameters:
    """The parameters of a finished run, those that were frozen marked."""
    if not os.path.exists(path):
        raise ConfigError(
            f"'{path}' is neither a run nor a preset ({', '.join(PRESETS)}).{did_you_mean(str(path), PRESETS)}"
        )
    run = Run.open(path)
    config = run.config
    if isinstance(config, TranslateConfig):
        return describe_translator(read_translator(run.path / "model").model, config.model)
    model = read_model(run.path / "model").model
    if isinstance(config, FinetuneConfig):
        freeze(model.base, config.scope)
    return describe(model)


def translator_parameters(settings: dict[str, Any]) -> Parameters:
    """The parameters of an encoder and a decoder; no weights are made."""
    cfg = parse(Seq2SeqConfig, {"target_vocab": settings.get("vocab", 0), **settings})
    if not cfg.vocab:
        raise ConfigError("An encoder and a decoder have no vocabulary yet: give its size with --vocab.")
    with shapes_alone():
        return describe_translator(build_seq2seq(cfg), cfg)


def describe_translator(model: Seq2Seq, cfg: Seq2SeqConfig) -> Parameters:
    """Counts by module; for a recurrent layer also as a formula of its sizes."""
    return Parameters(
        _modules(model), {"encoder": _count(model.encoder)}, notes=_recurrent_notes(cfg) if cfg.recurrent else []
    )


def describe(model: Model) -> Parameters:
    """All that the shapes of a model say; its weights are given up for that."""
    layers = [_count(block) for block in model.base.blocks]
    counts = {"layer": layers[0], "layers": sum(layers), "base": _count(model.base)}
    return Parameters(_modules(model), counts, flops_per_token(model), model.base.max_len)


def flops_per_token(model: Model) -> int:
    """Operations of one token forward, as many read at once as fit; counted by torch on a model without weights."""
    model = model.to("meta").eval()
    shape = (1, model.base.max_len)
    ids, mask = (torch.zeros(shape, dtype=kind, device="meta") for kind in (torch.long, torch.bool))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        states = model.look(ids, mask).last  # the slow way: the fused kernels are not counted on every device
        model.head.logits(states if model.head.pool is every_token else states[:, 0])
    return int(counter.get_total_flops()) // model.base.max_len


def _modules(model: nn.Module) -> list[Module]:
    return [Module(r["name"], r["parameters"], r["formula"], r["trainable"]) for r in parameter_table(model)]


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _recurrent_notes(cfg: Seq2SeqConfig) -> list[str]:
    kind = cfg.kind.removesuffix("-additive")
    g, d = GATES[kind], cfg.hidden
    h = d // 2 if cfg.two_way else d
    ways = " a direction" if cfg.two_way else ""
    return [
        f"One {kind.upper()} layer{ways} of input size D = {d} and hidden size H = {h}: {g}·D·H + {g}·H² + {2 * g}·H = "
        f"{g}·{d}·{h} + {g}·{h}² + {2 * g}·{h} = {g * d * h + g * h * h + 2 * g * h:,}, biases included.",
        f"The same weights serve every step, so the length K of a text is not in it: {g}·D·H·K + {g}·H²·K counts the "
        "multiplications that K steps take.",
    ]
