"""The classifier of a labelling session: a logistic regression on features that are computed once. No torch.

Shapes: N rows, D width, C classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.labelling.features import Features, scaled

C = 10.0  # inverse regularization, of vectors of mean length 1: of 1, 10 and 100 the best in docs/log.md

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Classifier:
    """Fits and predicts rows of one pool."""

    def __init__(self, features: Features, classes: int) -> None:
        self.classes, self.words = classes, features.words.astype(np.float64)
        self.inputs: NDArray[np.float32] = features.vectors
        if self.words.size:  # the zero-shot answer is one more feature for each class
            logs = np.log(np.maximum(self.words, 1e-6))
            self.inputs = np.hstack([self.inputs, scaled(logs - logs.mean(0))])

    def fit(self, rows: Sequence[int], targets: Sequence[int]) -> Any:
        """A model of labelled rows; None, where they are of one class or of none."""
        if len(set(targets)) < 2:
            return None
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of slow convergence
            return LogisticRegression(C=C, max_iter=200).fit(self.inputs[list(rows)], list(targets))

    def probabilities(self, model: Any, rows: Sequence[int] | slice = slice(None)) -> Floats | None:
        """Of some rows, (rows, C); without a model those of the zero-shot answer, or None."""
        if model is None:
            return self.words[rows] if self.words.size else None
        inputs = self.inputs[rows]
        found = np.zeros((len(inputs), self.classes))
        found[:, model.classes_] = model.predict_proba(inputs)
        return found

    def predicted(self, model: Any, rows: Sequence[int], usual: int) -> Ints:
        """The class of some rows; without a model the `usual` one."""
        found = self.probabilities(model, list(rows))
        return np.full(len(rows), usual) if found is None else found.argmax(1)
