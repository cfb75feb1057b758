"""A study that was never run: results.json as a real one looks, made from a seed, with texts that mean no good."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(1)>'
FORMULA = "=HYPERLINK(\"http://evil.example\",'a')"
TEXTS = [
    "a warm , funny and beautifully acted film .",
    "Un film d’une lenteur exaspérante, mais où chaque plan respire l’amour du cinéma ; à voir malgré tout, ne serait-ce que pour ses acteurs.",
    "فيلم رائع بكل المقاييس، والتمثيل كان في القمة من البداية إلى النهاية",
    HOSTILE,
    "]]></style></svg><svg onload=alert(1)>{{ 7 * 7 }} $x^2$ \\frac",
    "right \u202eto left\u202c and a bell \x07, a null \x00, half a character \ud83d, and \ufffe",
    "Averyveryverylongwordwithoutanyspace" * 6,
    "it has its moments , but they are few and far between .\n\nTwo paragraphs later it has none left. " * 9,
    "这部电影太精彩了 🎬👨‍👩‍👧",
    FORMULA,
]
LEVELS = {"majority": (0.505, 0.0), "tfidf": (0.66, 0.045), "scratch": (0.55, 0.07), "frozen": (0.66, 0.02)}


def make_results(
    kinds: Sequence[str] = ("majority", "tfidf", "scratch", "frozen", "full"),
    counts: Sequence[int] = (100, 300, 800, 2000),
    seeds: int = 5,
    names: Sequence[str] = ("negative", "positive"),
    bases: Sequence[str] = ("runs/base",),
    rows: int = 2000,
) -> dict[str, Any]:
    """Everything that results.json can hold."""
    rng = random.Random(0)
    arms = [
        _arm(rng, kind, base, len(bases) > 1, labels, counts, seeds, names, rows)
        for labels in counts
        for kind in kinds
        for base in (bases if kind not in ("majority", "tfidf") else ("",))
    ]
    last = [arm for arm in arms if arm["labels"] == counts[-1]]
    learned = [arm for arm in last if arm["base"]]
    return {
        "title": "Does pretraining help on critiques_été.csv?",
        "verdict": f"With {counts[-1]:,} labels, pretraining beats training from scratch by 3.1 points [1.2, 5.0] over "
        f"{seeds} seeds; it cannot be told apart from TF-IDF with logistic regression (+0.9 points [-0.8, 2.6]); about 9 seeds "
        "or 5,200 test rows would tell. With under 300 labels the linear baseline is as good. One pretraining run: what "
        "another would give is not in this.",
        "notices": [
            f"54 of {rows} test rows stand in train or valid (50 word for word, 3 one inside the other, 1 nearly).",
            "2 texts stand under more than one label.",
            "1 of 100 cells failed; its arm has 4 seeds.",
        ],
        "score": "accuracy",
        "data": {
            "name": "critiques_été.csv",
            "rows": {"train": 1600, "valid": 400, "test": rows},
            "labels": {
                part: {name: n // len(names) for name in names}
                for part, n in (("train", 1600), ("valid", 400), ("test", rows))
            },
            "files": [{"file": "critiques_été.csv", "bytes": 402_113, "sha256": "9f" * 32}],
            "split_sha256": "ab" * 32,
            "overlapping_test_rows": 54,
        },
        "labels": list(counts),
        "seeds": seeds,
        "arms": arms,
        "label_names": list(names),
        "differences": _differences(rng, arms, counts),
        "labels_needed": [
            {
                "arm": arm["name"],
                "reference": "scratch",
                "score": 0.742,
                "labels": labels,
                "interval": interval,
                "at_most": False,
                "saved": saved,
            }
            for arm, (labels, interval, saved) in zip(
                [a for a in last if a["kind"] in ("tfidf", "frozen", "full")],
                [(1240, [890, None], 760), (None, [None, None], None), (610, [400, 900], 1390)] * 5,
                strict=False,
            )
        ],
        "curves": {arm["name"]: _curves(rng, arm["mean"], counts[-1], seeds) for arm in learned},
        "mistakes": {
            arm["name"]: [_mistake(rng, i, names, seeds) for i in range(10)]
            for arm in last
            if arm["kind"] != "majority"
        },
        "disagreements": [
            {
                "row": 31 * i + 4,
                "text": text,
                "label": names[i % len(names)],
                "said": {arm["name"]: _said(rng, names, arm["seeds"]) for arm in last},
            }
            for i, text in enumerate(TEXTS)
        ],
        "receipts": [
            {
                "arm": arm["name"],
                "base": arm["base"],
                "copied": 0 if arm["kind"] == "scratch" else 40,
                "new": 42 if arm["kind"] == "scratch" else 2,
                "frozen": 38 if arm["kind"] == "frozen" else 0,
                "frozen_moved": 0,
                "base_sha256_before": "1c" * 32,
                "base_sha256_after": ("1c" if arm["kind"] == "frozen" else "7e") * 32,
            }
            for arm in learned
        ],
        "pretraining": [
            {
                "name": base.split("/")[-1],
                "run": base,
                "seconds": 612.4,
                "tokens": 4_096_000,
                "valid_loss": 4.113,
                "objective": "causal",
                "parameters": 1_204_992,
            }
            for base in bases
        ],
        "failures": [
            {
                "cell": f"full~{counts[-1]}~3",
                "exit": 7,
                "message": "The loss is not a number at step 212. Lower train.lr.",
            }
        ],
        "hygiene": {
            "splits": {
                part: {
                    "rows": n,
                    "labels": {name: n // len(names) for name in names},
                    "words": {"min": 2.0, "median": 19.0, "p95": 41.0, "max": 58.0},
                }
                for part, n in (("train", 1600), ("valid", 400), ("test", rows))
            },
            "exact": {
                "within": {"train": 4, "valid": 0, "test": 7},
                "leaked": {"valid": 2, "test": 50},
                "rows": {},
                "examples": [],
            },
            "contained": {
                "within": {"train": 1, "valid": 0, "test": 0},
                "leaked": {"valid": 0, "test": 3},
                "rows": {},
                "examples": [],
            },
            "near": {
                "within": {"train": 0, "valid": 0, "test": 2},
                "leaked": {"valid": 0, "test": 1},
                "rows": {},
                "examples": [],
            },
            "conflicts": {
                "texts": 2,
                "examples": [
                    {"text": TEXTS[1], "labels": {names[0]: 1, names[1]: 2}},
                    {"text": HOSTILE, "labels": {names[0]: 1, names[1]: 1}},
                ],
            },
            "overlapping_rows": {"valid": [1, 2], "test": list(range(54))},
            "warnings": ["54 of 2000 test rows stand in train or valid."],
        },
        "cost": {"seconds": 1834.5, "cells": len(arms) * seeds, "pretraining_seconds": 612.4},
        "repeat": {
            "command": "headstart compare critiques_été.csv --base runs/base --seeds 5 --labels 100,300,800,2000 --out studies/reviews --yes",
            "settings": '# every setting of the study\nseeds = 5\nlabels = [100, 300, 800, 2000]\n\n[data]\ntrain = "critiques_été.csv"\n\n[train]\nlr = [0.0003, 0.001, 0.003]\nbatch_size = 32\n',
            "versions": {
                "headstart": "0.1.0",
                "python": "3.11.9",
                "torch": "2.5.1",
                "numpy": "2.4.6",
                "scikit-learn": "1.5.2",
            },
            "started": "2026-03-01T09:30:00+01:00",
            "platform": "Linux-6.1-x86_64",
            "threads": 2,
        },
    }


def _arm(
    rng: random.Random, kind: str, base: str, several: bool, labels: int, counts: Sequence[int], seeds: int,
    names: Sequence[str], rows: int,
) -> dict[str, Any]:  # fmt: skip
    start, gain = LEVELS.get(kind, (0.63, 0.055))
    level = start + gain * counts.index(labels) / max(1, len(counts) - 1) * 2
    seeds = seeds if base else 1
    scores = [min(0.99, max(0.02, level + (rng.gauss(0, 0.012) if base else 0))) for _ in range(seeds)]
    mean = sum(scores) / seeds
    sd = (sum((s - mean) ** 2 for s in scores) / (seeds - 1)) ** 0.5 if seeds > 1 else None
    half = 0.02 + 0.5 * (sd or 0)
    summary = {"mean": mean, "sd": sd, "interval": [mean - half, mean + half]}
    confusion = [
        [
            round(rows * seeds / len(names) * (mean if i == j else (1 - mean) / (len(names) - 1)))
            for j in range(len(names))
        ]
        for i in range(len(names))
    ]
    if kind == "majority":
        confusion = [[rows // len(names)] + [0] * (len(names) - 1) for _ in names]
    name = f"{kind} {base.split('/')[-1]}" if several and base else kind
    return {
        "name": name, "kind": kind, "base": base or None, "labels": labels, **summary,
        "over": "seeds and rows" if base and seeds >= 5 else "rows only", "seeds": seeds, "scores": scores,
        "accuracy": summary, "macro_f1": {"mean": mean - 0.01, "sd": sd, "interval": [mean - half - 0.01, mean + half - 0.01]},
        "calibration": {"ece": 0.043, "brier": 0.182},
        "clean": {"mean": mean - 0.006, "interval": [mean - half - 0.006, mean + half - 0.006]},
        "rate": None if kind == "majority" or labels < 200 else 1.0 if kind == "tfidf" else 0.001,
        "confusion": confusion,
        "cost": {"seconds": 0.4 if not base else 12.3 + labels / 90, "tokens": labels * 300 if base else None,
                 "trained_parameters": None if kind == "majority" else 386 if kind == "frozen" else 1_204_992 if base else 20_001,
                 "trials": 3 if labels >= 200 and kind != "majority" else 1},
    }  # fmt: skip


def _differences(rng: random.Random, arms: list[dict[str, Any]], counts: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    for labels in reversed(counts):
        here = [arm for arm in arms if arm["labels"] == labels]
        for a in here:
            for b in here:
                wanted = a["base"] and b["kind"] in ("scratch", "tfidf") and a["kind"] != "scratch"
                if not wanted or (b["base"] and a["base"] != b["base"]):
                    continue
                gap, half = a["mean"] - b["mean"], 0.018 + 0.01 * rng.random()
                found.append({"a": a["name"], "b": b["name"], "labels": labels, "difference": gap, "interval": [gap - half, gap + half],
                              "p": 0.0004 if abs(gap) > half else 0.31, "level": 0.95, "adjusted": labels == counts[-1],
                              "clear": abs(gap) > half, "over": "seeds and rows", "seeds": a["seeds"],
                              "needed": None if abs(gap) > half else {"seeds": None, "rows": 5234}})  # fmt: skip
    return found


def _curves(rng: random.Random, end: float, labels: int, seeds: int) -> dict[str, Any]:
    epochs = list(range(11))
    rise = [[0.5 + (end - 0.5) * (1 - 0.6**e) + rng.gauss(0, 0.008) for e in epochs] for _ in range(seeds)]
    return {
        "labels": labels, "epoch": epochs, "step": [50 * e for e in epochs], "valid_accuracy": rise,
        "train_loss": [[None] + [0.69 * 0.86**e + rng.gauss(0, 0.01) for e in epochs[1:]] for _ in range(seeds)],
        "valid_loss": [[0.7 - 0.3 * (v - 0.5) + 0.004 * e**1.5 for e, v in enumerate(row)] for row in rise],
    }  # fmt: skip


def _mistake(rng: random.Random, i: int, names: Sequence[str], seeds: int) -> dict[str, Any]:
    label, prediction = rng.sample(list(names), 2)
    text = TEXTS[i % len(TEXTS)]
    return {
        "row": 17 * i,
        "text": text,
        "label": label,
        "prediction": prediction,
        "probability": 0.999 - i / 100,
        "seeds": max(1, seeds - i % 2),
    }


def _said(rng: random.Random, names: Sequence[str], seeds: int) -> dict[str, int]:
    first, second = rng.sample(list(names), 2)
    some = rng.randint(1, seeds)
    return {first: some, **({second: seeds - some} if some < seeds else {})}


@pytest.fixture(scope="session")
def study() -> Callable[..., dict[str, Any]]:
    return make_results
