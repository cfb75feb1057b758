"""What a transformer has to beat: linear models on TF-IDF and on word vectors, a lexicon, and always predicting the majority class. No torch."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from headstart.bases.regression import (
    Hits,
    Regression,
    Rows,
    Standard,
    clearly_better,
    fit_regression,
    held_out_likelihood,
    linear_model,
    one_thread,
)
from headstart.bases.span import in_span
from headstart.errors import ConfigError
from headstart.hub.packs import get_pack
from headstart.imported import imported
from headstart.prompts import prompts_for
from headstart.runs.disk import write_file
from headstart.runs.threads import torch_threads
from headstart.strict_json import to_json
from headstart.study.arms import ARMS, ArmKind, arm_kind
from headstart.study.baseline import Baseline
from headstart.study.lexicon import lexicon_probabilities, polarities
from headstart.study.plan import StudyConfig
from headstart.targets.target import Outputs, Target, prediction_records
from headstart.targets.tasks import TARGETS
from headstart.text.inputs import INPUTS, singles
from headstart.text.split import Labelled
from headstart.text.tfidf import fitted_tfidf
from headstart.text.word_vectors import known_vectors, vector_files

CS = (1.0, 10.0, 100.0)  # inverse regularization; 1 is far too little with few rows: measured in docs/log.md
USUAL_C = 10.0
RARE = 1e-3  # SIF: a word that is this share of all words counts half (Arora, Liang and Ma, 2017)
_WORD = re.compile(r"n't|\w+?(?=n't)|\w+|[^\w\s]")  # "don't" is do and n't, as in the vocabularies of spaCy and GloVe


def majority(data: Labelled) -> Baseline:
    """The share of each class, and so always the majority class; of labels likewise; the mean of numbers."""
    outputs = data.target.constant(data.target.encode([e.label for e in data.train]))
    return Baseline("majority", data.target, np.tile(outputs, (len(data.test), 1)), 0.0)


def tfidf(data: Labelled) -> Baseline:
    """Logistic regression on words, pairs of words and character n-grams."""
    began = time.perf_counter()
    found, rows, size = fit_tfidf(data)
    target, outputs = decided(data, found, rows)
    return Baseline("tfidf", target, outputs, time.perf_counter() - began, found.c, size)


def static(data: Labelled, vectors: str) -> Baseline:
    """Logistic regression on the mean of a text's pretrained word vectors.

    Frequent words count less (smooth inverse frequency, from the training texts) where that is clearly better on held-out rows.
    """
    began, kind = time.perf_counter(), INPUTS[data.reads]
    words = {
        name: [_WORD.findall(text) for text in singles([e.text for e in rows])]
        for name, rows in data.parts().items()
        if rows
    }
    vocabulary = sorted({word for rows in words.values() for row in rows for word in row})
    table = known_vectors(vectors, vocabulary)
    places = {word: i for i, word in enumerate(vocabulary)}
    counts = np.bincount([places[word] for row in words["train"] for word in row], minlength=len(vocabulary))
    best: tuple[Regression, dict[str, Any], bool] | None = None
    for weights in (np.ones(len(vocabulary)), RARE / (RARE + counts / max(1, counts.sum()))):
        rows = {name: _means(part, places, table, weights) for name, part in words.items()}
        if kind.vectors:
            joined, texts = imported(kind.vectors), len(kind.columns)
            rows = {name: joined(*(part[i::texts] for i in range(texts))) for name, part in rows.items()}
        rows = {name: Standard.of(rows["train"]).unit(part) for name, part in rows.items()}
        found = fit_parts(data, rows)
        if best is None or (len(found.hits) and clearly_better(found.hits, best[0].hits)):
            best = found, rows, best is not None
    assert best is not None
    found, rows, rare = best
    seconds, size = time.perf_counter() - began, int(found.model.coef_.size)
    return Baseline("static", *decided(data, found, rows), seconds, found.c, size, {"sif": rare})


def _means(
    texts: Sequence[Sequence[str]], places: Mapping[str, int], table: NDArray[np.float32], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted mean of the vectors of each text's known words, (texts, D); zeros where none is known."""
    known: NDArray[np.bool_] = np.asarray(table.any(axis=1))
    found = np.zeros((len(texts), table.shape[1]))
    for i, text in enumerate(texts):
        rows = [row for word in text if known[row := places[word]]]
        if rows:
            found[i] = np.average(table[rows], axis=0, weights=weights[rows])
    return found


def lexicon(data: Labelled, words: Mapping[str, str]) -> Baseline:
    """What VADER's score of each test text says; nothing is learned."""
    began = time.perf_counter()
    found = lexicon_probabilities([e.text for e in data.test], polarities(data.labels, words))
    outputs = np.array([[row[label] for label in data.labels] for row in found])
    return Baseline("lexicon", data.target, outputs, time.perf_counter() - began)


def tfidf_rows(data: Labelled) -> dict[str, csr_matrix]:
    """The TF-IDF vectors of each part, fitted to the training texts, each row of length 1."""
    if place := INPUTS[data.reads].tfidf:
        return imported(place)(data)
    vectorizer = fitted_tfidf([e.text for e in data.train])
    return {name: vectorizer.transform([e.text for e in rows]) for name, rows in data.parts().items() if rows}


def fit_tfidf(data: Labelled) -> tuple[Regression, Mapping[str, Any], int]:
    """The regression, the rows of each part as it takes them, and the number of its weights, one per n-gram and output."""
    ngrams = tfidf_rows(data)
    rows = in_span(ngrams)
    found = fit_parts(data, rows)
    return found, rows, weights_on(found, rows) * ngrams["train"].shape[1]


def weights_on(found: Regression, rows: Mapping[str, Any]) -> int:
    """How many weights a feature has: one per output."""
    return int(found.model.coef_.size // rows["train"].shape[1])


def fit_parts(
    data: Labelled,
    rows: Mapping[str, Any],
    cs: Sequence[float] = CS,
    usual: float = USUAL_C,
    importance: Mapping[int, float] | None = None,
) -> Regression:
    """A logistic regression on the features of the training rows; those of each part are in `rows`.

    It is given numbers for classes: scikit-learn does not find the weight of a class whose name is a numeral.
    """
    train, valid = _labelled(data, rows)
    return fit_regression(train, valid, cs, usual, importance, task=data.target.task, classes=len(data.labels))


def likelihood(data: Labelled, rows: Mapping[str, Any], c: float, importance: Mapping[int, float]) -> Hits:
    """The log-probability of the label of each held-out row, by such a regression."""
    with one_thread():
        return held_out_likelihood(
            linear_model(data.target.task, c, len(data.labels), importance), *_labelled(data, rows)
        )


def _labelled(data: Labelled, rows: Mapping[str, Any]) -> tuple[Rows, Rows | None]:
    """The features of the training rows and of the validation rows, with their labels."""
    train, valid = (data.target.encode([e.label for e in part]) for part in (data.train, data.valid))
    return (rows["train"], train), (rows["valid"], valid) if len(valid) else None


def decided(data: Labelled, found: Regression, rows: Mapping[str, Any]) -> tuple[Target, Outputs]:
    """What a regression predicts for the test rows, and the target that decides, with thresholds from validation rows."""
    target = data.target
    if data.valid:
        known = target.encode([e.label for e in data.valid])
        target = target.fitted(known, found.outputs(rows["valid"], target))
    return target, found.outputs(rows["test"], target)


def refuse_impossible(cfg: StudyConfig, data: Labelled) -> None:
    """An error before anything is trained, where an arm has no use for the labels or cannot find its files."""
    kinds = [arm_kind(arm) for arm in cfg.arms]
    of_classes = [kind for kind in kinds if kind.only == "classify" != data.target.task]
    for kind in (*of_classes, *kinds):
        if misfit := _misfit(kind, data):
            raise ConfigError(f"The arm {kind.name} {misfit}")
    if any(kind.prompted or kind.name == "zero-shot" for kind in kinds):
        prompts_for(data.labels, True, cfg.prompts, cfg.label_words)
    if "lexicon" in cfg.arms:
        polarities(data.labels, cfg.label_words)
        get_pack("vader")
    if "static" in cfg.arms:
        vector_files(cfg.static_vectors)


def _misfit(kind: ArmKind, data: Labelled) -> str:
    """Why an arm has no use for these rows, and what to do; nothing where it has."""
    task = data.target.task
    if kind.only and kind.only != task:
        return f"is for {TARGETS[kind.only].rows}; the task here is {task}. Leave it out of --arms."
    if kind.whole and data.target.by_word:
        others = sorted(name for name, other in ARMS.items() if other.only == task)
        return f"reads a text as a whole; the task here is {task}. Take {' or '.join(others)} in --arms."
    if kind.reads and kind.reads != data.reads:
        wanted, here = INPUTS[kind.reads].rows, INPUTS[data.reads].brief
        return f"is for {wanted}; the rows here are {here}. Leave it out of --arms."
    return ""


def write_cell(data: Labelled, made: Baseline, path: Path) -> None:
    """predictions.jsonl and result.json of an arm that is no run."""
    records = prediction_records(data.test, made.target, made.outputs, texts=False)
    write_file(path / "predictions.jsonl", "".join(to_json(record) + "\n" for record in records).encode())
    scores = made.target.scores(made.target.encode([e.label for e in data.test]), made.answers)
    result = {
        **made.chosen,
        "test": scores,
        "seconds": made.seconds,
        "rate": made.c,
        "trained_parameters": made.parameters,
        "threads": torch_threads(),  # that features were computed with; 0: without torch
    }
    write_file(path / "result.json", to_json(result).encode())
