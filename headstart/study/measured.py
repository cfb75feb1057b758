"""A cell of a study that is no run: a baseline, a joined arm, or a language model that is asked in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headstart.study.baselines import write_baseline
from headstart.study.joined import write_joined
from headstart.study.plan import Cell, StudyConfig
from headstart.study.zero_shot import write_zero_shot


@dataclass(frozen=True)
class Measured:
    """Called with a folder, it writes predictions.jsonl and result.json there; `out` is the folder of the study."""

    cfg: StudyConfig
    cell: Cell
    out: Path

    def __call__(self, path: Path) -> None:
        cfg, arm, labels = self.cfg, self.cell.arm, self.cell.labels
        if arm.base is None:
            write_baseline(cfg, arm.kind, labels or 0, self.cell.seed, path)
        elif labels is None:
            write_zero_shot(cfg.data, str(arm.base.path), cfg.prompts, cfg.label_words, cfg.finetune, path)
        else:
            write_joined(cfg, self.cell, self.out, path)
