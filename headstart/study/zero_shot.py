"""The arm zero-shot: a language model that is asked in words, and trained on nothing. Torch is loaded when it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headstart.data import LabelledConfig
from headstart.errors import ConfigError
from headstart.prompts import CALIBRATED_ON, prompts_for
from headstart.study.baseline import Baseline
from headstart.study.baselines import write_cell
from headstart.text.split import split_labelled


def write_zero_shot(
    cfg: LabelledConfig,
    base: str,
    templates: Sequence[str],
    words: Mapping[str, str],
    finetune: Mapping[str, Any],
    path: Path,
) -> None:
    """The label words that `base` expects after the test rows, as a cell: predictions.jsonl and result.json in `path`."""
    from headstart.bases.at_hand import is_distilled
    from headstart.bases.linear_probe import rows_to_fit
    from headstart.bases.pretrained import open_base, within
    from headstart.tasks.zero_shot import word_scores, zero_shot_logits

    began, data = time.perf_counter(), split_labelled(cfg)
    saved = open_base(base, bool(finetune.get("allow_pickle")))
    if saved.fresh or is_distilled(base):
        raise ConfigError(
            f"{base} has no language head, which the arm zero-shot needs. Leave out the arm, or the base."
        )
    prompts = prompts_for(data.labels, saved.config.causal, templates, words)
    texts = [e.text for e in data.test]
    unlabelled = [e.text for e in [*data.train, *data.valid]]
    unlabelled = [unlabelled[i] for i in rows_to_fit(len(unlabelled), CALIBRATED_ON)]
    saved.model.base.max_len = within(saved.config, finetune.get("context", 0)).context
    device, long = finetune.get("train", {}).get("device", "cpu"), finetune.get("long", "truncate")
    score = partial(word_scores, saved.model.to(device), saved.tokenizer, long=long, device=device)
    logits = zero_shot_logits(score, prompts, texts, unlabelled)
    outputs = logits.double().softmax(1).cpu().numpy()
    asked = {"prompts": [p.model_dump() for p in prompts], "calibrated_on": len(unlabelled)}
    write_cell(data, Baseline("zero-shot", data.target, outputs, time.perf_counter() - began, chosen=asked), path)
