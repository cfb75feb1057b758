"""Search among texts: cosines and BM25 side by side, duplicates folded, vectors computed once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import DataError
from headstart.text.bm25 import BM25
from headstart.use.encode import LoadedEncoder
from headstart.use.text_search import TextSearch

TEXTS = [
    "film 1 was lovely from end to end",
    "film 2 was cold",
    "",
    "Film 1 was LOVELY from end  to end",
    "film 3 was bright",
    "film 2 was awful from end to end",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_nearest_are_those_of_a_plain_comparison(runs: dict[str, Path]) -> None:
    (found,) = TextSearch.over(TEXTS, runs["mlm"]).find(["film 2 was dull"], top=10)
    unique = [TEXTS[i] for i in (0, 1, 4, 5)]
    vectors = LoadedEncoder.load(runs["mlm"], True).encode([*unique, "film 2 was dull"])
    cosines = vectors[:-1] @ vectors[-1]
    order = np.argsort(-cosines, kind="stable")
    assert [near.text for near in found.by_embedding] == [unique[i] for i in order]
    assert_allclose([near.score for near in found.by_embedding], cosines[order], atol=1e-6)
    words = BM25(unique).scores("film 2 was dull")
    assert [near.text for near in found.by_words] == [unique[i] for i in np.argsort(-words, kind="stable")]
    assert {near.text: near.other_rank for near in found.by_embedding} == {
        near.text: near.rank for near in found.by_words
    }


def test_duplicates_are_folded_and_blank_texts_left_out(runs: dict[str, Path]) -> None:
    (found,) = TextSearch.over(TEXTS, runs["mlm"]).find(["film 1 was lovely from end to end"])
    first = found.by_embedding[0]
    assert (first.row, first.copies, first.text, found.texts) == (1, 2, TEXTS[0], 4)
    assert first.score == pytest.approx(1, abs=1e-5)


def test_a_query_of_other_words_has_no_match_by_words(runs: dict[str, Path]) -> None:
    (found,) = TextSearch.over(TEXTS, runs["mlm"]).find(["zzz"], top=2)
    assert (len(found.by_embedding), found.by_words) == (2, ())
    assert "No text has a word of the query." in str(found)


def test_the_vectors_are_computed_once(runs: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TextSearch.over(TEXTS, runs["mlm"]).vectors
    seen: list[Any] = []
    encode = LoadedEncoder.encode
    monkeypatch.setattr(
        LoadedEncoder, "encode", lambda self, texts, watch=None: seen.append(texts) or encode(self, texts)
    )
    assert_allclose(TextSearch.over(TEXTS, runs["mlm"]).vectors, before)
    assert not seen
    TextSearch.over(TEXTS, runs["lm"])  # another base has other vectors
    TextSearch.over(TEXTS[:2], runs["mlm"])
    assert len(seen) == 2


def search(*words: str) -> Any:
    return CliRunner().invoke(app, ["search", *words])


def test_the_verb_takes_queries_from_both_places(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "queries.txt").write_text("cold\n\nlovely\n")
    words = [
        str(tmp_path / "texts.txt"),
        "bright",
        "--file",
        str(tmp_path / "queries.txt"),
        "--model",
        str(runs["mlm"]),
    ]
    done = search(*words, "--top", "2", "--json", "--quiet")
    found = json.loads(done.stdout)
    assert [each["query"] for each in found] == ["bright", "cold", "lovely"]
    assert [len(each["by_embedding"]) for each in found] == [2, 2, 2]
    assert found[1]["by_words"][0]["text"] == "film 2 was cold"
    shown = search(*words, "--quiet").stdout
    assert "by embeddings" in shown
    assert "1 (x 2)" in shown


def test_what_is_for_images_is_refused_for_texts(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = [str(tmp_path / "texts.txt"), "--model", str(runs["mlm"])]
    done = search(*words, "cold", "--target", "a.png")
    assert (done.exit_code, "--target is for images" in done.stderr) == (2, True)
    assert "Nothing to look for" in search(*words).stderr
    with pytest.raises(DataError, match="A query to search for is blank"):
        TextSearch.over(TEXTS, runs["mlm"]).find([" "])
    with pytest.raises(DataError, match="no text to search in"):
        TextSearch.over(["", " "], runs["mlm"])
