"""Two studies on the test rows that they share."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.study.against import against

GOOD, BAD = ["lovely", "warm", "great"], ["awful", "cold", "dull"]


def rows(count: int, seed: int, noise: float) -> list[str]:
    dice = random.Random(seed)
    made = []
    for i in range(count):
        good = dice.random() < 0.5
        words = f"{dice.choice(GOOD if good else BAD)} film {seed} number {i}"
        made.append(f"{words},{'pos' if good is (dice.random() >= noise) else 'neg'}")
    return made


def table(file: Path, lines: list[str]) -> str:
    file.write_text("\n".join(["text,label", *lines]) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """TF-IDF on clean labels, and on labels of which almost half are wrong; of 80 test rows, 60 are in both."""
    folder, test = tmp_path_factory.mktemp("against"), rows(100, 9, 0.1)
    made = []
    for name, noise, part in (("clean", 0.0, test[:80]), ("noisy", 0.45, test[20:])):
        train = table(folder / f"{name}.csv", rows(200, 1, noise))
        given = ["--test", table(folder / f"{name}-test.csv", part), "--arms", "majority,tfidf", "--quiet", "--yes"]
        done = CliRunner().invoke(app, ["compare", train, *given, "--out", str(folder / name)])
        assert done.exit_code == 0, done.output
        made.append(folder / name)
    return made[0], made[1]


def predicted(study: Path, arm: str) -> list[tuple[str, str]]:
    lines = (study / "cells" / f"{arm}~all~0" / "predictions.jsonl").read_text().splitlines()
    return [(row["label"], row["prediction"]) for row in map(json.loads, lines)]


def test_arms_are_compared_on_the_rows_that_both_have(studies: tuple[Path, Path]):
    found = against(*studies)
    assert (found.rows, found.test_rows) == (60, (80, 80))
    assert [c.here.arm for c in found.arms] == ["majority", "tfidf"]
    by_name = found.arms[1]
    here, there = predicted(studies[0], "tfidf")[20:], predicted(studies[1], "tfidf")[:60]
    assert by_name.here.mean == pytest.approx(accuracy_score(*zip(*here, strict=True)))
    assert by_name.there.mean == pytest.approx(accuracy_score(*zip(*there, strict=True)))
    assert by_name.difference == pytest.approx(by_name.here.mean - by_name.there.mean)
    assert by_name.interval[0] < by_name.difference < by_name.interval[1]
    turned = against(*reversed(studies))
    assert turned.arms[1].difference == pytest.approx(-by_name.difference)


def test_the_page_and_the_answer_say_the_same(studies: tuple[Path, Path]):
    here, there = map(str, studies)
    shown = CliRunner().invoke(app, ["report", here, "--against", there])
    assert shown.exit_code == 0, shown.output
    answer = json.loads(CliRunner().invoke(app, ["report", here, "--against", there, "--json"]).stdout)
    assert answer["against"]["rows"] == 60
    assert answer["against"]["verdict"] in shown.output
    page = (studies[0] / "against.html").read_text()
    assert "clean beside noisy" in page
    assert f"{answer['against']['best']['here']['mean']:.3f}" in page
    assert json.loads((studies[0] / "against.json").read_text()) == answer["against"]


def test_studies_of_other_rows_or_labels_are_refused(studies: tuple[Path, Path], tmp_path: Path):
    for name, test, says in (
        ("apart", rows(80, 77, 0.1), "share 0 test rows"),
        ("names", [line.replace(",pos", ",yes").replace(",neg", ",no") for line in rows(80, 9, 0.1)], "predicts something else"),
    ):  # fmt: skip
        train = rows(200, 1, 0.0)
        train = [line.replace(",pos", ",yes").replace(",neg", ",no") for line in train] if name == "names" else train
        given = ["--test", table(tmp_path / "t.csv", test), "--arms", "majority,tfidf", "--quiet", "--yes"]
        out = tmp_path / name
        done = CliRunner().invoke(app, ["compare", table(tmp_path / f"{name}.csv", train), *given, "--out", str(out)])
        assert done.exit_code == 0, done.output
        with pytest.raises(ConfigError, match=says):
            against(studies[0], out)


def test_a_folder_without_a_study_is_refused_before_anything_is_run(tmp_path: Path):
    train = table(tmp_path / "rows.csv", rows(50, 1, 0.0))
    done = CliRunner().invoke(app, ["compare", train, "--arms", "tfidf", "--against", str(tmp_path), "--out", str(tmp_path / "s")])  # fmt: skip
    assert done.exit_code == 5
    assert not (tmp_path / "s").exists()
