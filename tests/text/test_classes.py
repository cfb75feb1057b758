"""Labels that are classes pass; numbers, ids and lists do not. Spellings become one only where they differ by nothing else."""

from __future__ import annotations

import csv
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.text.classes import not_classes
from headstart.text.files import Reading
from headstart.text.hygiene import check
from headstart.text.read import Example, read_labelled
from headstart.text.split import split_labelled

RNG = random.Random(0)
CLASSES = {
    "two": ["0", "1"] * 20,
    "three signs": ["-1", "0", "1"] * 20,
    "stars": list("12345") * 10,
    "stars written with decimals": ["1.0", "2.0", "3.0", "4.0", "5.0"] * 10,
    "half stars": [str(n / 2) for n in range(1, 11)] * 5,
    "half stars with a comma": ["3,5", "4,0", "4,5", "5,0"] * 5,
    "years": [str(year) for year in range(1990, 2021)] * 6,
    "numbers of 150 intents": [str(n) for n in range(150)] * 20,
    "numbers of 77 intents from 1": [str(n) for n in range(1, 78)] * 5,
    "150 intents": [f"intent_{n}" for n in range(150)] * 20,
    "20 classes of 3 rows": [f"class {n}" for n in range(20)] * 3,
    "letters": list("abcdefghijklmnopqrstuvwxyz") * 4,
    "names with commas": ["arts, culture", "home, garden", "news", "arts, crafts"] * 5,
    "names with bars": ["home|kitchen", "home|garden", "sport|ball", "sport|run"] * 5,
    "names with brackets": ["film (good)", "film (bad)"] * 5,
}
OTHERS = {
    "a rating": ([f"{RNG.uniform(1, 5):.1f}" for _ in range(300)], "different numbers in 300 rows"),
    "a rating with a comma": ([f"{RNG.uniform(1, 5):.1f}".replace(".", ",") for _ in range(300)], "different numbers"),
    "prices": ([f"{RNG.uniform(1, 500):.2f}" for _ in range(100)], "regression"),
    "ages": ([str(RNG.randint(18, 90)) for _ in range(400)], "regression"),
    "few rows of many whole numbers": ([str(RNG.randint(10, 50)) for _ in range(60)], "different numbers in 60 rows"),
    "ids": ([f"u{n:04}" for n in range(100)], "100 different labels in 100 rows"),
    "numbers of rows": ([str(n) for n in range(200)], "200 different numbers in 200 rows"),
    "nearly one row a label": ([f"n{n}" for n in range(60)] + ["n1"] * 20, "60 different labels in 80 rows"),
    "lists with bars": (["a|b", "a", "b|c", "c", "b"] * 6, r"several in one \('a\|b', 'b\|c'\)"),
    "lists with semicolons": (["joy;love", "joy", "love;anger", "anger;joy"] * 5, "keep one label per row"),
    "lists with commas": (["3,10,2", "27", "10,3,27", "3", "10", "2"] * 5, "several in one"),
    "lists in brackets": (["['a']", "['a', 'b']", "['c', 'b']"] * 5, "several in one"),
}


def table(tmp_path: Path, labels: list[str]) -> LabelledConfig:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((f"text number {i}", label) for i, label in enumerate(labels))]
        )
    return LabelledConfig(train=str(path))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_classes(name: str) -> None:
    assert not_classes(Counter(CLASSES[name])) is None
    found = check({"train": [Example(f"text {i}", label) for i, label in enumerate(CLASSES[name])]})
    assert not [warning for warning in found["warnings"] if "no classes" in warning]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_class_is_another_task_or_refused_and_warned_of(name: str, tmp_path: Path) -> None:
    labels, says = OTHERS[name]
    if name in ("ids", "numbers of rows", "nearly one row a label"):
        with pytest.raises(DataError, match=says) as caught:
            split_labelled(table(tmp_path, labels))
        assert caught.value.code == "DATA_LABEL"
        assert "--any-labels" in str(caught.value)
    else:
        expected = "multilabel" if "lists" in name else "regression"
        assert split_labelled(table(tmp_path, labels)).target.task == expected
        assert re.search(says, not_classes(Counter(labels)) or "")
    found = check({"train": [Example(f"text {i}", label) for i, label in enumerate(labels)]})
    assert sum("no classes" in warning for warning in found["warnings"]) == 1


def test_whoever_means_it_can_have_any_labels(tmp_path: Path) -> None:
    cfg = table(tmp_path, OTHERS["lists with bars"][0]).model_copy(update={"any_labels": True})
    assert split_labelled(cfg).labels == ["a", "a|b", "b", "b|c", "c"]


def test_labels_are_cleaned_alike_in_all_parts_and_counted(tmp_path: Path) -> None:
    train = ["pos", "Pos ", "neg", "pos", " neg", "NEG", "neg", "pos"] * 5
    (tmp_path / "test.csv").write_text('text,label\none,POS\ntwo,"neg "\nthree,neg\n')
    cfg = table(tmp_path, train).model_copy(update={"clean_labels": True, "test": str(tmp_path / "test.csv")})
    data = split_labelled(cfg)
    assert data.labels == ["neg", "pos"]
    assert [e.label for e in data.test] == ["pos", "neg", "neg"]
    assert data.facts()["reading"]["labels_cleaned"] == 3 * 5 + 2
    (note,) = data.reading.notes()
    assert note.startswith("--clean-labels changed the label of 17 rows: 'Pos ' to 'pos' (5), ' neg' to 'neg' (5)")


def test_cleaned_labels_take_the_spelling_that_a_model_knows(tmp_path: Path) -> None:
    cfg = table(tmp_path, ["neg", "neg", " Pos"]).model_copy(update={"clean_labels": True})
    assert {e.label for e in read_labelled(cfg.train, None, None, Reading(cfg), known=["NEG", "pos"])} == {"NEG", "pos"}


def test_blank_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,x\n ,y\nb,y\nc,\nd,y\n")
    cfg = LabelledConfig(train=str(tmp_path / "rows.csv"), skip_blank=True)
    reading = Reading(cfg)
    assert [e.text for e in read_labelled(cfg.train, None, None, reading)] == ["a", "b", "d"]
    assert reading.facts()["blank_rows_skipped"] == 2
    assert reading.notes() == ["--skip-blank left out 2 rows without a text or a label."]
