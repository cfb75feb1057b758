"""Out-of-fold probabilities: for each row, those of models that were fitted without it and without its duplicates.

A model is one function: it takes the numbers of the rows to fit and of the rows to predict, and answers with the probabilities of the latter under each of
its settings. Of these, the setting is kept under which the labels of all rows are most probable.

Shapes: N rows, C classes, D width.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.bases.label_errors import LEAST, Floats, Ints
from headstart.bases.linear_probe import must_be_finite
from headstart.bases.regression import Standard
from headstart.bases.routes import NONE, BaseFeatures
from headstart.bases.verbalizer import prompted_probe
from headstart.shapes import Pool
from headstart.text.digests import digest
from headstart.text.duplicates import normal

FOLDS = 5
TFIDF_C = 10.0
MOST_WORDS = 30_000  # words and pairs of words of TF-IDF, the most frequent ones: more take minutes and change little
CS = (
    0.001,
    0.003,
    0.01,
)  # of linear probes: more regularization than for a classifier, as wrong labels are not to be fitted

Fit = Callable[[Ints, Ints], Mapping[Hashable, Floats]]


def fold_numbers(texts: Sequence[str], labels: Ints, seed: int, folds: int = FOLDS) -> Ints:
    """The fold of each row, (N,): classes in equal shares, duplicates together, by a hash of the text."""
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


def out_of_fold(fit: Fit, labels: Ints, classes: int, folds: Ints) -> Floats:
    """The probabilities of each row under the setting that makes the labels most probable, (N, C)."""
    found: dict[Hashable, Floats] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence: this only ranks
        for fold in np.unique(folds):
            train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            for setting, part in fit(train, test).items():
                found.setdefault(setting, np.zeros((len(labels), classes)))[test] = part
    rows = np.arange(len(labels))
    return min(found.values(), key=lambda p: -np.log(np.maximum(p[rows, labels], LEAST)).mean())


def tfidf_model(texts: Sequence[str], labels: Ints, classes: int) -> Fit:
    """Logistic regression on words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Floats]:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_WORDS)
        known = vectorizer.fit_transform([texts[i] for i in train])
        return {
            TFIDF_C: _regression(known, labels[train], vectorizer.transform([texts[i] for i in test]), TFIDF_C, classes)
        }

    return fit


def probe_model(vectors: Mapping[Pool, NDArray[np.float32]], labels: Ints, classes: int) -> Fit:
    """Logistic regression on the features of a frozen base, under each pooling."""

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Floats]:
        found: dict[Hashable, Floats] = {}
        for pool, rows in vectors.items():
            with np.errstate(over="ignore", invalid="ignore"):  # reported below
                standard = Standard.of(rows[train])
                known, unknown = standard(rows[train]), standard(rows[test])
            must_be_finite(known, unknown)
            for c in CS:
                found[pool, c] = _regression(known, labels[train], unknown, c, classes)
        return found

    return fit


def prompted_model(features: BaseFeatures, labels: Ints) -> Fit:
    """A linear probe on the prompted text, beside the scores of the label words."""

    def fit(train: Ints, test: Ints) -> Mapping[Hashable, Floats]:
        probe = prompted_probe(features.word_head, (features.prompted[train], labels[train].tolist()), NONE)
        logits = features.prompted[test].numpy() @ probe.weight.T + probe.bias
        return {"prompt": torch.from_numpy(logits).softmax(1).double().numpy()}

    return fit


def _regression(known: Any, labels: Ints, unknown: Any, c: float, classes: int) -> Floats:
    """The probabilities of some rows, (rows, C); 0 for a class that no known row has."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=c, max_iter=300).fit(known, labels)
    found = np.zeros((unknown.shape[0], classes))
    found[:, model.classes_] = model.predict_proba(unknown)
    return found
