"""LoRA (Hu et al., 2021), by peft: small matrices learn beside the frozen ones, and are added to them in the end."""

from __future__ import annotations

from torch import nn

from headstart.errors import UserError
from headstart.models.base import Base


def add_lora(base: Base, rank: int) -> None:
    """Put a pair of matrices beside every linear layer of the blocks; nothing else of `base` learns from now on."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError(
            "--train lora needs the library peft: pip install 'headstart[lora]'.", "NOT_INSTALLED"
        ) from None
    inside = {id(module) for module in base.blocks.modules()}
    linear = {name: module for name, module in base.named_modules() if id(module) in inside and _is_linear(module)}
    turned = any(not isinstance(module, nn.Linear) for module in linear.values())  # GPT-2 keeps them as (in, out)
    settings = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=list(linear), fan_in_fan_out=turned
    )
    inject_adapter_in_model(settings, base)


def merge_lora(base: Base) -> None:
    """Add what was learned to the matrices that it stood beside; the base has the layers it had before."""
    for name, module in list(base.named_modules()):
        if hasattr(module, "lora_A"):
            module.merge()
            parent, _, last = name.rpartition(".")
            setattr(base.get_submodule(parent), last, module.get_base_layer())


def plain_name(name: str) -> str | None:
    """The name of a tensor in the base without LoRA; None for one that LoRA brought along.

    >>> plain_name("layers.0.up.base_layer.weight"), plain_name("layers.0.up.lora_A.default.weight")
    ('layers.0.up.weight', None)
    """
    return None if ".lora_" in name else name.replace(".base_layer.", ".")


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
