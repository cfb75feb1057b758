"""Labels that a model knows, and probabilities as records with the label that won. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from headstart.errors import DataError
from headstart.text.read import Example


class Prediction(TypedDict):
    label: str | None  # None: the model abstains
    probabilities: dict[str, float]  # of every label, most probable first
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


def known_rows(examples: list[Example], labels: Sequence[str], data: str | Path) -> list[Example]:
    """The rows of `data`, all of them with a label that the model knows."""
    strange = sorted({e.label for e in examples} - set(labels))
    if strange:
        raise DataError(
            f"{data} has labels that this model does not know: {', '.join(map(repr, strange[:20]))}. It knows "
            f"{', '.join(labels)}.",
            "DATA_LABEL",
        )
    return examples


def labelled(labels: Sequence[str], texts: Sequence[str], rows: Sequence[Sequence[float]]) -> list[LabelledText]:
    """The label of each text and the probability of every label, most probable first.

    >>> labelled(["bad", "good"], ["a fine film"], [[0.25, 0.75]])
    [{'text': 'a fine film', 'label': 'good', 'probabilities': {'good': 0.75, 'bad': 0.25}}]
    """
    records: list[LabelledText] = []
    for text, row in zip(texts, rows, strict=True):
        ranked = sorted(zip(labels, row, strict=True), key=lambda pair: -pair[1])
        records.append({"text": text, "label": ranked[0][0], "probabilities": dict(ranked)})
    return records
