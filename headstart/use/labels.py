"""Labels that a model knows, and probabilities as records with the label that won. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from headstart.errors import DataError
from headstart.targets.labels import Labels
from headstart.targets.target import Target, Written
from headstart.text.classes import found_task
from headstart.text.read import Example


class Prediction(TypedDict):
    label: Written | None  # or several, or a number; None: the model abstains
    probabilities: dict[str, float]  # of every label, most probable first; none of numbers
    abstained: NotRequired[bool]  # where that was asked for
    label_set: NotRequired[list[str]]  # likewise: the labels that hold the right one with the coverage


class LabelledText(Prediction):
    text: str
    also: NotRequired[dict[str, Prediction]]  # those of other runs, by name, which the command line adds


def without_text(record: LabelledText) -> Prediction:
    """What stands beside another answer to the same text."""
    kept: Prediction = {"label": record["label"], "probabilities": record["probabilities"]}
    if "abstained" in record:
        kept["abstained"] = record["abstained"]
    if "label_set" in record:
        kept["label_set"] = record["label_set"]
    return kept


def separated_as(target: Target, examples: Sequence[Example]) -> Target:
    """`target` for rows with several labels, which may have another separator than the rows that were learned from."""
    if not isinstance(target, Labels):
        return target
    return replace(target, separator=found_task(Counter(e.label for e in examples), None)[1])


def known_rows(examples: list[Example], target: Target, data: str | Path) -> list[Example]:
    """The rows of `data`, all of them with a label that the model knows."""
    labels = target.names
    strange = target.strange([e.label for e in examples])
    if strange:
        raise DataError(
            f"{data} has labels that this model does not know: {', '.join(map(repr, strange[:20]))}. It knows "
            f"{', '.join(labels)}.",
            "DATA_LABEL",
        )
    return examples


def labelled(target: Target, texts: Sequence[str], rows: Sequence[Sequence[float]]) -> list[LabelledText]:
    """The label of each text and the probability of every label, most probable first.

    >>> from headstart.targets.classes import Classes
    >>> labelled(Classes(("bad", "good")), ["a fine film"], [[0.25, 0.75]])
    [{'text': 'a fine film', 'label': 'good', 'probabilities': {'good': 0.75, 'bad': 0.25}}]
    """
    records: list[LabelledText] = []
    for text, answer, row in zip(texts, target.answers(np.array(rows)) if len(rows) else [], rows, strict=True):
        ranked = sorted(zip(target.names, row, strict=True), key=lambda pair: -pair[1])
        probabilities = {} if target.numeric else dict(ranked)
        records.append({"text": text, "label": target.written(answer), "probabilities": probabilities})
    return records
