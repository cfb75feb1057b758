"""The targets by task: what has to tell tasks apart reads this table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart.data import Task
from headstart.targets.class_scores import softmax
from headstart.targets.classes import Classes
from headstart.targets.labels import Labels
from headstart.targets.numbers import Numbers
from headstart.targets.ordered import Ordered
from headstart.targets.tags import Tags
from headstart.targets.target import Outputs, Target

TARGETS: dict[Task, type[Target]] = {kind.task: kind for kind in (Classes, Labels, Numbers, Ordered, Tags)}


def target_of_model(task: Task, names: Sequence[str], thresholds: Sequence[float] = ()) -> Target:
    """What the outputs of a saved model are; one that predicts numbers was rescaled when it was saved."""
    match task:
        case "multilabel":
            return Labels(tuple(names), thresholds=tuple(thresholds))
        case "regression":
            return Numbers(0.0, 1.0)
        case "ordinal":
            return Ordered(tuple(names))
        case "tag":
            return Tags(tuple(names))
        case "classify":
            return Classes(tuple(names))


def outputs_of_logits(task: Task, logits: Outputs) -> Outputs:
    """Probabilities, or numbers, as the head of a model makes them of its logits, (N, K)."""
    match task:
        case "multilabel":
            return np.asarray(1 / (1 + np.exp(-logits)))
        case "regression":
            return logits
        case "classify" | "ordinal" | "tag":  # of ordered classes they are log-probabilities
            return softmax(logits)
