"""The main job on a default that needs no account and no GPU: does pretraining help on film reviews?

A small masked model reads IMDb reviews without their labels, its token embeddings initialised from their co-occurrence; it
and the same model with fresh weights are then fine-tuned on a few hundred labelled Rotten Tomatoes sentences, with a linear
model beside them. It is a study like any other: `headstart compare` does the same on your own text. A second, causal model
generates text. With packs, a pretrained language model is asked in words besides.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.config import PretrainConfig
from headstart.hub.packs import get_pack, pack_folder
from headstart.jobs.pretrain import pretrain
from headstart.models.decode import Sampling
from headstart.runs.disk import write_file
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import merge, parse
from headstart.study.plan import StudyConfig
from headstart.study.study import Study
from headstart.text.split import hash_split
from headstart.text.tables import read_columns
from headstart.use.labels import LabelledText
from headstart.use.language import Generated, LoadedLanguageModel
from headstart.use.predict import LoadedClassifier

PACK = "movie-reviews"
REVIEWS = 8000  # of the 25,000, for the model that writes: as many as it has time to read
LABELS = 400  # training and validation rows together
TEST_ROWS = 2000
NAMES = {"0": "negative", "1": "positive"}
SENTENCES = (
    "a warm , funny and beautifully acted film .",
    "a dull mess that wastes its talented cast .",
    "it has its moments , but they are few and far between .",
)
SETTINGS: dict[str, Any] = {  # the recipe of pretrain --objective auto (docs/pretraining.md), with fewer steps
    "arms": ("majority", "tfidf", "scratch", "frozen", "full"),
    "seeds": 5,
    "rates": (5e-4,),  # one, to be done in minutes; a study of your own tries three
    "objectives": ("masked",),
    "pretrain": {
        "data": {"unit": "document", "valid_fraction": 0.02},
        "start": "cooccurrence",
        "model": {"preset": "bert", "size": "micro", "context": 128},
        "tokenizer": {"kind": "wordpiece", "vocab": 16_384, "lower": True},
        "train": {"steps": 60, "batch_size": 32, "eval_every": 30},
    },
    "least_steps": 120,
    "finetune": {"epochs": 6},
}
WRITER: dict[str, Any] = {  # a small causal model, for the text that is generated
    "data": {"unit": "document", "valid_fraction": 0.02},
    "model": {"preset": "gpt", "size": "nano", "context": 64, "dropout": 0.0},
    "tokenizer": {"kind": "bpe", "vocab": 4096},
    "train": {"steps": 250, "batch_size": 64, "lr": 5e-3, "eval_every": 125},
    "samples": ["This film"],
}
QUICK: dict[str, Any] = {  # whether everything works, in a minute: too little to conclude from
    "arms": ("majority", "tfidf", "scratch", "full"),
    "seeds": 2,
    "pretrain": {"train": {"steps": 20, "eval_every": 10}},
    "least_steps": 30,
    "finetune": {"epochs": 1},
}
ASKED: dict[str, Any] = {"bases": ("smollm2",), "arms": ("zero-shot", "prompt:frozen"), "seeds": 5}


@dataclass(frozen=True)
class Demo:
    study: Study
    predictions: list[LabelledText]
    generated: Generated
    asked: Study | None = None  # a pretrained language model, asked in words


def run_demo(out: Path, watch: Watch, packs: bool = False, quick: bool = False) -> Demo:
    """Pretrain, fine-tune, compare, generate: the studies, three predictions and a generated sentence."""
    settings = merge(SETTINGS, QUICK) if quick else SETTINGS
    write_data(fetched(watch), out / "data")
    places = {name: str((out / "data" / f"{name}.csv").absolute()) for name in ("corpus", "some", "labelled", "test")}
    data = {"data": {"train": places["labelled"], "test": places["test"]}}
    corpus = {"pretrain": {"data": {"paths": (places["some" if quick else "corpus"],)}}}
    study = Study.run(parse(StudyConfig, {**merge(settings, corpus), **data}), out / "study", watch=watch)
    asked = Study.run(parse(StudyConfig, {**ASKED, **data}), out / "asked", watch=watch) if packs else None
    watch.note("Pretraining: a model that writes ...")
    steps = {"train": {"steps": 25, "eval_every": 25}} if quick else {}
    writer = parse(PretrainConfig, merge(WRITER, {"data": {"paths": (places["some"],)}, **steps}))
    pretrain(writer, out / "writer", resume=Run(out / "writer").there, watch=watch)
    generated = LoadedLanguageModel.load(out / "writer").generate("This film is", 14, Sampling(), top=6)
    classifier = LoadedClassifier.load(study.folder / "cells" / "full-masked~all~0")
    return Demo(study, classifier.predict(SENTENCES), generated, asked)


def fetched(watch: Watch) -> Path:
    """The film reviews, downloaded if they are not here."""
    if not pack_folder(PACK).exists():
        watch.note("Fetching film reviews (13 MB, the first time only) ...")
    return get_pack(PACK)


def write_data(reviews: Path, folder: Path) -> None:
    """corpus.csv of IMDb reviews, some.csv of some, and labelled.csv and test.csv of Rotten Tomatoes sentences."""
    columns = [(name, (name,), "") for name in ("text", "label", "source")]
    rows = list(read_columns(reviews, columns))
    imdb = [" ".join(text.replace("<br />", " ").split()) for text, _, source in rows if source == "imdb"]
    tomatoes = [(text, NAMES[label]) for text, label, source in rows if source != "imdb"]
    texts, labels = [text for text, _ in tomatoes], [label for _, label in tomatoes]
    rest, test = hash_split(tomatoes, texts, labels, TEST_ROWS / len(tomatoes), seed=0)
    _, few = hash_split(rest, [t for t, _ in rest], [label for _, label in rest], LABELS / len(rest), seed=1)
    _, some = hash_split(imdb, imdb, [""] * len(imdb), min(1.0, REVIEWS / len(imdb)), seed=2)
    tables: dict[str, list[tuple[str, ...]]] = {
        "corpus.csv": [("text",), *((text,) for text in imdb)],  # one row a review: each has its start and its end
        "some.csv": [("text",), *((text,) for text in some)],
        "labelled.csv": [("text", "label"), *few],
        "test.csv": [("text", "label"), *test],
    }
    for name, rows_of in tables.items():
        table = io.StringIO()
        csv.writer(table).writerows(rows_of)
        write_file(folder / name, table.getvalue().encode())
