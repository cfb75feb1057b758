"""The interface that every base has, ours or another's, and what follows from its ordered layers.

Shapes: B examples, T tokens, D width, H heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor, nn

from headstart.errors import ConfigError


@dataclass(frozen=True)
class States:
    """What a base made of a batch; `layers` and `attention` only when it was asked to `look`."""

    last: Tensor  # (B, T, D)
    layers: tuple[Tensor, ...] = ()  # the embedding and each layer's output, (B, T, D)
    attention: tuple[Tensor, ...] = ()  # one (B, H, T, T) a layer


@dataclass
class Cache:
    """Keys and values of the tokens read so far, in memory set aside once."""

    layers: list[Tensor]  # one (2, B, H, context, D // H) a layer: keys and values
    length: int = 0
    next: Callable[[Tensor], Tensor] | None = None  # a faster way for single tokens, once a base has made it


class Base(nn.Module, ABC):
    width: int
    max_len: int
    causal: bool
    separators = 1  # end tokens between the two texts of a pair
    skips_padding = False  # whether `read` spends no time on padding
    attends = True  # whether tokens read each other by attention, which can be looked at

    @property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """The repeated layers, input to output."""

    @property
    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """The vectors of the vocabulary, (V, D)."""

    @abstractmethod
    def forward(self, ids: Tensor, mask: Tensor, look: bool = False) -> States:
        """States of (B, T) ids under a (B, T) mask, True = real; padding stands on the right."""

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last states (B, T, D) for inference; what stands at padding may differ from `forward`."""
        return self(ids, mask).last

    def finish(self, hidden: Tensor) -> Tensor:
        """What a head would read if the layers ended at `hidden`: the last norm, where a base has one."""
        return hidden

    def new_cache(self, batch: int) -> Cache:
        raise NotImplementedError("a bidirectional base reads the whole text at once")

    def step(self, ids: Tensor, cache: Cache) -> States:
        """States of the next (B, T) tokens of a causal base; `cache` grows by T."""
        raise NotImplementedError("a bidirectional base reads the whole text at once")

    def rewind(self, cache: Cache, length: int) -> None:
        """Forget what was read after the first `length` tokens."""
        cache.length = length


def layer_groups(base: Base) -> list[tuple[str, list[nn.Parameter]]]:
    """The parameters of `base` in order from input to output, each exactly once.

    Freezing, layer-wise learning rates and the parameter table all read this one partition.
    """
    inside = {id(p) for block in base.blocks for p in block.parameters()}
    names = dict(base.named_parameters())
    first_block = next(i for i, p in enumerate(names.values()) if id(p) in inside)
    outside = [(i, p) for i, p in enumerate(names.values()) if id(p) not in inside]
    groups = [("embedding", [p for i, p in outside if i < first_block])]
    groups += [(f"layer {n}", list(block.parameters())) for n, block in enumerate(base.blocks, start=1)]
    groups.append(("final", [p for i, p in outside if i > first_block]))
    return [(name, parameters) for name, parameters in groups if parameters]


def freeze(base: Base, scope: str) -> None:
    """Let only `scope` of `base` learn: full, head (nothing of the base) or last:K layers. Nothing is ever thawed.

    What lora adds changes every layer: bases/lora.py freezes them, and merges the changes in the end.
    """
    groups = layer_groups(base)
    if scope in ("full", "lora"):
        free = len(groups)
    elif scope == "head":
        free = 0
    else:
        layers, count = len(base.blocks), int(scope.removeprefix("last:"))
        if count > layers:
            raise ConfigError(f"The base has {layers} layers; --train {scope} asks for more of them.")
        free = count + (groups[-1][0] == "final")
    for _, parameters in groups[: len(groups) - free]:
        for parameter in parameters:
            parameter.requires_grad = False


class ModuleRow(TypedDict):
    name: str
    parameters: int
    formula: str  # the product behind the count
    trainable: bool


def parameter_table(model: nn.Module) -> list[ModuleRow]:
    """One row per module with parameters of its own: its count, the product behind it, and whether it learns."""
    seen: set[int] = set()
    rows: list[ModuleRow] = []
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        fresh = [p for p in own if id(p) not in seen]
        seen.update(map(id, own))
        if not own:
            continue
        formula = " + ".join("×".join(map(str, _factors(module, p))) for p in fresh)
        if len(fresh) < len(own):
            formula = f"{formula + ' + ' if formula else ''}shared with the embedding"
        rows.append(
            {
                "name": name,
                "parameters": sum(p.numel() for p in fresh),
                "formula": formula,
                "trainable": all(p.requires_grad for p in own),
            }
        )
    return rows


def _factors(module: nn.Module, parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of a parameter; torch stacks the gates of a recurrent layer in its first dimension."""
    first, *rest = parameter.shape
    if isinstance(module, nn.RNNBase) and first != module.hidden_size:
        return (first // module.hidden_size, module.hidden_size, *rest)
    return (first, *rest)
