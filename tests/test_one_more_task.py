"""One more thing to predict, added to a copy of the code by one new file and a few lines in others, and that it then works.

The task is a count (0, 1, 2, ...), learned as log(1 + count) with a loss of its own. The same steps are in docs/tour.md, "Where do I add".
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import r2_score

import headstart

NEW = {
    "targets/counts.py": '''"""A count for each row: learned as log(1 + count)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from headstart.task import Task
from headstart.targets.numbers import Numbers, number_in
from headstart.targets.target import Encoded


class Counts(Numbers):
    task: ClassVar[Task] = "count"
    card = "A model that predicts a count for a text"
    linear = "ridge regression on log(1 + count)"

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Counts:
        logs = np.log1p([float(label) for label in labels])
        return cls(float(logs.mean()), float(logs.std()) or 1.0)

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        number = number_in(label)
        whole = number is not None and number >= 0 and number == int(number)
        return None if whole else f"'{label[:40]}' is no count"

    def encode(self, labels: Sequence[str]) -> Encoded:
        logs = np.log1p([float(label) for label in labels])
        return ((logs - self.mean) / self.spread).astype(np.float32)

    def written(self, answer: Any) -> float:
        return math.expm1(super().written(answer))

    def answer_of(self, written: Any) -> float:
        return (math.log1p(float(written)) - self.mean) / self.spread
''',
}
EDITS = {
    "task.py": [('"ordinal", "tag"]', '"ordinal", "tag", "count"]')],
    "targets/tasks.py": [
        ("from headstart.targets.labels", "from headstart.targets.counts import Counts\nfrom headstart.targets.labels"),
        ("Ordered, Tags)}", "Ordered, Tags, Counts)}"),
    ],
    "models/heads.py": [
        (
            "class OrderedHead(",
            '''class CountHead(NumberHead):
    def loss(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, float]:
        return F.huber_loss(self.logits(hidden)[:, 0], target, reduction="sum"), float(len(target))


class OrderedHead(''',
        ),
        ('    "tag": TagHead,\n', '    "tag": TagHead,\n    "count": CountHead,\n'),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with the task in it, and a table of texts with counts."""
    place = tmp_path_factory.mktemp("one-more")
    code = place / "headstart"
    shutil.copytree(Path(headstart.__file__).parent, code, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in NEW.items():
        assert not (code / name).exists()
        (code / name).write_text(text)
    for name, pairs in EDITS.items():
        text = (code / name).read_text()
        for before, after in pairs:
            assert text.count(before) == 1, f"{name} has no single {before!r} any more: bring this test up to date"
            text = text.replace(before, after)
        (code / name).write_text(text)
    dice, rows = random.Random(0), ["text,birds"]
    for i in range(400):
        words = dice.choices(["none", "one", "pair", "flock"], k=3)
        count = sum({"none": 0, "one": 1, "pair": 2, "flock": 12}[word] for word in words)
        rows.append(f"we saw {' '.join(words)} on day {i % 50},{count}")
    (place / "birds.csv").write_text("\n".join(rows))
    return place


def run(place: Path, *words: str) -> Any:
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "headstart", *words, "--json"]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_task_that_was_added_is_learned_used_and_compared(place: Path) -> None:
    named = ["--task", "count", "--label-column", "birds", "--quiet"]
    small = ["--base", "gpt", "--init", "scratch", "--size", "nano", "--tokenizer", "word", "--threads", "1", "--epochs", "12"]  # fmt: skip
    result = run(place, "finetune", "birds.csv", *named, *small, "--out", "run")
    rows = [json.loads(line) for line in (place / "run" / "predictions.jsonl").read_text().splitlines()]
    assert result["task"] == "count"
    assert result["test"]["r2"] > 0.7
    assert {row["label"] for row in rows} <= {float(n) for n in range(37)}
    assert r2_score(*([row[key] for row in rows] for key in ("label", "prediction"))) > 0.5
    few, many = run(place, "predict", "run", "we saw none none none on day 3", "we saw flock flock flock on day 3")
    assert few["label"] < 3 < 15 < many["label"]
    scores = run(place, "evaluate", "run", "birds.csv", "--label-column", "birds")
    assert scores["r2"] > 0.7
    (seen,) = run(place, "inspect", "run", "we saw none flock on day 3")
    assert seen["attribution"]["complete"]
    few_steps = ["--set", "finetune.epochs=2", "--set", "least_steps=20", "--rates", "0.003", "--yes"]
    arms = ["--base", "bert", "--arms", "constant,tfidf,scratch", "--seeds", "2", "--size", "nano"]
    study = run(place, "compare", "birds.csv", *named, *arms, *few_steps, "--out", "study")
    means = {arm["name"]: arm["mean"] for arm in study["arms"]}
    assert study["task"] == "count"
    assert means["tfidf"] > means["constant"] + 0.3
    assert "Predicted against true" in (place / "study" / "report.html").read_text()
