"""Training a classifier further: its labels keep their rows of the head, and labels that are new extend it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

import torch

from headstart.config import FinetuneConfig
from headstart.errors import ConfigError
from headstart.models.heads import ClassHead, Model
from headstart.runs.model_dir import Saved
from headstart.targets.classes import Classes
from headstart.text.split import Labelled


class HeadReceipt(TypedDict):
    """What receipt.json tells of the head of a classifier that was trained further; all empty for a new head."""

    extended: list[str]  # tensors that were copied, and have new rows besides
    labels_kept: list[str]
    labels_added: list[str]


def continue_from(
    cfg: FinetuneConfig, before: FinetuneConfig | None, taken: Saved | None, data: Labelled
) -> tuple[FinetuneConfig, Labelled]:
    """Settings and rows with the labels of the classifier that is the base, in its order, before the new ones."""
    if before:
        cfg = cfg.model_copy(update={"head_labels": before.head_labels})
    elif taken and taken.head.kind == "classify":
        if taken.head.prompt or cfg.prompt or cfg.objective == "contrastive":
            raise ConfigError(
                f"{cfg.base} is a classifier. Its head can be trained further without a prompt and with the objective "
                "classify alone. For another head, give the pretrained run it was made from as --base."
            )
        if taken.head.task != "classify" or data.target.task != "classify":
            raise ConfigError(
                f"{cfg.base} is a model of the task {taken.head.task}, and the rows are of the task {data.target.task}. Only a classifier with one class per text is trained further."
            )
        if cfg.pool not in (None, taken.head.pool):
            raise ConfigError(f"{cfg.base} is a classifier with the pooling {taken.head.pool}. Leave out --pool.")
        cfg = cfg.model_copy(update={"head_labels": taken.head.labels, "pool": taken.head.pool})
    else:  # whatever a file of settings has
        cfg = cfg.model_copy(update={"head_labels": ()})
    if not cfg.head_labels:
        return cfg, data
    new = [label for label in data.labels if label not in cfg.head_labels]
    labels = [*cfg.head_labels, *new]
    return cfg, replace(data, labels=labels, kind=Classes(tuple(labels)))


@torch.no_grad()
def take_head(model: Model, taken: Saved) -> None:
    """Copy the rows of the labels that the classifier `taken` knows; they are the first ones. A language model has none."""
    mine, theirs = model.head, taken.model.head
    if not isinstance(mine, ClassHead) or not isinstance(theirs, ClassHead):
        return
    for own, other in zip(mine.linear.parameters(), theirs.linear.parameters(), strict=True):
        own[: len(other)] = other


def head_receipt(cfg: FinetuneConfig, model: Model, labels: list[str]) -> HeadReceipt:
    kept = len(cfg.head_labels)
    tensors = sorted(f"head.linear.{name}" for name, _ in getattr(model.head, "linear", model.head).named_parameters())
    return {
        "extended": tensors if kept and len(labels) > kept else [],
        "labels_kept": labels[:kept],
        "labels_added": labels[kept:] if kept else [],
    }


def continued_notes(cfg: FinetuneConfig, data: Labelled) -> Iterator[str]:
    if not cfg.head_labels:
        return
    kept, added = cfg.head_labels, data.labels[len(cfg.head_labels) :]
    more = f"; new labels: {', '.join(added)}" if added else "; no new labels"
    yield f"Continues the classifier {cfg.base}: labels kept: {', '.join(kept)}{more}."
    if absent := sorted(set(kept) - {e.label for e in data.train}):
        yield f"Note: no training rows for {', '.join(absent)}: a model forgets what it no longer sees. Add some rows of them."
    yield "Note: test rows that the classifier was trained on before are no test; check that there are none."
