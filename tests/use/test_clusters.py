"""Clusters of texts: found where there are some, named by their own words, and the same ones each time."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import UserError
from headstart.use.clusters import characteristic_words, find_clusters

TOPICS = {"football": ("goal", "match"), "music": ("song", "band"), "money": ("bank", "shares")}


@pytest.fixture
def texts() -> list[str]:
    """20 texts about football, 16 about music, 12 about money, shuffled."""
    made = [
        f"the {words[i % 2]} and the {topic} of day {i}"
        for (topic, words), size in zip(TOPICS.items(), (20, 16, 12), strict=True)
        for i in range(size)
    ]
    return [made[i] for i in np.random.default_rng(0).permutation(len(made))]


@pytest.fixture
def vectors(texts: list[str]) -> Any:
    """One direction for each topic, of any length, and a little noise."""
    rng = np.random.default_rng(0)
    centres = {topic: np.eye(8)[i] for i, topic in enumerate(TOPICS)}
    rows = [centres[next(t for t in TOPICS if t in text)] * rng.uniform(1, 9) for text in texts]
    return (np.stack(rows) + 0.02 * rng.normal(size=(len(texts), 8))).astype(np.float32)


@pytest.mark.parametrize("count", [3, None])
def test_the_clusters_are_the_topics_the_largest_first(texts: list[str], vectors: Any, count: int | None) -> None:
    found = find_clusters(texts, vectors, count)
    assert [each.size for each in found.clusters] == [20, 16, 12]
    for topic, each in zip(TOPICS, found.clusters, strict=True):
        assert each.words[0] == topic
        assert set(each.words) == {topic, *TOPICS[topic]}  # not "the", "and", "day", which all have
        assert each.name == ", ".join(each.words)
        assert len(each.typical) == 3
        assert all(texts[text.row - 1] == text.text and topic in text.text for text in each.typical)
    assert [topic in text for text in texts for topic in TOPICS] == [
        number == i for number in found.numbers for i in (1, 2, 3)
    ]
    assert bool(found.tried) == (count is None)
    assert found.silhouette is not None
    assert found.silhouette > 0.8
    assert find_clusters(texts, vectors, count) == found


def test_the_words_are_ranked_by_class_based_tf_idf() -> None:
    texts, numbers = ["tea tea cup", "tea cup pot", "rain rain sun", "sun wind"], np.array([0, 0, 1, 1])
    mean = 11 / 2  # words of a cluster

    def score(times: int, of: int, total: int) -> float:
        return times / of * math.log(1 + mean / total)

    own = {"tea": score(3, 6, 3), "cup": score(2, 6, 2), "pot": score(1, 6, 1)}
    assert characteristic_words(texts, numbers, 2)[0] == tuple(sorted(own, key=lambda word: -own[word]))
    other = {"rain": score(2, 5, 2), "sun": score(2, 5, 2), "wind": score(1, 5, 1)}
    assert characteristic_words(texts, numbers, 2)[1] == tuple(sorted(other, key=lambda word: (-other[word], word)))


def test_typical_texts_are_nearest_to_the_centre_and_different() -> None:
    texts = ["a", "a", "b", "c", "d", "z", "y"]
    vectors = np.array([[1, 0.0], [1, 0.0], [1, 0.01], [1, -0.01], [1, 0.5], [0, 1], [0.01, 1]], np.float32)
    first = find_clusters(texts, vectors, 2).clusters[0]
    assert sorted(text.text for text in first.typical) == ["a", "b", "c"]


@pytest.mark.parametrize(("count", "rows"), [(3, 2), (None, 2), (2, 1)])
def test_too_few_different_texts_are_refused(count: int | None, rows: int) -> None:
    vectors = np.repeat(np.eye(rows, dtype=np.float32), 2, axis=0)
    with pytest.raises(UserError, match="clusters need more texts"):
        find_clusters(["x"] * len(vectors), vectors, count)


def test_the_verb_keeps_every_column(runs: dict[str, Path], texts: list[str], tmp_path: Path) -> None:
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("id,text\n" + "".join(f"{i},film {i} was {'cold' if i % 2 else 'lovely'}\n" for i in range(12)))
    words = ["cluster", str(runs["mlm"]), "--file", str(table), "--out", str(out), "--quiet"]
    done = CliRunner().invoke(app, [*words, "--clusters", "2", "--json"])
    found = json.loads(done.stdout)
    assert [each["number"] for each in found["clusters"]] == [1, 2]
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(i) for i in range(12)]
    names = {str(each["number"]): each["name"] for each in found["clusters"]}
    assert all(row["cluster_name"] == names[row["cluster"]] for row in rows)
    assert "already exists" in CliRunner().invoke(app, words).stderr
    shown = CliRunner().invoke(app, [*words, "--overwrite", "--clusters", "2"]).stdout
    assert "12 rows in 2 clusters" in shown
    for wrong in ("1", "many", "2.5"):
        done = CliRunner().invoke(app, [*words, "--overwrite", "--clusters", wrong])
        assert f"--clusters takes auto or a number from 2 to 1000, not '{wrong}'" in done.stderr
