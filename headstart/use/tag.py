"""Tags for new texts, from a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.targets.tags import Tags
from headstart.tasks.tag import probabilities_of, states_of
from headstart.text.files import PLAIN, Reading
from headstart.text.subwords import word_rows
from headstart.text.tagged import words_in
from headstart.use.predict import LoadedClassifier
from headstart.use.tagging import TaggedText, evaluate_tags, tag_texts


class LoadedTagger(LoadedClassifier):
    """A model that tags words; LoadedClassifier.load gives one where the run has tags."""

    @property
    def target(self) -> Tags:
        found = self.saved.head.target
        assert isinstance(found, Tags), "LoadedClassifier.load has made sure of the task"
        return found

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The probabilities of the tags of each word, (words, C), for each sentence."""
        saved, filled = self.saved, [" ".join(words) for words in sentences if words]
        if not filled:
            return [np.zeros((0, len(self.labels))) for _ in sentences]
        rows = word_rows(filled, saved.tokenizer, saved.config.causal, saved.model.base.max_len)
        found = probabilities_of(saved.model, states_of(saved.model, rows, saved.tokenizer.pad))
        ends = np.cumsum([len(words) for words in sentences])
        return np.split(found, ends[:-1])

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        """The number of the tag of each word, one row per text: what the outputs of tags are."""
        words = [[text[a:b] for a, b in words_in(text)] for text in texts]
        return [row.argmax(1).astype(float).tolist() if len(row) else [] for row in self.tag_words(words)]

    def predict(self, texts: Sequence[str]) -> list[TaggedText]:  # type: ignore[override]
        """Each text with the tags of its words."""
        return tag_texts(self.target, texts, self.tag_words)

    def evaluate(
        self, data: str | Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
    ) -> Any:
        """Scores on tagged sentences."""
        return evaluate_tags(self.target, self.tag_words, data, text_column, label_column, reading)
