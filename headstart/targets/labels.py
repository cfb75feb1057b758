"""Any number of labels for each row, none included (multi-label classification).

A cell holds them as a JSON list, or separated by one sign such as | or ;. A label is predicted where its probability
reaches the threshold of the label, which is fitted to validation rows: 0.5 is too high for labels that are rare.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.targets.smooth import pseudo_values
from headstart.targets.target import Encoded, Outputs, Scores, Target
from headstart.task import Task

USUAL_THRESHOLD = 0.5
FEWEST_POSITIVE = 10  # validation rows with a label, for a threshold of its own; rarer labels share one


def labels_in(cell: str, separator: str = "") -> list[str]:
    """The labels in a cell, each once; ValueError for a list that is none of texts.

    >>> labels_in("a| b", "|"), labels_in('["b", "c"]'), labels_in("['d']"), labels_in("  ")
    (['a', 'b'], ['b', 'c'], ['d'], [])
    """
    cell = cell.strip()
    if cell.startswith("["):
        try:
            found = _list_in(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError("a list that does not end, or holds something else than texts") from error
        if not isinstance(found, list) or not all(isinstance(x, (str, int, float)) for x in found):
            raise ValueError("a list that holds something else than texts")
        parts = [str(x) for x in found]
    else:
        parts = cell.split(separator) if separator else [cell]
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _list_in(cell: str) -> Any:
    """As JSON writes it, or as Python does."""
    try:
        return json.loads(cell)
    except ValueError:
        return ast.literal_eval(cell)


@dataclass(frozen=True)
class Labels(Target):
    names: tuple[str, ...]  # sorted
    separator: str = ""  # in cells that are no lists
    thresholds: tuple[float, ...] = ()  # of the names; empty: 0.5

    task: ClassVar[Task] = "multilabel"
    card = "A text classifier with several labels per text"
    label_is, noun = "several labels", "a classifier of several labels"
    may_be_blank, fewest, of_held_out = True, 1, True
    titles: ClassVar[Mapping[str, str]] = {"f1": "micro-F1", "macro_f1": "macro-F1", "accuracy": "subset accuracy"}

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        return cls(tuple(sorted({name for cell in labels for name in labels_in(cell, separator)})), separator)

    @classmethod
    def of_model(cls, names: Sequence[str], thresholds: Sequence[float] = ()) -> Self:
        return cls(tuple(names), thresholds=tuple(thresholds))

    @staticmethod
    def outputs_of(logits: Outputs) -> Outputs:
        return np.asarray(1 / (1 + np.exp(-logits)))

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        try:
            labels_in(label, separator)
        except ValueError as error:
            return f"the labels are {error}"
        return None

    def encode(self, labels: Sequence[str]) -> Encoded:
        places = {name: i for i, name in enumerate(self.names)}
        found = np.zeros((len(labels), len(self.names)), dtype=np.float32)
        for row, cell in enumerate(labels):
            found[row, [places[name] for name in labels_in(cell, self.separator)]] = 1
        return found

    def answers(self, outputs: Outputs) -> Encoded:
        thresholds = np.array(self.thresholds or [USUAL_THRESHOLD] * len(self.names))
        return (np.asarray(outputs) >= thresholds).astype(np.float32)

    def fitted(self, truth: Encoded, outputs: Outputs) -> Self:
        """With the thresholds that give the best F1 on these rows.

        One for all labels, by micro-F1; a label with FEWEST_POSITIVE rows or more has its own.
        """
        shared = _best_threshold(truth.ravel(), outputs.ravel())
        each = [
            _best_threshold(truth[:, i], outputs[:, i]) if truth[:, i].sum() >= FEWEST_POSITIVE else shared
            for i in range(len(self.names))
        ]
        return replace(self, thresholds=tuple(each))

    def names_in(self, label: str) -> list[str]:
        return labels_in(label, self.separator)

    def written(self, answer: Any) -> list[str]:
        return [name for name, there in zip(self.names, answer, strict=True) if there]

    def cell(self, answer: Any, like: str) -> str:
        """With the separator between labels; a JSON list where there is none, or where the other cell is one.

        >>> both = [1, 1]
        >>> Labels(("a", "b"), "|").cell(both, like="a"), Labels(("a", "b"), "|").cell([0, 0], like="a"), Labels(("a", "b")).cell(both, like="a")
        ('a|b', '[]', '["a", "b"]')
        """
        names = self.written(answer)
        if names and self.separator and not like.lstrip().startswith("["):
            return self.separator.join(names)
        return json.dumps(names, ensure_ascii=False)

    def answer_of(self, written: Any) -> Any:
        if not isinstance(written, list) or set(written) - set(self.names):
            raise ValueError("labels that are not known")
        return [float(name in written) for name in self.names]

    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        sums = _counts(truth, answers).sum(0)
        return {
            "f1": float(_micro_f1(sums)),
            "macro_f1": float(_macro_f1(sums)),
            "accuracy": float((truth == answers).all(1).mean()),
            "rows": len(truth),
        }

    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64]:
        if score == "accuracy":
            return (truth == answers).all(1).astype(float)
        return pseudo_values(_micro_f1 if score == "f1" else _macro_f1, _counts(truth, answers))

    def by_type(self, truth: Encoded, answers: Encoded) -> dict[str, dict[str, Any]]:
        """F1 and rows of each label; no F1 where it is neither in the truth nor in the answers."""
        right, either = np.split(_counts(truth, answers).sum(0), 2)
        return {
            name: {"f1": float(2 * right[i] / either[i]) if either[i] else None, "rows": int(truth[:, i].sum())}
            for i, name in enumerate(self.names)
        }

    def leading(self, labels: Sequence[str]) -> str:
        return "f1"

    def constant(self, truth: Encoded) -> NDArray[np.float64]:
        return np.asarray(truth.mean(0), dtype=np.float64)

    @property
    def described(self) -> str:
        return f" ({len(self.names)} labels{f', separated by {self.separator}' if self.separator else ''})"

    def strata(self, labels: Sequence[str]) -> list[Hashable]:
        """The rarest label of each row, so that rare ones are in every part."""
        rows = [labels_in(cell, self.separator) for cell in labels]
        counts = Counter(name for row in rows for name in row)
        return [min(row, key=lambda name: (counts[name], name)) if row else "" for row in rows]

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Rows with each label; under "" those with none."""
        rows = [labels_in(cell, self.separator) or [""] for cell in labels]
        return dict(sorted(Counter(name for row in rows for name in row).items()))

    def strange(self, labels: Sequence[str]) -> list[str]:
        return sorted({name for cell in labels for name in labels_in(cell, self.separator)} - set(self.names))


def _counts(truth: Encoded, answers: Encoded) -> NDArray[np.float64]:
    """(N, 2L): for each label, whether it is right, and how often it is in the truth or the answer."""
    return np.hstack([truth * answers, truth + answers]).astype(np.float64)


def _micro_f1(sums: NDArray[Any]) -> Any:
    right, either = np.split(sums, 2)
    return 2 * right.sum() / either.sum() if either.sum() != 0 else either.sum() * 0 + 1.0


def _macro_f1(sums: NDArray[Any]) -> Any:
    """The mean over the labels that occur."""
    right, either = np.split(sums, 2)
    present = either != 0
    return (2 * right[present] / either[present]).mean() if present.any() else either.sum() * 0 + 1.0


def _best_threshold(truth: NDArray[Any], outputs: NDArray[np.float64]) -> float:
    """Between two of the probabilities, where F1 is highest; 0.5 where nothing is to be found.

    >>> _best_threshold(np.array([0, 1, 1]), np.array([0.1, 0.3, 0.4]))
    0.2
    """
    if not truth.any():
        return USUAL_THRESHOLD
    order = np.argsort(-outputs, kind="stable")
    ranked, right = outputs[order], np.cumsum(truth[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + truth.sum())
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # equal probabilities are not told apart
    last = int(f1.argmax())
    below = ranked[last + 1] if last + 1 < len(ranked) else 0.0
    return float(round((ranked[last] + below) / 2, 6))
