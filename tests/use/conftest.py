"""Finished runs to look into: a causal and a masked language model, a tuned and a frozen classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart.config import FinetuneConfig, PretrainConfig
from headstart.jobs.finetune import finetune
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
ROWS = [
    (f"film {i // 2} was {(GOOD if i % 2 else BAD)[i // 2 % 4]} from end to end", "positive" if i % 2 else "negative")
    for i in range(80)
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("looked")
    corpus, table = folder / "corpus.txt", folder / "reviews.csv"
    corpus.write_text("\n".join(text for text, _ in ROWS), "utf-8")
    table.write_text("\n".join(["text,label", *(f"{t},{label}" for t, label in ROWS)]), "utf-8")
    train = {"batch_size": 8, "threads": 1, "tensorboard": False, "lr": 3e-3}
    common: dict[str, Any] = {
        "data": {"paths": [str(corpus)], "unit": "line"}, "train": {**train, "steps": 40, "eval_every": 40},
        "samples": [], "tokenizer": {"kind": "word"},
    }  # fmt: skip
    shape = {"layers": 2, "heads": 2, "width": 16, "ff": 32, "context": 32}
    pretrain(parse(PretrainConfig, {**common, "model": shape}), folder / "lm")
    pretrain(parse(PretrainConfig, {**common, "model": shape, "objective": "masked"}), folder / "mlm")
    for name, scope, epochs in (("full", "full", 16), ("frozen", "head", 3)):
        given = {
            "base": str(folder / "lm"),
            "data": {"train": str(table)},
            "train": {**train, "lr": 1e-3},
            "epochs": epochs,
            "scope": scope,
            "fit_head": False,  # so that what the base learns decides, and not what it was
            "pool": "last",
        }
        finetune(parse(FinetuneConfig, given), folder / name)
    return {name: folder / name for name in ("lm", "mlm", "full", "frozen", "corpus.txt", "reviews.csv")}
