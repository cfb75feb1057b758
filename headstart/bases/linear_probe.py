"""Linear probing, then fine-tuning (LP-FT): the head starts from a linear probe on the frozen base.

Fine-tuning with a random head distorts pretrained features (Kumar et al., 2022). Here the head starts from a logistic
regression on the pooled states. The same probe compares poolings: which one is better depends on the base and the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.bases.ordinal import CumulativeLogit
from headstart.bases.regression import ENOUGH, FOLDS, Hits, Standard, clearly_better, fit_regression
from headstart.errors import ModelError
from headstart.models.heads import HEADS, ClassHead, OrderedHead
from headstart.shapes import Pool
from headstart.text.split import SELECTED_FROM

CS = (0.001, 0.01, 0.1, 1.0)  # inverse regularization, of standardized features
USUAL_C = 0.01
FITTING = 5e-3, 5e-8  # seconds of one logistic regression: at least, and for each row x feature x class
KEPT = 16  # probes of a process: some kilobytes each
_FITTED: dict[bytes, Probe] = {}  # by what they were fitted to
MOST_ROWS = 10_000  # that the regression is given; more take minutes and change little

Rows = tuple[Tensor, NDArray[Any]]  # vectors (rows, D), and their encoded labels


@dataclass(frozen=True)
class Probe:
    """A fitted linear probe under one pooling."""

    pool: Pool
    c: float
    weight: NDArray[np.float64]  # (outputs, D)
    bias: NDArray[np.float64]  # (outputs,); of ordered classes, the cuts
    hits: Hits  # of held-out rows

    @property
    def accuracy(self) -> float | None:
        """On held-out rows, or what stands for it; None where there were too few to hold any out."""
        return float(self.hits.mean()) if len(self.hits) else None


def rows_to_fit(count: int, most: int | None = None) -> list[int]:
    """The numbers of the rows that a probe is given: all, or a sample from everywhere, as files are often sorted."""
    return sorted(np.random.default_rng(0).permutation(count)[: most or MOST_ROWS].tolist())


def probing_seconds(train: int, valid: int, width: int, labels: int) -> float:
    """Approximate time of all logistic regressions of one probe, given the features."""
    least, each = FITTING
    size = min(train, MOST_ROWS) * width * (labels if labels > 2 else 1)
    return (len(CS) * (FOLDS if valid < ENOUGH else 1) + 1) * (least + each * size)


def fit_probes(head: ClassHead, pools: Sequence[Pool], rows: Callable[[Pool], tuple[Rows, Rows]]) -> tuple[Probe, ...]:
    """A probe for each pooling, from its training and validation rows; none where a class has no training rows."""
    probes = []
    for pool in pools:
        train, valid = rows(pool)
        if type(head) is ClassHead and len(np.unique(train[1])) < max(2, head.linear.out_features):
            return ()
        probes.append(_fit_once(head, pool, train, valid))
    return tuple(probes)


def probe_poolings(
    head: ClassHead,
    pools: Sequence[Pool],
    features: Callable[[Pool, Sequence[str]], Tensor],
    train: tuple[Sequence[str], NDArray[Any]],
    valid: tuple[Sequence[str], NDArray[Any]],
) -> tuple[Probe, ...]:
    """A linear probe for each pooling, on the `features` of texts with their encoded labels."""
    fitted = rows_to_fit(len(train[0]))
    texts, targets = [train[0][i] for i in fitted], train[1][fitted]
    return fit_probes(
        head, pools, lambda pool: ((features(pool, texts), targets), (features(pool, valid[0]), valid[1]))
    )


def best_probe(probes: Sequence[Probe]) -> Probe:
    """The first, the base's own pooling, unless another is clearly better on held-out rows.

    By one standard error of the paired difference; with few rows by two, as so few choose badly.
    """
    own = probes[0]
    best = max(probes, key=lambda probe: -np.inf if probe.accuracy is None else probe.accuracy)
    errors = 1.0 if len(own.hits) >= SELECTED_FROM else 2.0
    return best if len(own.hits) and clearly_better(best.hits, own.hits, errors) else own


def install(head: ClassHead, probe: Probe) -> None:
    """Give `head` the weights of the probe."""
    _put(head.linear.weight, probe.weight)
    if isinstance(head, OrderedHead):
        _put(head.first, probe.bias[0])
        _put(head.gaps, np.log(np.diff(probe.bias)))
        return
    if head.linear.bias is not None:
        _put(head.linear.bias, probe.bias)


def _fit_once(head: ClassHead, pool: Pool, train: Rows, valid: Rows) -> Probe:
    """The same probe for the same rows: the cells of a study that differ in the learning rate alone begin with it."""
    key = sha256(f"{type(head).__name__} {pool} {head.linear.bias is not None} {CS}".encode())
    for part in (head.weights, *(part for rows in (train, valid) for part in rows)):
        values = np.ascontiguousarray(part.detach().cpu().numpy() if isinstance(part, Tensor) else part)
        key.update(f"{values.dtype} {values.shape}".encode() + values.tobytes())
    if key.digest() not in _FITTED:
        if len(_FITTED) == KEPT:
            del _FITTED[next(iter(_FITTED))]
        _FITTED[key.digest()] = _fit(head, pool, train, valid)
    return _FITTED[key.digest()]


def _fit(head: ClassHead, pool: Pool, train: Rows, valid: Rows) -> Probe:
    features, task = train[0].cpu().numpy(), next(task for task, kind in HEADS.items() if kind is type(head))
    biased = head.linear.bias is not None or task == "ordinal"
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        standard = Standard.of(features, centred=biased)  # only a bias can give back what is taken away
        fitted, held_out = standard(features), standard(valid[0].cpu().numpy()) if len(valid[1]) else None
    must_be_finite(standard.scale, fitted, held_out)
    found = fit_regression(
        (fitted, np.array(train[1])),
        None if held_out is None else (held_out, np.array(valid[1])),
        CS,
        USUAL_C,
        dict(enumerate(head.weights.tolist())) if task == "classify" else None,
        biased,
        task,
        len(head.weights),
    )
    weight, bias = (
        as_head(found.model) if task == "classify" else (np.atleast_2d(found.model.coef_), _bias(found.model))
    )
    weight = weight / standard.scale
    if isinstance(head, OrderedHead):  # the cuts stand where a bias would, on the other side
        return Probe(pool, found.c, weight, bias + weight @ standard.mean, found.hits)
    return Probe(pool, found.c, weight, bias - weight @ standard.mean, found.hits)


def must_be_finite(*features: NDArray[np.floating] | None) -> None:
    """Refuse features of which no regression can be made."""
    if not all(np.isfinite(part).all() for part in features if part is not None):
        raise ModelError("The features of the base are not finite, or far too large. Is the base damaged?")


def as_head(model: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight and bias of a fitted regression with a row for each class: of two, scikit-learn has one for the second."""
    weight, bias = model.coef_, model.intercept_
    return (weight, bias) if len(weight) > 1 else (np.vstack([-weight, weight]) / 2, np.hstack([-bias, bias]) / 2)


def _bias(model: Any) -> NDArray[np.float64]:
    return np.asarray(model.cuts_ if isinstance(model, CumulativeLogit) else np.atleast_1d(model.intercept_))


def _put(parameter: Tensor, values: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.asarray(values)))
