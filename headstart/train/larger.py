"""What lets a larger model be trained on a device: bf16, gradient checkpointing, compiled layers. Each is a setting, off by default."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from headstart.config import TrainConfig
from headstart.errors import ConfigError

PATIENCE = 120.0  # seconds for bf16 to be tried
COMPILERS = ("c++", "g++", "clang++")
# A processor may announce instructions for bf16 and end the process that uses them, so another process tries it.
PROBE = """
import sys, torch
x = torch.randn(64, 64, requires_grad=True, device=sys.argv[1])
with torch.autocast(x.device.type, dtype=torch.bfloat16):
    q = (x @ x).view(1, 4, 64, 16)
    y = torch.nn.functional.scaled_dot_product_attention(q, q, q).float().sum()
y.backward()
assert bool(x.grad.isfinite().all())
"""


def must_be_possible(cfg: TrainConfig) -> None:
    """One sentence, before anything is read, where the device or the machine cannot do what is asked for."""
    if cfg.precision == "bf16" and (why := _fails(cfg.device)):
        raise ConfigError(f"precision bf16 cannot be used on {cfg.device} here: {why}. Leave out --precision.", "BF16")
    if cfg.shard and not _can_shard():
        raise ConfigError(f"shard needs a newer torch than {torch.__version__}. Leave out --shard.", "SHARD")
    if cfg.compile and cfg.device == "cpu" and not any(map(shutil.which, COMPILERS)):
        raise ConfigError(
            f"compile needs a C++ compiler ({', '.join(COMPILERS)}). Install one, or leave out --compile."
        )


def _can_shard() -> bool:
    import torch.distributed.fsdp as fsdp

    return hasattr(getattr(fsdp, "FSDPModule", None), "set_force_sum_reduction_for_comms")


@cache
def _fails(device: str) -> str:
    """Why bf16 does not work on the device; nothing, if it does."""
    words = [sys.executable, "-W", "ignore", "-c", PROBE, device]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"a process that tried it did not end within {PATIENCE:g} seconds"
    if done.returncode < 0:
        return f"a process that tried it was ended by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or ["it failed"])[-1] if done.returncode else ""


def layers_note(model: nn.Module, cfg: TrainConfig) -> str:
    """What to report where frozen layers make a setting idle; refused where a model has no layers that it could be for."""
    asked = [name for name in ("checkpoint_layers", "compile") if getattr(cfg, name)]
    layers = repeated_layers(model)
    if not asked or any(p.requires_grad for layer in layers for p in layer.parameters()):
        return ""
    names = " and ".join(asked)
    if not layers:
        raise ConfigError(
            f"{names} has no effect on this model: it has no repeated layers. Leave out --checkpoint-layers and --compile."
        )
    return f"{names} changes nothing: all layers are frozen."


def half(cfg: TrainConfig) -> AbstractContextManager[Any]:
    """The forward pass of a step: matrix products in bf16, if that is asked for; weights, sums and updates stay float32."""
    if cfg.precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(cfg.device).type, dtype=torch.bfloat16)


@contextmanager
def layers_as_asked(model: nn.Module, cfg: TrainConfig) -> Iterator[None]:
    """In the block the repeated layers that learn are compiled, and compute again in the backward pass what they did not keep."""
    layers = [layer for layer in repeated_layers(model) if any(p.requires_grad for p in layer.parameters())]
    changed = layers if cfg.compile or cfg.checkpoint_layers else []
    for layer in changed:
        forward = torch.compile(layer.forward) if cfg.compile else layer.forward
        layer.forward = _computed_again(forward) if cfg.checkpoint_layers else forward
    try:
        yield
    finally:
        for layer in changed:
            del layer.forward  # that of its class is there again


def _computed_again(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **named)
        return checkpoint(forward, *args, use_reentrant=False, **named)  # dropout is drawn again as it was

    return run


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """The repeated layers: the entries of the outermost lists of modules of one kind."""
    found: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList) and len({type(layer) for layer in child}) == 1:
            found += list(child)
        else:
            found += repeated_layers(child)
    return found
