"""What a model predicts for a row, as an interface: one file beside this for each task.

Labels come as the text of a table's cells. A target encodes them; N rows:

    classes, ordered classes  (N,)    numbers of classes
    several labels            (N, L)  0 or 1 for each label
    numbers                   (N,)    standardized by the training rows
    tags of words             (N, W)  numbers of tags, -1 behind the last word

Outputs are what a model gives for a row, (N, K): probabilities, the one number, or decided tags. Answers are outputs decided, encoded as
labels are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import softmax
from headstart.task import Task

Encoded: TypeAlias = NDArray[Any]
Outputs: TypeAlias = NDArray[np.float64]  # (N, K)
Scores: TypeAlias = dict[str, Any]  # by their usual names; `rows`, and of classes the interval of the accuracy
Record: TypeAlias = dict[str, Any]  # a line of predictions.jsonl
Written: TypeAlias = str | list[str] | float  # a label or an answer, as predictions.jsonl has it


class Target(ABC):
    task: ClassVar[Task]
    titles: ClassVar[Mapping[str, str]]  # of the scores, by key; those in LARGE are no shares of 1
    card: ClassVar[str]  # what a model of it is, for its card
    label_is: ClassVar[str]  # what a label is, on the page of an upload
    noun: ClassVar[str] = ""  # what a model of it is called, where that is no classifier
    preset: ClassVar[str] = "gpt"  # that suits it where nothing is pretrained
    rows: ClassVar[str] = ""  # what it labels, where arms of a study are for this task alone
    baselines: ClassVar[tuple[str, ...]] = ("constant", "tfidf")  # of a study that names no arms
    by_word: ClassVar[bool] = False  # each word of a text has a label
    # module:class, imported when it is used: what trains a model of it, opens one, out of an .onnx file too, and looks into one.
    job: ClassVar[str] = "headstart.jobs.finetune:Finetuning"
    loaded: ClassVar[str] = "headstart.use.predict:LoadedClassifier"
    shown_rows: ClassVar[str] = ""  # module:function of the test rows that the page of a study shows in its own way
    onnx: ClassVar[str] = "headstart.use.onnx:OnnxClassifier"
    inspector: ClassVar[str] = "headstart.use.inspect:Inspector"
    linear: ClassVar[str] = "logistic regression"  # the linear model of it
    quality: ClassVar[str] = "log-likelihood"  # that its linear models are chosen by
    numeric: ClassVar[bool] = False  # a number is predicted, and no probabilities
    may_be_blank: ClassVar[bool] = False  # whether a row without a label is one
    fewest: ClassVar[int] = 2  # names, to learn anything
    of_held_out: ClassVar[bool] = False  # made of held-out rows too, where no file holds them
    names: tuple[str, ...]  # of the outputs

    @classmethod
    @abstractmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        """The target of training rows with these labels; several in a cell have a separator."""

    @classmethod
    def of_model(cls, names: Sequence[str], thresholds: Sequence[float] = ()) -> Self:
        """What the outputs of a saved model are; one that predicts numbers was rescaled when it was saved."""
        return cls(tuple(names))  # type: ignore[call-arg]

    @staticmethod
    def outputs_of(logits: Outputs) -> Outputs:
        """Probabilities, or numbers, as the head of a model makes them of its logits, (N, K)."""
        return softmax(logits)

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        """Why the label of a row cannot be encoded."""
        return None

    @abstractmethod
    def encode(self, labels: Sequence[str]) -> Encoded: ...

    @abstractmethod
    def answers(self, outputs: Outputs) -> Encoded:
        """The outputs decided."""

    @abstractmethod
    def written(self, answer: Any) -> Written:
        """An encoded label or answer as a user reads it."""

    @abstractmethod
    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        """The scores of one model under their usual names, and `rows`."""

    @abstractmethod
    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64] | None:
        """(N,): what each row contributes to a score, which is their mean; None for a score without such a form."""

    @abstractmethod
    def leading(self, labels: Sequence[str]) -> str:
        """The score that a study of rows with these training labels leads with; higher is better."""

    @abstractmethod
    def strata(self, labels: Sequence[str]) -> list[Hashable]:
        """What to spread evenly over the parts of a split."""

    @abstractmethod
    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Rows by label, for data.json."""

    @abstractmethod
    def constant(self, truth: Encoded) -> NDArray[np.float64]:
        """The outputs (K,) that fit all of these rows best, were they the same for each."""

    # What follows has a default, for targets that have nothing to add.

    def cell(self, answer: Any, like: str) -> str:
        """An encoded label or answer as a table has it, in the form of another cell."""
        return str(self.written(answer))

    @property
    def measures(self) -> Sequence[str]:
        """The keys of the scores that these labels have, out of `titles`."""
        return list(self.titles)

    def shown(self, answer: Any) -> str:
        """An encoded label or answer in a cell of a table."""
        written = self.written(answer)
        if isinstance(written, float):
            return f"{written:.3g}"
        return written if isinstance(written, str) else ", ".join(written)

    def names_in(self, label: str) -> list[str]:
        """The names of the outputs that a label asks for."""
        return [label]

    @property
    def described(self) -> str:
        """What to add to the name of the task in a note."""
        return ""

    def heaviest(self, score: str, truth: Encoded) -> float:
        """How much one row may count in a score, if rows count differently."""
        return 1.0

    def strange(self, labels: Sequence[str]) -> list[str]:
        """Labels that no answer can be."""
        return []

    def probabilities(self, outputs: Sequence[float]) -> dict[str, float]:
        """By name."""
        return dict(zip(self.names, outputs, strict=True))

    def record(self, label: str, answer: Any, outputs: Sequence[float]) -> Record:
        """A line of predictions.jsonl, without its row and text."""
        return {
            "label": self.written(self.encode([label])[0]),
            "prediction": self.written(answer),
            "probabilities": self.probabilities(outputs),
        }

    def read(self, record: Mapping[str, Any]) -> tuple[Any, list[float]]:
        """The answer and the outputs of such a line; KeyError, TypeError or ValueError where it is damaged."""
        outputs = [float(record["probabilities"][name]) for name in self.names]
        return self.answer_of(record["prediction"]), outputs

    def with_held_out(self, labels: Sequence[str], note: Callable[[str, str], None]) -> Self:
        """With what it has to know of the labels of held-out rows; `note` takes what it concerns, and a sentence."""
        return self

    def by_type(self, truth: Encoded, answers: Encoded) -> Mapping[str, Any]:
        """Scores of each type of what is predicted, where a row may have several."""
        return {}

    # What the record of a prediction (use/labels.py) is in other places.

    @property
    def list_column(self) -> str:
        """The one column of a labelled table, where an answer is a list of parts of the text."""
        return ""

    def listed(self, record: Mapping[str, Any]) -> list[Any]:
        """What a record has in that column."""
        return []

    def in_text(self, record: Mapping[str, Any]) -> str:
        """A record on one line, where its answer stands inside the text."""
        return ""

    def scored(self, record: Mapping[str, Any]) -> list[Any]:
        """Labels with their scores, as the server answers; of a number, which has no probabilities, the number."""
        scores = record["probabilities"] or {"value": record["label"]}
        return [{"label": label, "score": score} for label, score in scores.items()]

    def fitted(self, truth: Encoded, outputs: Outputs) -> Self:
        """With whatever decides between outputs fitted to held-out rows."""
        return self

    @abstractmethod
    def answer_of(self, written: Any) -> Any:
        """The opposite of `written`."""


class Row(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def label(self) -> str: ...


def prediction_records(rows: Sequence[Row], target: Target, outputs: Outputs, texts: bool) -> list[Record]:
    """The lines of predictions.jsonl, with or without the text of each row."""
    answers = target.answers(outputs)
    return [
        {
            "row": i,
            **({"text": example.text} if texts else {}),
            **target.record(example.label, answer, row),
        }
        for i, (example, answer, row) in enumerate(zip(rows, answers, outputs.tolist(), strict=True))
    ]
