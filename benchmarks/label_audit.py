"""How many flipped labels `headstart audit` finds, beside cleanlab on the same out-of-fold probabilities.

python -m benchmarks.label_audit DATA --rows 3000 --base minilm [--base mpnet] [--longer-than 40] [--draws 3]
python -m benchmarks.label_audit DATA --rows 3000 [--test 1000] --tables DIR     # clean.csv, noisy.csv and test.csv, for studies before and after
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headstart.bases.label_errors import Floats, Ints, audited
from headstart.bases.routes import ROUTES, BaseFeatures, Rows
from headstart.bases.selection import Prompting, opened
from headstart.hub.packs import located
from headstart.runs.watch import Watch
from headstart.study.audit import models_of
from headstart.targets.classes import Classes
from headstart.text.read import Example, read_labelled
from headstart.text.rows import drawn

FLIPPED = 0.05  # of the labels
MOST_TOKENS = 128  # of a text that a base reads

Flags = NDArray[np.bool_]


def flipped(targets: Ints, classes: int, draw: int) -> tuple[Ints, Flags]:
    """The classes with some changed at random, and which ones were."""
    rng = np.random.default_rng(draw)
    places = rng.choice(len(targets), round(FLIPPED * len(targets)), replace=False)
    changed = targets.copy()
    changed[places] = (changed[places] + rng.integers(1, classes, len(places))) % classes
    return changed, np.isin(np.arange(len(targets)), places)


def compared(models: Floats, labels: Ints) -> Iterator[tuple[str, Flags]]:
    """The rows that each way lists, by the out-of-fold probabilities of the models, (M, R, N, C)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cleanlab.filter import find_label_issues

        mean = models.mean((0, 1))
        theirs = {how: np.asarray(find_label_issues(labels, mean, filter_by=how))
                  for how in ("prune_by_noise_rate", "confident_learning")}  # fmt: skip
    found = audited(models, labels)
    ranked = np.argsort(-found.margin, kind="stable")
    for how, listed in theirs.items():
        yield f"cleanlab, {how}", listed
        yield f"audit, as many as {how}", np.isin(np.arange(len(labels)), ranked[: listed.sum()])
    yield "audit", np.isin(np.arange(len(labels)), found.flagged)


def write_tables(folder: Path, rows: Sequence[Example], labels: Sequence[str], held_out: int) -> None:
    """The rows as they are, with labels flipped (draw 0), and `held_out` others, drawn at random, to test on."""
    if held_out:
        rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    test, rows = rows[:held_out], rows[held_out:]
    truth = np.array([labels.index(row.label) for row in rows])
    noisy = [Example(row.text, labels[c]) for row, c in zip(rows, flipped(truth, len(labels), 0)[0], strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("clean", rows), ("noisy", noisy), ("test", test)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *((row.text, row.label) for row in part)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--longer-than", type=int, default=0, help="characters of a text")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--tables", type=Path, help="write tables into this folder instead")
    parser.add_argument("--test", type=int, default=0, help="of the rows, that --tables holds out")
    args = parser.parse_args()
    rows = [row for row in read_labelled(located(args.data), None, None) if len(row.text) > args.longer_than]
    rows = drawn(list({row.text: row for row in rows}.values()), args.rows)
    labels = sorted({row.label for row in rows})
    if args.tables:
        write_tables(args.tables, rows, labels, args.test)
        return
    truth = np.array([labels.index(row.label) for row in rows])
    features: dict[str, BaseFeatures] = {}
    for base in args.base:
        candidate = opened(base, labels, Prompting(), ROUTES, [], must_open=True)
        assert candidate is not None
        candidate.saved.model.base.max_len = min(candidate.saved.model.base.max_len, MOST_TOKENS)
        features[base] = candidate.features(Rows(rows, labels))
    scores: dict[str, list[tuple[float, float, int]]] = {}
    for draw in range(args.draws):
        noisy, wrong = flipped(truth, len(labels), draw)
        given = [Example(row.text, labels[c]) for row, c in zip(rows, noisy, strict=True)]
        models = np.stack(list(models_of(given, Classes(tuple(labels)), features, Watch()).values()))
        for name, listed in compared(models, noisy):
            hits = int((listed & wrong).sum())
            scores.setdefault(name, []).append((hits / max(1, listed.sum()), hits / wrong.sum(), int(listed.sum())))
    for name, found in scores.items():
        precision, recall, count = np.mean(found, axis=0)
        print(f"{name:36} {count:6.0f} listed, precision {precision:.3f}, recall {recall:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
