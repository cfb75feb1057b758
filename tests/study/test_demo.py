"""The demo's own data; the demo itself is `make demo`."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from headstart.hub.pack_contents import PACKS, Pack
from headstart.runs.watch import Watch
from headstart.study.baselines import majority, tfidf
from headstart.study.demo import PACK, fetched, write_data
from headstart.text.read import read_corpus, read_labelled
from headstart.text.split import Labelled


def reviews(path: Path) -> Path:
    rows = [f"imdb text {i}<br />more,{i % 2},imdb" for i in range(30)]
    rows += [f"tomato sentence {'good' if i % 2 else 'bad'} {i},{i % 2},rotten_tomatoes" for i in range(4000)]
    path.write_text("\n".join(["text,label,source", *rows]))
    return path


def test_no_test_row_is_ever_trained_on(tmp_path: Path) -> None:
    write_data(reviews(tmp_path / "reviews.csv"), tmp_path / "data")
    corpus = tmp_path / "data" / "corpus.csv"
    few, test = (read_labelled(tmp_path / "data" / f"{name}.csv", None, None) for name in ("labelled", "test"))
    assert (len(few), len(test)) == (400, 2000)
    assert not {e.text for e in few} & {e.text for e in test}
    assert "tomato" not in corpus.read_text()
    assert len(read_corpus([corpus], "document")) == 30  # a review is a text of its own
    assert {e.label for e in few} == {"negative", "positive"}


def test_a_download_is_announced_only_when_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Notes(Watch):
        told = 0

        def note(self, text: str) -> None:
            self.told += "Fetching" in text

    def make(archives: list[ZipFile], folder: Path) -> None:
        reviews(folder / "reviews.csv")

    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(PACKS, PACK, Pack("labelled", "", "", make, "reviews.csv"))
    watch = Notes()
    first = fetched(watch)
    assert (first.name, watch.told) == ("reviews.csv", 1)
    assert (fetched(watch), watch.told) == (first, 1)


def test_the_linear_baseline_finds_the_telling_word(tmp_path: Path) -> None:
    write_data(reviews(tmp_path / "reviews.csv"), tmp_path / "data")
    rows = read_labelled(tmp_path / "data" / "labelled.csv", None, None)
    data = Labelled(rows[:200], rows[200:300], rows[300:], ["negative", "positive"])
    truth = [e.label for e in data.test]
    assert tfidf(data).predictions == truth
    right = sum(p == t for p, t in zip(majority(data).predictions, truth, strict=True))
    assert 0.3 < right / len(truth) < 0.7
