"""What the models of a study were made from: the receipts of its cells, and the pretraining of its bases. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.runs.run import Run
from headstart.shapes import PRESETS
from headstart.study.results import Pretraining, Receipt
from headstart.study.taken import CellResult, Taken, result_of


def receipt_of(t: Taken) -> Receipt:
    """Of an arm, as its first seed wrote it."""
    receipt = Run(t.paths[0]).read_json("receipt.json")
    return Receipt(
        arm=t.arm.name,
        base=t.arm.base.name if t.arm.base else None,
        pool=receipt.get("pool"),
        objective=receipt.get("objective"),
        **{key: len(receipt.get(key, ())) for key in ("copied", "new", "frozen", "frozen_moved")},
        **{key: receipt.get(key, "") for key in ("base_sha256_before", "base_sha256_after")},
    )


def pretraining_of(name: str, path: Path) -> Pretraining | None:
    """How a base was pretrained; nothing of an external one."""
    if str(path) in PRESETS or not Run(path).there:  # not pretrained, or external
        return None
    result, config = result_of(path) or CellResult(), Run(path).config
    facts: dict[str, Any] = {key: getattr(config, key, None) for key in ("objective", "vectors")}
    facts |= {key: result.get(key) for key in ("seconds", "preparing_seconds", "tokens", "parameters")}
    return Pretraining(name=name, run=str(path), valid_loss=(result.get("valid") or {}).get("loss"), **facts)
