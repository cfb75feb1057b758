"""Transfer receipts: which tensors were copied, which are new, and which frozen ones moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from headstart.bases.linear_probe import Probe
from headstart.bases.lora import plain_name
from headstart.config import FinetuneConfig
from headstart.jobs.continued import HeadReceipt, head_receipt
from headstart.models.base import Base
from headstart.models.dual import DualEncoder
from headstart.models.heads import Model
from headstart.runs.checkpoint import Tensors, fingerprint, weights
from headstart.runs.model_dir import Saved
from headstart.shapes import usual_pool


class Transfer(TypedDict):
    """The part of receipt.json that names tensors."""

    copied: list[str]
    new: list[str]
    unused: list[str]  # of the source
    base_sha256_before: str
    frozen: dict[str, str]  # SHA-256 of each tensor that must not move


class Moved(TypedDict):
    base_sha256_after: str
    frozen_moved: list[str]
    final_head_strength: NotRequired[float]  # contrastive: C of the logistic regression that is the head


def transfer(model: Model, source: Saved | None) -> Transfer:
    """What `model` took over from `source`, or that it took over nothing."""
    base = base_tensors(model)
    added = [f"base.{name}" for name in weights(model.base) if plain_name(name) is None]
    added += [f"head.{name}" for name in weights(model.head)]
    heads = [name for name in weights(source.model) if name.startswith("head.")] if source else []
    return {
        "copied": sorted(base) if source else [],
        "new": sorted(added) if source else sorted([*base, *added]),
        "unused": sorted([*(set(heads) - set(source.fresh)), *source.unused]) if source else [],
        "base_sha256_before": fingerprint(base),
        "frozen": {name: fingerprint({name: base[name]}) for name in _frozen(model.base)},
    }


class FinetuneReceipt(Transfer, HeadReceipt):
    """receipt.json of a classifier."""

    base: str
    init: str
    objective: str  # contrastive: the base was trained on pairs of texts, the head is a logistic regression
    head_strength: float | None  # C of the linear probe that the head starts from
    pool: str | None
    usual_pool: str
    probe_accuracy: dict[str, float | None]  # by pooling


def finetune_receipt(
    cfg: FinetuneConfig, model: Model, source: Saved | None, probes: Sequence[Probe], labels: list[str]
) -> FinetuneReceipt:
    """What a classifier took over, and what its head starts from."""
    head, found = head_receipt(cfg, model, labels), transfer(model, source if cfg.init == "pretrained" else None)
    if cfg.head_labels:
        own = [name for name in found["new"] if name.startswith("head.")]
        found["new"] = sorted(set(found["new"]) - set(own))
        found["unused"] = sorted(set(found["unused"]) - set(own))
        found["copied"] = sorted({*found["copied"], *own} - set(head["extended"]))
    start = next((probe.c for probe in probes if probe.pool == cfg.pool), None) if cfg.fit_head else None
    return {
        "base": cfg.base,
        "init": cfg.init,
        "objective": cfg.objective,
        "head_strength": start,
        "pool": cfg.pool,
        "usual_pool": usual_pool(cfg.model),
        "probe_accuracy": {probe.pool: probe.accuracy for probe in probes},
        **found,
        **head,
    }


def moved(model: Model, frozen: Mapping[str, str]) -> Moved:
    """What became of the base, and which `frozen` tensors are not what they were."""
    base = base_tensors(model)
    changed = [name for name, before in frozen.items() if fingerprint({name: base[name]}) != before]
    return {"base_sha256_after": fingerprint(base), "frozen_moved": changed}


def base_tensors(model: Model) -> Tensors:
    """The tensors of the base by the names that they have without LoRA beside them."""
    return {f"base.{plain}": t for name, t in weights(model.base).items() if (plain := plain_name(name))}


def _frozen(base: Base) -> Iterable[str]:
    return [f"base.{n}" for n, p in base.named_parameters() if not p.requires_grad and ".base_layer." not in n]


class Towers(TypedDict):
    """The part of a matcher's receipt.json that names tensors."""

    copied: list[str]
    new: list[str]
    frozen: list[str]  # towers that must not move
    towers_sha256_before: dict[str, str]


class TowersMoved(TypedDict):
    towers_sha256_after: dict[str, str]
    frozen_moved: list[str]


def towers_receipt(dual: DualEncoder, pretrained: list[str], frozen: bool) -> Towers:
    copied = {name: name.split(".")[0] in pretrained for name in weights(dual)}
    return {
        "copied": sorted(name for name, taken in copied.items() if taken),
        "new": sorted(name for name, taken in copied.items() if not taken),
        "frozen": pretrained if frozen else [],
        "towers_sha256_before": towers_sha256(dual),
    }


def towers_moved(dual: DualEncoder, receipt: Mapping[str, Any]) -> TowersMoved:
    after, before = towers_sha256(dual), receipt["towers_sha256_before"]
    return {"towers_sha256_after": after, "frozen_moved": [n for n in receipt["frozen"] if after[n] != before[n]]}


def towers_sha256(dual: DualEncoder) -> dict[str, str]:
    return {"text": fingerprint(weights(dual.text)), "image": fingerprint(weights(dual.image))}
