"""The arm zero-shot: a language model that is asked in words, and trained on nothing. Torch is loaded when it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.data import LabelledConfig
from headstart.errors import ConfigError
from headstart.prompts import CALIBRATED_ON, Prompt, prompts_for
from headstart.study.baseline import Baseline
from headstart.study.baselines import write_cell
from headstart.text.split import split_labelled

if TYPE_CHECKING:
    from torch import Tensor


def write_zero_shot(
    cfg: LabelledConfig,
    base: str,
    templates: Sequence[str],
    words: Mapping[str, str],
    finetune: Mapping[str, Any],
    path: Path,
) -> None:
    """The label words that `base` expects after the test rows, as a cell: predictions.jsonl and result.json in `path`."""
    from headstart.bases.linear_probe import rows_to_fit
    from headstart.tasks.zero_shot import word_biases, zero_shot_logits

    began, data = time.perf_counter(), split_labelled(cfg)
    causal, score = word_scorer(base, finetune)
    prompts = prompts_for(data.labels, causal, templates, words)
    unlabelled = [e.text for e in [*data.train, *data.valid]]
    unlabelled = [unlabelled[i] for i in rows_to_fit(len(unlabelled), CALIBRATED_ON)]
    biases, seen = word_biases(score, prompts, unlabelled)
    logits = zero_shot_logits(score, prompts, [e.text for e in data.test], biases)
    outputs = logits.double().softmax(1).cpu().numpy()
    asked = {
        "prompts": [p.model_dump() for p in prompts],
        "calibrated_on": len(unlabelled),
        "biases": biases.tolist(),
        "spread": max(1e-6, float((seen - seen.mean(1, keepdim=True)).std(correction=0))),  # of these texts' logits
    }
    write_cell(data, Baseline("zero-shot", data.target, outputs, time.perf_counter() - began, chosen=asked), path)


def word_scorer(base: str, finetune: Mapping[str, Any]) -> tuple[bool, Callable[[Sequence[str], Prompt], Tensor]]:
    """Whether a base is causal, and what scores the label words of a prompt after texts, (N, C)."""
    from headstart.bases.at_hand import knows_words
    from headstart.bases.pretrained import open_base, within
    from headstart.tasks.zero_shot import word_scores

    saved = open_base(base, bool(finetune.get("allow_pickle")))
    if not knows_words(saved, base):
        raise ConfigError(
            f"{base} has no language head, which the arm zero-shot needs. Leave out the arm, or the base."
        )
    saved.model.base.max_len = within(saved.config, finetune.get("context", 0)).context
    device, long = finetune.get("train", {}).get("device", "cpu"), finetune.get("long", "truncate")
    return saved.config.causal, partial(word_scores, saved.model.to(device), saved.tokenizer, long=long, device=device)
