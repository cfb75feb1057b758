"""Tags of words as a scikit-learn estimator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from headstart.errors import DataError, UserError
from headstart.quantities import counted
from headstart.targets.tags import are_iob, as_iob2
from headstart.use.estimator import RunFolder
from headstart.use.tag import LoadedTagger
from headstart.use.task_estimators import OneTask


class TokenTagger(OneTask):
    """A tag for each word, on a base. X are sentences as lists of words, y the lists of their tags.

    Tags of entities may be in any scheme; predicted ones are IOB2.
    """

    _task = "tag"

    def fit(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Self:
        """Learn from sentences; a fifth of them, from 200 on, picks the best epoch."""
        sentences, tags = words_of(X, "X"), words_of(y, "y")
        for i, (words, own) in enumerate(zip(sentences, tags, strict=False)):
            if len(words) != len(own):
                raise DataError(f"X[{i}] has {counted(len(words), 'word')}, y[{i}] {counted(len(own), 'tag')}.", "DATA_LABEL")  # fmt: skip
        if len(sentences) != len(tags):
            raise UserError(f"{counted(len(sentences), 'sentence')} and {counted(len(tags), 'row')} of tags: there must be one for each.")  # fmt: skip
        folder = RunFolder()
        assert folder.own is not None
        file = folder.own / "rows.jsonl"
        rows = ({"tokens": words, "tags": own} for words, own in zip(sentences, tags, strict=True))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        self._train(folder, str(file), len(sentences), self._task, {})
        self._use(folder)
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence."""
        return [self.tagger_.target.written(row.argmax(1)) for row in self._rows(X)]

    def predict_proba(self, X: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """For each sentence a matrix, one row a word, one column a tag, in the order of `classes_`."""
        return self._rows(X)

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """Entity F1 as seqeval has it; token accuracy of tags that mark no entities."""
        tags = [" ".join(as_iob2(row) if are_iob(self.classes_.tolist()) else row) for row in words_of(y, "y")]
        target = self.tagger_.target.wide_enough(tags)
        said = target.encode([" ".join(row) for row in self.predict(X)])
        return float(target.scores(target.encode(tags), said)[target.leading(tags)])

    def _rows(self, X: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        check_is_fitted(self, "model_")
        return self.tagger_.tag_words(words_of(X, "X"))

    def _use(self, folder: RunFolder) -> None:
        super()._use(folder)
        assert isinstance(self.model_, LoadedTagger)
        self.tagger_, self.classes_ = self.model_, np.array(self.model_.target.names)


def words_of(rows: Sequence[Any], name: str) -> list[list[str]]:
    """Rows of words, if that is what they are."""
    for i, row in enumerate(rows):
        if isinstance(row, str) or not all(isinstance(word, str) and word.strip() for word in row):
            raise DataError(f"{name}[{i}] is no list of words, such as ['Ada', 'wrote'].", "DATA_TEXT")
        if not len(row):
            raise DataError(f"{name}[{i}] is empty.", "DATA_BLANK")
    return [["\u00a0".join(word.split()) for word in row] for row in rows]
