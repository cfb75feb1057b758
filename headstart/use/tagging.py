"""Texts with their tags: words found in a text, tags and entities put back into it, and their scores. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import PerClassScores
from headstart.targets.tags import PADDING, Tags, entities
from headstart.targets.target import Scores
from headstart.text.files import PLAIN, Reading
from headstart.text.read import read_labelled
from headstart.text.split import must_be_readable
from headstart.text.tagged import words_in
from headstart.use.labels import LabelledText, known_rows

# Sentences as words; the probabilities of the tags of each word, (words, C), for each sentence.
TagWords = Callable[[Sequence[Sequence[str]]], list[NDArray[np.float64]]]


class FoundEntity(TypedDict):
    text: str
    label: str
    start: int  # characters of the text
    end: int
    probability: float  # the lowest of its words


class TaggedText(LabelledText):
    """`label` are the tags of `tokens`; of `probabilities` there are none."""

    tokens: list[str]
    tag_probabilities: list[float]
    entities: list[FoundEntity]


class TagEvaluation(TypedDict):
    task: str
    scores: Scores
    classes: dict[str, PerClassScores]  # by type of entity, or by tag


def tagged(target: Tags, text: str, words: Sequence[tuple[int, int]], rows: NDArray[np.float64]) -> TaggedText:
    """A text with the most probable tag of each word, and the entities that they mark."""
    best = rows.argmax(1) if len(words) else np.zeros(0, dtype=int)
    tags, sure = target.written(best), rows.max(1).tolist() if len(words) else []
    found: list[FoundEntity] = [
        {
            "text": text[words[first][0] : words[behind - 1][1]],
            "label": kind,
            "start": words[first][0],
            "end": words[behind - 1][1],
            "probability": min(sure[first:behind]),
        }
        for kind, first, behind in (entities(tags) if target.of_entities else ())
    ]
    return {
        "text": text,
        "label": list(tags),
        "probabilities": {},
        "tokens": [text[a:b] for a, b in words],
        "tag_probabilities": sure,
        "entities": found,
    }


def tag_texts(target: Tags, texts: Sequence[str], tag_words: TagWords) -> list[TaggedText]:
    """Texts with the tags of the words that are found in them."""
    if isinstance(texts, str):
        raise TypeError("texts is a list of texts; for one text give [text]")
    words = [words_in(text) for text in texts]
    rows = tag_words([[text[a:b] for a, b in spans] for text, spans in zip(texts, words, strict=True)])
    return [tagged(target, *each) for each in zip(texts, words, rows, strict=True)]


def evaluate_tags(
    target: Tags,
    tag_words: TagWords,
    data: str | Path,
    text_column: str | None,
    label_column: str | None,
    reading: Reading = PLAIN,
) -> TagEvaluation:
    """Scores on tagged sentences, and those of each type."""
    rows = read_labelled(data, text_column, label_column, reading)
    must_be_readable(str(data), rows, "tag", "")
    labels = [e.label for e in known_rows(rows, target, data)]
    target = target.wide_enough(labels)
    truth = target.encode(labels)
    answers = np.full(truth.shape, PADDING, dtype=np.int32)
    found = tag_words([e.text.split(" ") for e in rows])
    answers[truth != PADDING] = np.concatenate([row.argmax(1) for row in found])
    return {"task": "tag", "scores": target.scores(truth, answers), "classes": target.by_type(truth, answers)}
