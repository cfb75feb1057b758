"""The demo's own data and page; the demo itself is `make demo`."""

from __future__ import annotations

import re
from pathlib import Path

from headstart.study.baselines import majority, tfidf
from headstart.study.demo import write_data
from headstart.study.report import write_page
from headstart.text.read import read_corpus, read_labelled
from headstart.text.split import Labelled


def reviews(path: Path) -> Path:
    rows = [f"imdb text {i}<br />more,{i % 2},imdb" for i in range(30)]
    rows += [f"tomato sentence {'good' if i % 2 else 'bad'} {i},{i % 2},rotten_tomatoes" for i in range(4000)]
    path.write_text("\n".join(["text,label,source", *rows]))
    return path


def test_no_test_row_is_ever_trained_on(tmp_path: Path) -> None:
    corpus, labelled = write_data(reviews(tmp_path / "reviews.csv"), tmp_path / "data")
    few = read_labelled(labelled, None, None)
    test = read_labelled(tmp_path / "data" / "test.csv", None, None)
    assert (len(few), len(test)) == (400, 2000)
    assert not {e.text for e in few} & {e.text for e in test}
    assert "tomato" not in corpus.read_text()
    assert len(read_corpus([corpus], "document")) == 30  # a review is a text of its own
    assert {e.label for e in few} == {"negative", "positive"}


def test_the_linear_baseline_finds_the_telling_word(tmp_path: Path) -> None:
    _, labelled = write_data(reviews(tmp_path / "reviews.csv"), tmp_path / "data")
    rows = read_labelled(labelled, None, None)
    data = Labelled(rows[:200], rows[200:300], rows[300:], ["negative", "positive"])
    truth = [e.label for e in data.test]
    assert tfidf(data).predictions == truth
    right = sum(p == t for p, t in zip(majority(data).predictions, truth, strict=True))
    assert 0.3 < right / len(truth) < 0.7


def test_the_page_is_one_file_and_shows_text_as_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    facts = {
        "title": "A title",
        "verdict": hostile,
        "arms": [{"name": hostile, "mean": 0.5, "accuracies": [0.5], "interval": [0.4, 0.6], "seconds": 1.0}],
        "rows": {"train": 1, "valid": 1, "test": 1},
        "overlap": 0,
        "pretraining_seconds": 1.0,
        "predictions": [{"text": hostile, "label": "a", "probabilities": {"a": 1.0}}],
        "generated": {"tokens": [{"token": hostile, "probability": 0.5}]},
        "version": "0",
    }
    write_page(tmp_path / "page.html", facts, {"curves": "<?xml?><svg></svg>"})
    page = (tmp_path / "page.html").read_text()
    assert hostile not in page
    assert page.count("&lt;script&gt;") == 4
    assert "<svg></svg>" in page
    assert not re.search(r"(src|href)\s*=", page)
