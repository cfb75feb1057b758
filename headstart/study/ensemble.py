"""The arm ensemble: a linear probe on one base, and a language model that is asked in words, in a log-linear pool. Torch is loaded when it runs.

The two make different mistakes. Both scores are divided by their spread over unlabelled texts, and the exponents of the pool are
fitted to the training rows: the zero-shot scores have seen no label, those of the probe are out of fold. A penalty draws the exponents to
equal ones, which are as good with few labels and the better base; it gives way where one of the two is far behind. Measured in docs/log.md.

Like the arms of joined.py, it writes what it predicts of the test rows, and no model.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.bases.regression import FOLDS, Regression, Standard, linear_model, one_thread
from headstart.errors import ModelError
from headstart.prompts import Prompt
from headstart.runs.run import Run
from headstart.study.baseline import Baseline
from headstart.study.joined import SMALLEST, fit_pool, frozen_settings, log_linear, scored
from headstart.study.plan import Cell, StudyConfig
from headstart.study.taken import read_predictions
from headstart.study.zero_shot import word_scorer
from headstart.targets.target import Target
from headstart.text.split import Labelled

MOST_ASKED = 1000  # training rows that the language model reads, to fit the exponents
PROBE_C = 1.0  # of the probe, on features of length 1 on average
PENALTY = 10.0  # on the squared distance of an exponent from 1/2


def ensemble(cfg: StudyConfig, cell: Cell, data: Labelled, out: Path) -> Baseline:
    """The pool of zero-shot and of a linear probe on the features of the frozen base, pooled as in the frozen arm."""
    from headstart.bases.linear_probe import rows_to_fit
    from headstart.jobs.finetune import Finetuning
    from headstart.jobs.job import Kept
    from headstart.runs.watch import Watch

    began, asked = time.perf_counter(), Run(out / "cells" / scored(cell).name)
    if not asked.finished:
        raise ModelError(f"ensemble takes the scores of {asked.path.name}, which is not finished.", "RUN_UNFINISHED")
    known, target = asked.read_json("result.json"), data.target
    if "biases" not in known:
        raise ModelError(
            f"{asked.path} was written by an earlier version, without what ensemble needs. Delete the folder; the same "
            "command makes it again.",
            "RUN_VERSION",
        )
    job = Finetuning.prepare(frozen_settings(cfg, cell, out), Kept(), Watch())
    assert job.text.features is not None, "a frozen base has features"
    labels = target.encode([e.label for e in data.train])
    texts = {"train": [e.text for e in data.train], "seen": list(job.unlabelled), "test": [e.text for e in data.test]}
    states = {name: job.text.features(part).numpy() for name, part in texts.items()}
    standard = Standard.of(states["train"])
    rows = {name: standard.unit(part) for name, part in states.items()}
    probe, held_out = fit_probe(target, rows["train"], labels)
    spread = _spread(_logs(probe.outputs(rows["seen"], target)))
    told = np.log(np.maximum(read_predictions(asked.path, target, len(data.test))[1], SMALLEST))
    exponents = np.full(2, 0.5)
    if held_out is not None:
        read = rows_to_fit(len(labels), MOST_ASKED)
        words = _asked_in_words(cfg, cell, known, [texts["train"][i] for i in read])
        both = np.array([_centred(words) / known["spread"], held_out[read] / _spread(held_out)])
        exponents = fit_pool(both, labels[read], PENALTY)
    test = np.array([_centred(told) / known["spread"], _logs(probe.outputs(rows["test"], target)) / spread])
    chosen = {
        "exponents": dict(zip(("zero-shot", "probe"), exponents.tolist(), strict=True)),
        "pool": job.cfg.pool,
    }
    size, seconds = int(probe.model.coef_.size) + len(exponents), time.perf_counter() - began
    return Baseline("ensemble", target, np.exp(log_linear(test, exponents)), seconds, None, size, chosen)


def fit_probe(target: Target, rows: Any, labels: NDArray[Any]) -> tuple[Regression, NDArray[np.float64] | None]:
    """A logistic regression, and its centred out-of-fold log-probabilities, (N, C); none where a class has a single row."""
    from sklearn.model_selection import StratifiedKFold

    def fitted(to: Any) -> Regression:
        return Regression(PROBE_C, linear_model("classify", PROBE_C, len(target.names)).fit(rows[to], labels[to]), np.zeros(0))  # fmt: skip

    rarest = int(np.unique(labels, return_counts=True)[1].min())
    with one_thread():
        if rarest < 2:
            return fitted(slice(None)), None
        found = np.zeros((len(labels), len(target.names)))
        for train, held_out in StratifiedKFold(min(FOLDS, rarest), shuffle=True, random_state=0).split(labels, labels):
            found[held_out] = _logs(fitted(train).outputs(rows[held_out], target))
        return fitted(slice(None)), found


def _asked_in_words(cfg: StudyConfig, cell: Cell, known: Any, texts: list[str]) -> NDArray[np.float64]:
    """The zero-shot logits of texts, with the prompts and biases of the zero-shot arm, (N, C)."""
    import torch

    from headstart.tasks.zero_shot import zero_shot_logits

    assert cell.arm.asked is not None, "an ensemble has a language model"
    _, score = word_scorer(str(cell.arm.asked.path), cfg.finetune)
    prompts = [Prompt(**prompt) for prompt in known["prompts"]]
    return zero_shot_logits(score, prompts, texts, torch.tensor(known["biases"])).double().numpy()


def _logs(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return _centred(np.log(np.maximum(probabilities, SMALLEST)))


def _centred(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(scores - scores.mean(1, keepdims=True))


def _spread(centred: NDArray[np.float64]) -> float:
    return float(max(centred.std(), SMALLEST))
