"""Labels for new texts, from a finished classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.config import FinetuneConfig
from headstart.runs.kinds import must_be
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.tasks.classify import most_probable, probabilities
from headstart.tasks.metrics import ClassScores, PerClassScores, class_scores, confusion, scores_by_class
from headstart.text.files import PLAIN, Reading
from headstart.text.read import read_labelled
from headstart.use.labels import LabelledText, known_rows, labelled


class ClassifierEvaluation(ClassScores):
    labels: list[str]
    confusion: list[list[int]]  # a row for each true class, a column for each predicted one
    classes: dict[str, PerClassScores]


class LoadedClassifier:
    """The classifier of a finished run; the estimator TextClassifier trains one."""

    def __init__(self, saved: Saved) -> None:
        self.saved = saved
        self.labels = saved.head.labels

    @classmethod
    def load(cls, run: str | Path) -> LoadedClassifier:
        found = Run.open(run)
        must_be(found.config, FinetuneConfig, run)
        return cls(read_model(found.path / "model"))

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        """One row per text, one column per label."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        if not texts:
            return []
        head = self.saved.head
        return probabilities(self.saved.model, texts, self.saved.tokenizer, head.long, head.prompt)

    def predict(self, texts: Sequence[str]) -> list[LabelledText]:
        """The label of each text and the probability of every label, most probable first."""
        return labelled(self.labels, texts, self.probabilities(texts))

    def evaluate(
        self, data: str | Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
    ) -> ClassifierEvaluation:
        """Scores on labelled rows, with the interval of the accuracy."""
        rows = read_labelled(data, text_column, label_column, reading, known=self.labels)
        examples = known_rows(rows, self.labels, data)
        scores = self.probabilities([e.text for e in examples])
        target = [self.labels.index(e.label) for e in examples]
        predicted = most_probable(scores)
        return {
            **class_scores(target, predicted, len(self.labels)),
            "labels": list(self.labels),
            "confusion": confusion(target, predicted, len(self.labels)),
            "classes": dict(zip(self.labels, scores_by_class(target, predicted, len(self.labels)), strict=True)),
        }
