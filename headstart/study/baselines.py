"""What a transformer has to beat: a linear model on TF-IDF, and always predicting the majority class. No torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer

from headstart.bases.regression import fit_regression
from headstart.data import LabelledConfig
from headstart.runs.disk import write_file
from headstart.strict_json import to_json
from headstart.tasks.metrics import class_scores
from headstart.text.split import Labelled, draw, split_labelled

CS = (1.0, 10.0, 100.0)  # inverse regularization; 1 is far too little with few rows: measured in docs/log.md
USUAL_C = 10.0


@dataclass(frozen=True)
class Baseline:
    name: str
    probabilities: list[dict[str, float]]  # of the test rows
    seconds: float
    c: float | None = None
    parameters: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)  # for result.json

    @property
    def predictions(self) -> list[str]:
        return [max(row, key=row.__getitem__) for row in self.probabilities]


def majority(data: Labelled) -> Baseline:
    counts = Counter(e.label for e in data.train)
    shares = {label: counts[label] / len(data.train) for label in data.labels}
    return Baseline("majority", [shares] * len(data.test), 0.0)


def tfidf(data: Labelled) -> Baseline:
    """Logistic regression on words and pairs of words."""
    began = time.perf_counter()
    texts = {name: [e.text for e in rows] for name, rows in data.parts().items()}
    labels = {name: [e.label for e in rows] for name, rows in data.parts().items()}
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    train = vectorizer.fit_transform(texts["train"]), labels["train"]
    valid = (vectorizer.transform(texts["valid"]), labels["valid"]) if data.valid else None
    found = fit_regression(train, valid, CS, USUAL_C)
    model = found.model
    rows = model.predict_proba(vectorizer.transform(texts["test"])).tolist()
    names = [str(label) for label in model.classes_]
    probabilities = [dict(zip(names, row, strict=True)) for row in rows]
    return Baseline("tfidf", probabilities, time.perf_counter() - began, found.c, int(model.coef_.size))


BASELINES = {"majority": majority, "tfidf": tfidf}


def write_baseline(cfg: LabelledConfig, kind: str, labels: int, seed: int, path: Path) -> None:
    """A baseline on `labels` rows (0: all) drawn with `seed`, as a cell: predictions.jsonl and result.json in `path`."""
    whole = split_labelled(cfg)
    data = draw(whole, labels, seed, cfg.balanced) if labels else whole
    write_cell(path, data, BASELINES[kind](data))


def write_cell(path: Path, data: Labelled, made: Baseline) -> None:
    """The predictions of the test rows as a cell: predictions.jsonl and result.json in `path`."""
    records = [
        {"row": i, "label": example.label, "prediction": predicted, "probabilities": row}
        for i, (example, predicted, row) in enumerate(zip(data.test, made.predictions, made.probabilities, strict=True))
    ]
    write_file(path / "predictions.jsonl", "".join(to_json(record) + "\n" for record in records).encode())
    truth = [data.labels.index(e.label) for e in data.test]
    scores = class_scores(truth, [data.labels.index(said) for said in made.predictions], len(data.labels))
    result = {
        "test": scores,
        "seconds": made.seconds,
        "rate": made.c,
        "trained_parameters": made.parameters,
        **made.more,
    }
    write_file(path / "result.json", to_json(result).encode())
