"""A large table labelled by `predict --file`, and by transformers' pipeline in batches.

python -m benchmarks.bulk [--base minilm] [--rows 2000 100000] [--samples 1] [--threads 2]

Rows are sentences of film reviews, each once, in the order in which they stand there. The pipeline reads the exported model, in
batches of 64: of rows as they come, which is what its documentation shows, and of rows sorted by length within 4,096, as
Headstart sorts them. Every side reads a .csv and writes a .csv, in a process of its own: imports count, so a few rows tell what those
take. Memory is flat if it does not grow with the rows.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.timing import spent_by

BATCH, SORTED = 64, 4096  # rows
WAYS = {"as they come": 1, "sorted by length": SORTED}


@dataclass(frozen=True)
class Spent:
    seconds: float
    processor: float
    megabytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a run or a model; a small BERT from scratch")
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 100_000])
    parser.add_argument("--samples", type=int, default=1, help="times that all are run, in turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", nargs=4, metavar=("MODEL", "FILE", "CHUNK", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--peer-threads", type=int, default=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        model, file, chunk, out = args.peer
        by_pipeline(model, Path(file), Path(out), int(chunk), args.peer_threads)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder, args.base)
        print("\n".join(TABLE))  # noqa: T201
        for count in args.rows:
            print("\n".join(lines(folder, count, args.base or "micro", args.samples, args.threads)), flush=True)  # noqa: T201


TABLE = [
    "| model, rows | who | rows/s | ratio | processor seconds | ratio | peak memory | same label |",
    "|---|---|---|---|---|---|---|---|",
]


def train(folder: Path, base: str | None) -> None:
    """A classifier that has hardly learned anything, and the same for transformers."""
    from headstart.hub.packs import get_pack

    reviews = get_pack("movie-reviews")
    rows = folder / "labelled.csv"
    write(
        rows, ("text", "label"), [(text, "ab"[i % 2]) for i, text in zip(range(400), sentences(reviews), strict=False)]
    )
    words = [
        "finetune",
        str(rows),
        "--out",
        str(folder / "run"),
        "--set",
        "train.steps=20",
        "--threads",
        "1",
        "--quiet",
        "--pool",
        "cls",
    ]
    words += (
        ["--base", base] if base else ["--base", "bert", "--init", "scratch", "--size", "micro", "--context", "128"]
    )
    headstart(*words)
    headstart("export", str(folder / "run"), "--out", str(folder / "exported"))


def lines(folder: Path, count: int, name: str, samples: int, threads: int) -> Iterator[str]:
    from headstart.hub.packs import get_pack

    source = folder / "rows.csv"
    texts = (text for _, text in zip(range(count), sentences(get_pack("movie-reviews")), strict=False))
    written = write(source, ("number", "text"), enumerate(texts))
    assert written == count, f"there are only {written} sentences"
    found: dict[str, list[Spent]] = {}
    labels: dict[str, list[str]] = {}
    for _ in range(samples):
        for who, words in commands(folder, source, threads).items():
            out = folder / "labelled" / f"{who}.csv"
            out.parent.mkdir(exist_ok=True)
            out.unlink(missing_ok=True)
            _, spent = spent_by([*words, str(out)])
            found.setdefault(who, []).append(Spent(*spent))
            labels[who] = [row["label"] for row in read(out)]
    ours = found[OURS]
    for who, spent_each in found.items():
        seconds, used, memory = (
            median(getattr(s, of) for s in spent_each) for of in ("seconds", "processor", "megabytes")
        )
        ratios = ["", ""]
        if who != OURS:
            ratios = [
                f"**{median(all_of):.2f}** ({min(all_of):.2f} to {max(all_of):.2f})"
                for of in ("seconds", "processor")
                for all_of in [[getattr(b, of) / getattr(a, of) for a, b in zip(ours, spent_each, strict=True)]]
            ]
        same = sum(a == b for a, b in zip(labels[OURS], labels[who], strict=True)) / count
        yield f"| {name}, {count:,} | {who} | {count / seconds:,.0f} | {ratios[0]} | {used:,.1f} | {ratios[1]} | {memory:,.0f} MB | {same:.2%} |"


OURS = "Headstart"


def commands(folder: Path, source: Path, threads: int) -> dict[str, list[str]]:
    """What each starts, without the file to write."""
    here = [sys.executable, "-m", "benchmarks.bulk", "--peer-threads", str(threads), "--peer", str(folder / "exported")]
    theirs = {f"pipeline, {way}": [*here, str(source), str(chunk)] for way, chunk in WAYS.items()}
    words = ["predict", str(folder / "run"), "--file", str(source), "--text-column", "text", "--quiet", "--out"]
    return {OURS: [sys.executable, "-m", "headstart", *words], **theirs}


def by_pipeline(model: str, source: Path, out: Path, chunk: int, threads: int) -> None:
    """The plain script: chunks of rows through transformers' pipeline."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    classify: Any = transformers.pipeline("text-classification", model)
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("number", "text", "label", "probability"))
        rows: list[dict[str, str]] = []

        def flush() -> None:
            order = range(len(rows)) if chunk == 1 else sorted(range(len(rows)), key=lambda i: len(rows[i]["text"]))
            texts = [rows[i]["text"] for i in order]
            answers = classify(texts, batch_size=BATCH, truncation=True)
            by_row = dict(zip(order, answers, strict=True))
            writer.writerows(
                (row["number"], row["text"], by_row[i]["label"], by_row[i]["score"]) for i, row in enumerate(rows)
            )
            rows.clear()

        for row in read(source):
            rows.append(row)
            if len(rows) == SORTED:
                flush()
        if rows:
            flush()


def sentences(reviews: Path) -> Iterator[str]:
    """The sentences of a table of reviews, each once."""
    seen = set[str]()
    for row in read(reviews):
        for sentence in re.split(r"(?<=[.!?]) +", row["text"].replace("<br />", " ")):
            text = " ".join(sentence.split())
            if len(text) > 3 and text not in seen:
                seen.add(text)
                yield text


def read(file: Path) -> Iterator[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        yield from csv.DictReader(opened)


def write(file: Path, names: tuple[str, ...], rows: Any) -> int:
    count = 0
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(names)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def headstart(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headstart", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
