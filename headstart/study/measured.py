"""A cell of a study that is no run: a baseline, a linear model on a base, or a language model that is asked in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headstart.imported import imported
from headstart.study.baselines import write_cell
from headstart.study.plan import Cell, StudyConfig
from headstart.study.zero_shot import write_zero_shot
from headstart.text.split import draw, split_labelled


@dataclass(frozen=True)
class Measured:
    """Called with a folder, it writes predictions.jsonl and result.json there; `out` is the folder of the study."""

    cfg: StudyConfig
    cell: Cell
    out: Path

    def __call__(self, path: Path) -> None:
        cfg, arm, labels = self.cfg, self.cell.arm, self.cell.labels
        if arm.base is not None and labels is None:
            write_zero_shot(cfg.data, str(arm.base.path), cfg.prompts, cfg.label_words, cfg.finetune, path)
            return
        whole = split_labelled(cfg.data)
        data = draw(whole, labels, self.cell.seed, cfg.data.balanced) if labels else whole
        compute, own = imported(arm.row.made), [getattr(cfg, setting) for setting in arm.row.given]
        made = compute(cfg, self.cell, data, self.out) if arm.base else compute(data, *own)
        write_cell(data, made, path)
