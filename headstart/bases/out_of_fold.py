"""Out-of-fold outputs: for each row, those of models that were fitted without it and without its duplicates.

A model is one function: it takes the numbers of the rows to fit and of the rows to predict, and answers with the outputs for the latter under each of
its settings: probabilities, or a number. Of these, the setting is kept under which the labels of all rows are most probable, or the squared error least.

Shapes: N rows, K outputs, D width.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.bases.label_errors import LEAST, Ints
from headstart.bases.linear_probe import must_be_finite
from headstart.bases.regression import Regression, Standard, linear_model, one_thread
from headstart.bases.routes import NONE, BaseFeatures
from headstart.bases.verbalizer import prompted_probe
from headstart.shapes import Pool
from headstart.targets.labels import Labels
from headstart.targets.target import Encoded, Outputs, Target
from headstart.text.digests import digest
from headstart.text.duplicates import normal

FOLDS = 5
TFIDF_CS = (10.0,)
TFIDF_CS_OF_NUMBERS = (0.1, 1.0, 10.0)
MOST_WORDS = 30_000  # words and pairs of words of TF-IDF, the most frequent ones: more take minutes and change little
# Of linear probes: more regularization than for a classifier, as wrong labels are not to be fitted.
CS = (0.001, 0.003, 0.01)

Fit = Callable[[Ints, Ints], Mapping[Hashable, Outputs]]


def fold_numbers(texts: Sequence[str], labels: Ints, seed: int, folds: int = FOLDS) -> Ints:
    """The fold of each row, (N,): classes, or other strata, in equal shares, duplicates together, by a hash of the text."""
    keys = [normal(text) for text in texts]
    own: dict[str, int] = {}
    for key, label in zip(keys, labels.tolist(), strict=True):
        own[key] = min(
            label, own.get(key, label)
        )  # of contradicting duplicates, not the first: that depends on the order
    classes: dict[int, list[str]] = defaultdict(list)
    for key in sorted(own, key=lambda key: digest(str(seed), key)):
        classes[own[key]].append(key)
    fold = {key: (i + label) % folds for label, members in classes.items() for i, key in enumerate(members)}
    return np.array([fold[key] for key in keys])


def out_of_fold(fit: Fit, target: Target, truth: Encoded, folds: Ints) -> Outputs:
    """The outputs for each row under the setting that fits the labels best, (N, K)."""
    found: dict[Hashable, Outputs] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence: this only ranks
        for fold in np.unique(folds):
            train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            for setting, part in fit(train, test).items():
                found.setdefault(setting, np.zeros((len(truth), len(target.names))))[test] = part
    return min(found.values(), key=lambda outputs: misfit(target, truth, outputs))


def misfit(target: Target, truth: Encoded, outputs: Outputs) -> float:
    """How badly outputs fit the labels: the negative log-likelihood; of numbers the squared error."""
    if target.numeric:
        return float(np.square(outputs[:, 0] - truth).mean())
    if isinstance(target, Labels):
        likely = np.where(truth.astype(bool), outputs, 1 - outputs)
    else:
        likely = outputs[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(likely, LEAST)).mean())


def tfidf_model(texts: Sequence[str], target: Target, truth: Encoded) -> Fit:
    """The linear model of the task on words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Outputs]:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_WORDS)
        known = vectorizer.fit_transform([texts[i] for i in train])
        unknown = vectorizer.transform([texts[i] for i in test])
        cs = TFIDF_CS_OF_NUMBERS if target.numeric else TFIDF_CS
        return {c: _outputs(known, truth[train], unknown, c, target) for c in cs}

    return fit


def probe_model(vectors: Mapping[Pool, NDArray[np.float32]], target: Target, truth: Encoded) -> Fit:
    """The linear model of the task on the features of a frozen base, under each pooling."""

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Outputs]:
        found: dict[Hashable, Outputs] = {}
        for pool, rows in vectors.items():
            with np.errstate(over="ignore", invalid="ignore"):  # reported below
                standard = Standard.of(rows[train])
                known, unknown = standard(rows[train]), standard(rows[test])
            must_be_finite(known, unknown)
            for c in CS:
                found[pool, c] = _outputs(known, truth[train], unknown, c, target)
        return found

    return fit


def prompted_model(features: BaseFeatures, labels: Ints) -> Fit:
    """A linear probe on the prompted text, beside the scores of the label words."""

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Outputs]:
        probe = prompted_probe(features.word_head, (features.prompted[train], labels[train].tolist()), NONE)
        logits = features.prompted[test].numpy() @ probe.weight.T + probe.bias
        return {"prompt": torch.from_numpy(logits).softmax(1).double().numpy()}

    return fit


def _outputs(known: Any, truth: Encoded, unknown: Any, c: float, target: Target) -> Outputs:
    """For some rows, (rows, K); of a class that no known row has, the probability 0."""
    with one_thread():
        model = linear_model(target.task, c, len(target.names), most_steps=300).fit(known, truth)
    return Regression(c, model, np.zeros(0)).outputs(unknown, target)
