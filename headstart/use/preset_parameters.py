"""The parameters of a preset by arithmetic: the products that its modules would have, and what a token costs. No torch.

Shapes: V vocabulary, T context, D width, F feed-forward width, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from headstart.errors import ConfigError
from headstart.schema import parse
from headstart.shapes import TransformerConfig
from headstart.show.parameters import Module, Parameters

Product = tuple[int, ...]  # the shape of one parameter
SHARED = "shared with the embedding"


def preset_parameters(settings: dict[str, Any], head: str, labels: int) -> Parameters:
    """The parameters of a preset under a language-model head (lm), or under one for this many labels (classify)."""
    cfg = parse(TransformerConfig, settings)
    if not cfg.vocab:
        raise ConfigError("A preset has no vocabulary yet: give its size with --vocab.")
    layer = list(_layer(cfg))
    base, on_top = list(_base(cfg, layer)), list(_head(cfg) if head == "lm" else _classes(cfg, labels))
    one = sum(m.parameters for m in layer)
    counts = {"layer": one, "layers": cfg.layers * one, "base": sum(m.parameters for m in base)}
    return Parameters([*base, *on_top], counts, _flops(cfg, head, labels) // cfg.context, cfg.context)


def _base(cfg: TransformerConfig, layer: list[Module]) -> Iterator[Module]:
    norm: tuple[Product, ...] = ((cfg.width,), (cfg.width,))
    yield _module("base.tokens", (cfg.vocab, cfg.width))
    if cfg.positions == "learned":
        yield _module("base.positions", (cfg.context, cfg.width))
    if cfg.embedding_norm:
        yield _module("base.embedding_norm", *norm)
    for n in range(cfg.layers):
        yield from (Module(f"base.layers.{n}.{m.name}", m.parameters, m.formula, True) for m in layer)
    if cfg.norm == "pre":
        yield _module("base.norm", *norm)


def _layer(cfg: TransformerConfig) -> Iterator[Module]:
    width, ff = cfg.width, cfg.ff
    yield _linear("attention.qkv", width, 3 * width)
    yield _linear("attention.out", width, width)
    yield _module("attention_norm", (width,), (width,))
    yield _linear("up", width, ff)
    yield _linear("down", ff, width)
    yield _module("ff_norm", (width,), (width,))


def _head(cfg: TransformerConfig) -> Iterator[Module]:
    own: list[Product] = [] if cfg.tied else [(cfg.vocab, cfg.width)]
    yield _module("head", *own, *([(cfg.vocab,)] if cfg.head_bias else []), shared=cfg.tied)
    if cfg.head_transform:
        yield _linear("head.transform.0", cfg.width, cfg.width)
        yield _module("head.transform.2", (cfg.width,), (cfg.width,))


def _classes(cfg: TransformerConfig, labels: int) -> Iterator[Module]:
    yield _linear("head.linear", cfg.width, labels)


def _linear(name: str, inputs: int, outputs: int) -> Module:
    return _module(name, (outputs, inputs), (outputs,))


def _module(name: str, *products: Product, shared: bool = False) -> Module:
    terms = ["×".join(map(str, product)) for product in products] + [SHARED] * shared
    return Module(name, sum(map(math.prod, products)), " + ".join(terms), True)


def _flops(cfg: TransformerConfig, head: str, labels: int) -> int:
    """Operations of the matrix products of one text as long as the context; two for each multiplication."""
    context, width = cfg.context, cfg.width
    matrices = 4 * width * width + 2 * width * cfg.ff  # weights of a layer that every token meets
    attention = 2 * context * width  # a token meets all of the text, as query and as a sum of values
    logits = context * (cfg.vocab * width + cfg.head_transform * width * width) if head == "lm" else labels * width
    return 2 * (cfg.layers * context * (matrices + attention) + logits)
