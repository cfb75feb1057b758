"""What a transformer has to beat: a linear model on TF-IDF, and always saying the commonest label. No torch."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from headstart.text.split import Labelled

STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularization, chosen on the validation rows


@dataclass(frozen=True)
class Baseline:
    name: str
    predictions: list[str]  # of the test rows
    seconds: float


def majority(data: Labelled) -> Baseline:
    return Baseline("majority", [data.commonest] * len(data.test), 0.0)


def tfidf(data: Labelled) -> Baseline:
    """Logistic regression on words and pairs of words."""
    began = time.perf_counter()
    texts, labels = [e.text for e in data.train], [e.label for e in data.train]
    valid_texts, valid_labels = [e.text for e in data.valid], [e.label for e in data.valid]
    fitted = []
    for strength in STRENGTHS:
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=strength, max_iter=1000)
        )
        model.fit(texts, labels)
        fitted.append((model.score(valid_texts, valid_labels), -strength, model))
    best = max(fitted, key=lambda entry: entry[:2])[2]
    predictions = [str(label) for label in best.predict([e.text for e in data.test])]
    return Baseline("tfidf", predictions, time.perf_counter() - began)
