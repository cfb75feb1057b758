"""Labels for new texts, from a finished classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from headstart.config import FinetuneConfig
from headstart.imported import subclass_at
from headstart.runs.kinds import must_be
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.targets.class_scores import ClassScores, PerClassScores, class_scores, confusion, scores_by_class
from headstart.targets.labels import Labels
from headstart.targets.target import Target
from headstart.targets.tasks import TARGETS
from headstart.task import Input, Task
from headstart.tasks.classify import predicted
from headstart.text.files import PLAIN, Reading
from headstart.text.inputs import must_suit
from headstart.text.read import Example, read_labelled
from headstart.text.split import must_be_readable
from headstart.use.labels import LabelledText, known_rows, labelled, separated_as


class ClassifierEvaluation(ClassScores):
    labels: list[str]
    confusion: list[list[int]]  # a row for each true class, a column for each predicted one
    classes: dict[str, PerClassScores]


class TaskEvaluation(TypedDict):
    task: Task
    scores: dict[str, Any]  # under their usual names
    classes: dict[str, PerClassScores]  # of several labels


class LoadedClassifier:
    """The classifier of a finished run; the estimator TextClassifier trains one."""

    def __init__(self, saved: Saved) -> None:
        self.saved = saved
        self.labels = saved.head.labels

    @property
    def target(self) -> Target:
        return self.saved.head.target

    @property
    def reads(self) -> Input:
        return self.saved.head.reads

    @classmethod
    def load(cls, run: str | Path) -> LoadedClassifier:
        found = Run.open(run)
        must_be(found.config, FinetuneConfig, run)
        saved = read_model(found.path / "model")
        return subclass_at(TARGETS[saved.head.task].loaded, cls)(saved)

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        """One row per text, one column per label."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        if not texts:
            return []
        head = self.saved.head
        must_suit(texts, head.reads)
        return predicted(self.saved.model, texts, self.saved.tokenizer, head.long, head.prompt).tolist()

    def predict(self, texts: Sequence[str]) -> list[LabelledText]:
        """The label of each text and the probability of every label, most probable first."""
        return labelled(self.target, texts, self.probabilities(texts))

    def evaluate(
        self, data: str | Path, text_column: str | None, label_column: str | None, reading: Reading = PLAIN
    ) -> ClassifierEvaluation | TaskEvaluation:
        """Scores on labelled rows, with the interval of the accuracy."""
        blank = self.target.may_be_blank
        rows = read_labelled(data, text_column, label_column, reading, keep_blank=blank, known=self.labels)
        if self.target.task != "classify":
            return self._evaluate(rows, data)
        examples = known_rows(rows, self.target, data)
        scores = self.probabilities([e.text for e in examples])
        target = [self.labels.index(e.label) for e in examples]
        said = [row.index(max(row)) for row in scores]
        return {
            **class_scores(target, said, len(self.labels)),
            "labels": list(self.labels),
            "confusion": confusion(target, said, len(self.labels)),
            "classes": dict(zip(self.labels, scores_by_class(target, said, len(self.labels)), strict=True)),
        }

    def _evaluate(self, rows: list[Example], data: str | Path) -> TaskEvaluation:
        """Scores of a task other than classify, under their usual names."""
        target = separated_as(self.target, rows)
        must_be_readable(str(data), rows, target.task, getattr(target, "separator", ""))
        examples = known_rows(rows, target, data)
        answers = target.answers(np.array(self.probabilities([e.text for e in examples])))
        truth = target.encode([e.label for e in examples])
        each: dict[str, PerClassScores] = {}
        if isinstance(target, Labels):
            each = {name: scores_by_class(truth[:, i].astype(int).tolist(), answers[:, i].astype(int).tolist(), 2)[1] for i, name in enumerate(target.names)}  # fmt: skip
        return {"task": target.task, "scores": target.scores(truth, answers), "classes": each}
