"""A base and TF-IDF joined: by their features in one regression (hybrid), or by their scores (stack). Torch is loaded by hybrid alone.

Both are arms for comparison: they write what they predict of the test rows, as a baseline does, and no model.

hybrid: the TF-IDF vector of a text, of length 1, beside what the frozen base makes of it, standardized and divided by the
root of its width, so that it has the length 1 on average. The two are weighted so that a row has the length 1 whatever the share of
the base in it, and one C suits all shares. Share and C are those that make the labels of held-out rows most likely.

stack: the scores of the tuned model and of TF-IDF, both trained on the training rows, in a log-linear pool (Genest and
Zidek, 1986): p(c) is proportional to p1(c)^a p2(c)^b. The exponents are fitted to the validation rows by a conditional logistic
regression with a penalty that draws them to 1/2; below 200 labels there are no validation rows, and they are 1/2.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import hstack, issparse
from scipy.special import logsumexp

from headstart.bases.regression import Regression, Standard
from headstart.bases.span import in_span
from headstart.config import FinetuneConfig
from headstart.errors import ModelError
from headstart.study.arms import ARMS
from headstart.study.baseline import Baseline
from headstart.study.baselines import CS, USUAL_C, decided, fit_parts, fit_tfidf, likelihood, tfidf_rows, weights_on
from headstart.study.plan import Cell, StudyConfig, finetuning
from headstart.study.taken import read_predictions
from headstart.text.read import Example
from headstart.text.split import Labelled

USUAL_SHARE, SHARES = 0.5, (0.1, 0.3, 0.5, 0.7, 0.9)  # of the base in the squared length of a row; those that are tried
VALID_PREDICTIONS = "valid_predictions.jsonl"  # of a fine-tuned cell
PENALTY = 1.0  # on the squared distance of an exponent from 1/2
SMALLEST = 1e-6  # probability

Scores = NDArray[np.float64]  # (M, N, C): log-probabilities by M models of N rows and C classes


def hybrid(cfg: StudyConfig, cell: Cell, data: Labelled, out: Path) -> Baseline:
    """Logistic regression on TF-IDF and on what the frozen base makes of the texts, pooled as in the frozen arm."""
    from headstart.jobs.finetune import Finetuning
    from headstart.jobs.job import Kept
    from headstart.models.heads import ClassHead
    from headstart.runs.watch import Watch

    began = time.perf_counter()
    job = Finetuning.prepare(frozen_settings(cfg, cell, out), Kept(), Watch())
    assert job.text.features is not None, "a frozen base has features"
    assert isinstance(job.model.head, ClassHead), "a classifier has one"
    states = {name: job.text.features([e.text for e in rows]).numpy() for name, rows in data.parts().items() if rows}
    importance = dict(enumerate(job.model.head.weights.tolist()))
    ngrams = tfidf_rows(data)
    share, found, rows = fit_hybrid(data, in_span(ngrams), states, importance)
    size = weights_on(found, rows) * (ngrams["train"].shape[1] + states["train"].shape[1])
    seconds = time.perf_counter() - began
    chosen = {"share": share, "pool": job.cfg.pool}
    return Baseline("hybrid", *decided(data, found, rows), seconds, found.c, size, chosen)


def frozen_settings(cfg: StudyConfig, cell: Cell, out: Path) -> FinetuneConfig:
    """Those of the frozen arm on the same base and rows, in the study `out`."""
    frozen = replace(cell, arm=replace(cell.arm, kind="frozen"), rate=ARMS["frozen"].rates[0])
    return finetuning(cfg, frozen, (out / "features").absolute(), "accuracy")


def fit_hybrid(
    data: Labelled,
    words: Mapping[str, Any],
    states: Mapping[str, Any],
    importance: Mapping[int, float],
    cs: Sequence[float] = CS,
) -> tuple[float, Regression, dict[str, Any]]:
    """The share of the base, the regression, and the rows of each part as it takes them; without `cs` nothing is chosen."""
    standard = Standard.of(states["train"])

    def joined(share: float) -> dict[str, Any]:
        return {
            name: beside(np.sqrt(1 - share) * part, np.sqrt(share) * standard.unit(states[name]))
            for name, part in words.items()
        }

    likely: dict[tuple[float, float], float] = {}
    for share in SHARES if cs else ():
        rows = joined(share)
        tried = {c: likelihood(data, rows, c, importance) for c in cs}
        likely |= {(share, c): float(found.mean()) for c, found in tried.items() if len(found)}
    share, c = max(likely, key=likely.__getitem__, default=(USUAL_SHARE, USUAL_C))
    rows = joined(share)
    return share, fit_parts(data, rows, (), c, importance), rows


def beside(words: Any, states: Any) -> Any:
    """Both kinds of features of each row; sparse where those of the words are."""
    return hstack([words, states], "csr") if issparse(words) else np.hstack([words, states])


def stack(cfg: StudyConfig, cell: Cell, data: Labelled, out: Path) -> Baseline:
    """The scores of the fine-tuned model of the same base, labels and seed, and those of TF-IDF, in a log-linear pool."""
    began = time.perf_counter()
    path = out / "cells" / scored(cell).name
    if not (path / "result.json").exists():
        raise ModelError(f"stack takes the scores of {path.name}, which is not finished.", "RUN_UNFINISHED")
    found, rows, _ = fit_tfidf(data)

    def scores(part: str, examples: Sequence[Example], file: str) -> Scores:
        _, tuned = read_predictions(path, data.target, len(examples), file)
        return np.log(np.maximum(np.array([tuned, found.outputs(rows[part], data.target)]), SMALLEST))

    exponents = np.full(2, 0.5)
    if data.valid:
        target = data.target.encode([e.label for e in data.valid])
        exponents = fit_pool(scores("valid", data.valid, VALID_PREDICTIONS), target)
    pooled = np.exp(log_linear(scores("test", data.test, "predictions.jsonl"), exponents))
    fitted = {"exponents": dict(zip(("full", "tfidf"), exponents.tolist(), strict=True))}
    return Baseline("stack", data.target, pooled, time.perf_counter() - began, None, 2 if data.valid else 0, fitted)


def scored(cell: Cell) -> Cell:
    """The cell whose scores one of stack, or of ensemble, takes."""
    arm = replace(cell.arm, kind=cell.arm.row.after)
    if cell.arm.asked is None:
        return replace(cell, arm=arm)
    return Cell(replace(arm, base=cell.arm.asked, asked=None), None, 0)


def log_linear(scores: Scores, exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log-probabilities of the pool, (N, C).

    >>> even = np.log([[[0.8, 0.2]], [[0.5, 0.5]]])
    >>> np.exp(log_linear(even, np.array([1.0, 1.0]))).round(3).tolist()
    [[0.8, 0.2]]
    """
    joined = np.tensordot(exponents, scores, axes=1)
    return joined - logsumexp(joined, axis=1, keepdims=True)


def fit_pool(scores: Scores, target: NDArray[np.int64], penalty: float = PENALTY) -> NDArray[np.float64]:
    """The exponents, (M,), under which the classes of some rows are most probable, with a penalty away from 1/M."""
    even = np.full(len(scores), 1 / len(scores))
    rows = np.arange(len(target))

    def loss(exponents: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        pooled = log_linear(scores, exponents)
        slope = (np.exp(pooled) * scores).sum((1, 2)) - scores[:, rows, target].sum(1) + penalty * (exponents - even)
        return float(-pooled[rows, target].sum() + penalty / 2 * np.square(exponents - even).sum()), slope

    return np.asarray(minimize(loss, even, jac=True, method="L-BFGS-B").x)
