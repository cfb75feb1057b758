"""What a transformer has to beat: a linear model on TF-IDF, and always saying the commonest label. No torch."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from headstart.text.split import Labelled

STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularization, chosen on the validation rows; the first where there are none


@dataclass(frozen=True)
class Baseline:
    name: str
    probabilities: list[dict[str, float]]  # of the test rows
    seconds: float
    strength: float | None = None
    parameters: int = 0

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
    texts, labels = [e.text for e in data.train], [e.label for e in data.train]
    fitted: list[tuple[float, float, Any]] = []
    for strength in STRENGTHS if data.valid else STRENGTHS[:1]:
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=strength, max_iter=1000)
        )
        model.fit(texts, labels)
        score = model.score([e.text for e in data.valid], [e.label for e in data.valid]) if data.valid else 0.0
        fitted.append((score, -strength, model))
    _, strength, best = max(fitted, key=lambda entry: entry[:2])
    rows = best.predict_proba([e.text for e in data.test]).tolist()
    names = [str(label) for label in best.classes_]
    probabilities = [dict(zip(names, row, strict=True)) for row in rows]
    return Baseline("tfidf", probabilities, time.perf_counter() - began, -strength, int(best[-1].coef_.size))


BASELINES = {"majority": majority, "tfidf": tfidf}
