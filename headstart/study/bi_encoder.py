"""The arm bi-encoder: each text of a pair read alone by a frozen base, in one regression. Torch is loaded when it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from headstart.bases.regression import Standard
from headstart.study.baseline import Baseline
from headstart.study.baselines import decided, fit_parts
from headstart.study.joined import frozen_settings
from headstart.study.pair_features import pair_vectors, sides_of
from headstart.study.plan import Cell, StudyConfig
from headstart.text.split import Labelled


def bi_encoder(cfg: StudyConfig, cell: Cell, data: Labelled, out: Path) -> Baseline:
    """Logistic regression on the embeddings of both texts of a pair, each read alone by the frozen base (Conneau et al., 2017)."""
    from headstart.bases.features import FrozenFeatures
    from headstart.jobs.finetune import Finetuning
    from headstart.jobs.job import Kept
    from headstart.runs.watch import Watch
    from headstart.shapes import usual_pool

    began = time.perf_counter()
    settings = frozen_settings(cfg, cell, out).model_copy(update={"fit_head": False, "pool": "mean"})
    job = Finetuning.prepare(settings, Kept(), Watch())
    parts = {name: [sides_of(e.text) for e in rows] for name, rows in data.parts().items() if rows}
    pool = usual_pool(job.cfg.model)
    groups = [[text for pair in pairs for text in pair] for pairs in parts.values()]
    read = FrozenFeatures(job.model, job.tokenizer, job.cfg, groups, [pool])

    def vectors(pairs: Sequence[tuple[str, str]]) -> NDArray[Any]:
        return pair_vectors(*(read(pool, [pair[side] for pair in pairs]).numpy() for side in (0, 1)))

    raw = {name: vectors(pairs) for name, pairs in parts.items()}
    standard = Standard.of(raw["train"])
    rows = {name: standard.unit(part) for name, part in raw.items()}
    found = fit_parts(data, rows)
    seconds, size = time.perf_counter() - began, int(found.model.coef_.size)
    return Baseline("bi-encoder", *decided(data, found, rows), seconds, found.c, size, {"pool": pool})
