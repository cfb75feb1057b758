"""A tagger out of an .onnx file that `headstart export` wrote. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import softmax
from headstart.targets.tags import Tags
from headstart.text.subwords import word_rows
from headstart.use.onnx import AT_ONCE, OnnxClassifier
from headstart.use.tagging import TaggedText, tag_texts


class OnnxTagger(OnnxClassifier):
    target: Tags

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The probabilities of the tags of each word, (words, C), for each sentence."""
        filled = [" ".join(words) for words in sentences if words]
        words = word_rows(filled, self.tokenizer, self.facts["causal"], self.facts["context"])
        found = np.zeros((len(words.row), len(self.labels)))
        order = np.argsort(words.rows.lengths, kind="stable")
        for i in range(0, len(order), AT_ONCE):
            part = np.sort(order[i : i + AT_ONCE])
            logits = self._logits([words.rows[int(n)] for n in part])  # (B, T, C)
            chosen = np.flatnonzero(np.isin(words.row, part))
            found[chosen] = logits[np.searchsorted(part, words.row[chosen]), words.at[chosen]]
        return np.split(softmax(found), np.cumsum([len(words) for words in sentences])[:-1])

    def predict(self, texts: Sequence[str]) -> list[TaggedText]:  # type: ignore[override]
        """Each text with the tags of its words."""
        return tag_texts(self.target, texts, self.tag_words)
