"""Numbers and several labels per text as scikit-learn estimators, beside TextClassifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from headstart.errors import DataError, UserError
from headstart.task import Task
from headstart.use.estimator import LanguageModel, OnBase, RunFolder, checked
from headstart.use.predict import LoadedClassifier


class OneTask(OnBase):
    """A base and a head for one task."""

    _task: Task

    def __init__(
        self,
        base: LanguageModel | str = "gpt",
        train: str = "full",
        epochs: int = 10,
        lr: float = 0.0,
        batch_size: int = 16,
        pool: str | None = None,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.base, self.train, self.epochs, self.lr, self.batch_size = base, train, epochs, lr, batch_size
        self.pool, self.seed, self.settings = pool, seed, settings

    def _fit(self, X: Sequence[str], cells: Sequence[str]) -> None:
        folder = RunFolder()
        self._train(folder, folder.rows(X, cells), len(X), self._task, {})
        self._use(folder)

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """The model of a run, or one that `save` wrote."""
        model = cls()
        model._use(RunFolder(Path(run)))
        return model

    def _use(self, folder: RunFolder) -> None:
        found = LoadedClassifier.load(folder.run)
        if found.target.task != self._task:
            raise UserError(f"The task of this run is {found.target.task}, not {self._task}.")
        self.folder_, self.model_ = folder, found

    def _outputs(self, X: Sequence[str]) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        return np.array(self.model_.probabilities(checked(X))).reshape(-1, len(self.model_.target.names))


class TextRegressor(RegressorMixin, OneTask):  # type: ignore[misc]
    """A number for each text, on a base: a LanguageModel, a run, minilm, a folder, hf:NAME, or a preset."""

    _task = "regression"

    def fit(self, X: Sequence[str], y: Sequence[float]) -> Self:
        """Learn from rows; a fifth of them, from 200 on, picks the best epoch."""
        numbers = np.asarray(y, dtype=np.float64)
        if not np.isfinite(numbers).all():
            i = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise DataError(f"y[{i}] is {numbers[i]}: every row needs a number.", "DATA_LABEL")
        self._fit(X, [repr(float(number)) for number in numbers])
        return self

    def predict(self, X: Sequence[str]) -> NDArray[np.float64]:
        return self._outputs(X)[:, 0]


class MultiLabelClassifier(ClassifierMixin, OneTask):  # type: ignore[misc]
    """Any number of labels for each text. y is a list of lists of names, or a matrix of 0 and 1 with a column per label."""

    _task = "multilabel"

    def fit(self, X: Sequence[str], y: Sequence[Sequence[Any]] | NDArray[Any]) -> Self:
        """Learn from rows; a fifth of them, from 200 on, picks the best epoch and the thresholds."""
        matrix = np.asarray(y) if isinstance(y, np.ndarray) else None
        if matrix is not None and (matrix.ndim != 2 or not np.isin(matrix, (0, 1)).all()):
            raise DataError("y: a matrix of 0 and 1 is needed, a row per text and a column per label.", "DATA_LABEL")
        rows = y if matrix is None else [np.flatnonzero(row).tolist() for row in matrix]
        if any(isinstance(row, str) for row in rows):
            raise DataError("y: each row is a list of labels, such as ['a', 'b'].", "DATA_LABEL")
        self._numbered = matrix is not None
        self._fit(X, [json.dumps([str(label) for label in row]) for row in rows])
        names = self.model_.target.names
        order = sorted(range(len(names)), key=lambda i: int(names[i])) if self._numbered else list(range(len(names)))
        self._order, self.classes_ = order, np.array([int(names[i]) if self._numbered else names[i] for i in order])
        return self

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:
        """One row a text, one column a label, in the order of `classes_`."""
        return self._outputs(X)[:, self._order]

    def predict(self, X: Sequence[str]) -> NDArray[np.int64]:
        """A matrix of 0 and 1, a column per label in the order of `classes_`, by the thresholds of the model."""
        return self.model_.target.answers(self._outputs(X)).astype(np.int64)[:, self._order]

    def _use(self, folder: RunFolder) -> None:
        super()._use(folder)
        names = self.model_.target.names
        self._order, self.classes_ = list(range(len(names))), np.array(names)
