"""A finished matcher put to work: recall on other captions, and images classified by the names of their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import torch

from headstart.bases.matcher import open_matcher
from headstart.data import CaptionsConfig
from headstart.errors import DataError, UserError
from headstart.images.captions import read_captions
from headstart.images.read import refuse_bad
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.targets.class_scores import ClassScores, class_scores
from headstart.tasks.retrieve import Embedded, MatchScores
from headstart.use.search import ImageSearch

TEMPLATES = ("a photo of a {}", "a picture of a {}", "{}")  # a label becomes the mean of these captions


class MatchEvaluation(MatchScores):
    trained_on: dict[str, int]  # how many of the images are among those that the run was trained on
    blank_rows: int
    bad_images: dict[str, str]


class LabelledImage(TypedDict):
    file: str
    label: str
    probabilities: dict[str, float]


class ImageLabels(TypedDict):
    labels: list[str]
    templates: list[str]
    images: list[LabelledImage]
    scores: ClassScores | None  # None where no folder is named like a label
    trained_on: dict[str, int]
    bad_images: dict[str, str]


def evaluate(model: str, data: CaptionsConfig, watch: Watch | None = None) -> MatchEvaluation:
    """Recall of the matcher on all captions of a table, in both directions, with intervals, beside what guessing would score."""
    found, matcher = read_captions(data), open_matcher(model)
    seen = matcher.index(found.folder, list(found.captions), watch)
    refuse_bad(seen.bad, data.strict, len(seen.files), str(found.folder))
    if len(seen.files) < 2:
        raise DataError(f"{data.pairs}: one image cannot be mistaken for another; more are needed.", "DATA_SMALL")
    texts = [(i, text) for i, file in enumerate(seen.files) for text in found.captions[file]]
    embedded = Embedded(
        matcher.embed_texts([text for _, text in texts]),
        matcher.embed_seen(seen.vectors),
        torch.tensor([i for i, _ in texts]),
    )
    return {
        **embedded.match_scores(),
        "trained_on": trained_on(model, seen.contents),
        "blank_rows": found.blank,
        "bad_images": seen.bad,
    }


def trained_on(model: str, contents: Mapping[str, str]) -> dict[str, int]:
    """How many of the images the run was trained on, and how many more chose its best step; of a CLIP model, none."""
    counts = {"train": 0, "valid": 0}
    if (Path(model) / "split.json").is_file():
        split = Run(Path(model)).read_json("split.json")
        for part in counts:
            known = set(split[part].values())
            counts[part] = sum(content in known for content in contents.values())
    return counts


def classify(
    model: str,
    folder: str | Path,
    labels: Sequence[str],
    templates: Sequence[str] = TEMPLATES,
    strict: bool = False,
    watch: Watch | None = None,
) -> ImageLabels:
    """A label for each image of a folder, from the names of the labels alone.

    Without `labels`, they are the names of the sub-folders. Where images lie in sub-folders that are named like
    labels, accuracy is reported too.
    """
    search = ImageSearch.open(folder, model, strict, watch)
    above = [Path(file).parts[-2] if len(Path(file).parts) > 1 else "" for file in search.files]
    names = list(dict.fromkeys(labels)) or sorted({name for name in above if name})
    if len(names) < 2:
        raise UserError("Classifying needs two labels or more: --labels cat,dog,horse, or a sub-folder for each.")
    for template in templates:
        if template.count("{}") != 1:
            raise UserError(f"A template has {{}} once, where the label stands: '{template}' does not.")
    captions = [template.replace("{}", name) for name in names for template in templates]
    each = search.matcher.embed_texts(captions).unflatten(0, (len(names), len(templates))).mean(1)
    cosines = search.images @ torch.nn.functional.normalize(each, dim=-1).T  # (M, labels)
    probabilities = (search.matcher.scale * cosines).softmax(-1)
    best = probabilities.argmax(1).tolist()
    known = [(names.index(name), guess) for name, guess in zip(above, best, strict=True) if name in names]
    return {
        "labels": names,
        "templates": list(templates),
        "images": [
            {"file": file, "label": names[guess], "probabilities": dict(zip(names, row, strict=True))}
            for file, guess, row in zip(search.files, best, probabilities.tolist(), strict=True)
        ],
        "scores": class_scores([t for t, _ in known], [p for _, p in known], len(names)) if known else None,
        "trained_on": trained_on(model, search.contents),
        "bad_images": search.bad,
    }
