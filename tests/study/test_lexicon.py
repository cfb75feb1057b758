"""The lexicon arm: only for labels that are polarities, the same at every label count, proper probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import ConfigError
from headstart.hub import pack_contents
from headstart.hub.pack_contents import Pack
from headstart.schema import parse
from headstart.study.lexicon import lexicon_probabilities, polarities
from headstart.study.plan import StudyConfig
from headstart.study.study import Study


@pytest.fixture(autouse=True)
def lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lexicon of four words in place of the pack."""

    def make(archives: list[Any], folder: Path) -> None:
        words = {"lovely": 3.0, "warm": 0.9, "awful": -2.0, "cold": -1.0, "so-so": 0.1}
        (folder / "vader_lexicon.txt").write_text(
            "".join(f"{word}\t{valence}\t0\t[]\n" for word, valence in words.items())
        )
        (folder / "emoji_utf8_lexicon.txt").write_text("😀\tlovely face\n")

    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(pack_contents.PACKS, "vader", Pack("lexicon", "", "", make, ""))


def table(folder: Path, labels: tuple[str, str]) -> Path:
    words = (("awful", "cold"), ("lovely", "warm"))
    rows = [f"film {i} was {words[i % 2][i // 2 % 2]},{labels[i % 2]}" for i in range(60)]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]))
    return folder / "rows.csv"


@pytest.mark.parametrize(
    ("labels", "given", "expected"),
    [
        (["neg", "pos"], {}, ["negative", "positive"]),
        (["Negative", "neutral", "Positive"], {}, ["negative", "neutral", "positive"]),
        (["0", "1"], {"0": "negative", "1": "positive"}, ["negative", "positive"]),
    ],
)
def test_labels_that_are_polarities_are_known(labels: list[str], given: dict[str, str], expected: list[str]) -> None:
    assert list(polarities(labels, given).values()) == expected


@pytest.mark.parametrize(
    "labels", [["0", "1"], ["ham", "spam"], ["neg", "neutral"], ["bad", "neg", "pos"], ["a", "b", "c", "d"]]
)
def test_other_labels_are_refused(labels: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"needs the labels negative and positive.* --label-words"):
        polarities(labels, {})


def test_probabilities_follow_the_score() -> None:
    two = {"n": "negative", "p": "positive"}
    texts = ["awful", "cold", "nothing", "warm", "lovely", "😀"]
    rows = lexicon_probabilities(texts, two)
    assert [max(row, key=row.get) for row in rows] == ["n", "n", "p", "p", "p", "p"]
    assert [row["p"] for row in rows[:5]] == sorted(row["p"] for row in rows[:5])
    three = lexicon_probabilities([*texts, "so-so"], {**two, "0": "neutral"})
    assert [max(row, key=row.get) for row in three] == ["n", "n", "0", "p", "p", "p", "0"]
    assert all(sum(row.values()) == pytest.approx(1) for row in [*rows, *three])


def test_it_is_the_same_at_every_label_count(tmp_path: Path) -> None:
    given = {
        "data": {"train": str(table(tmp_path, ("neg", "pos")))},
        "arms": ["lexicon", "tfidf"],
        "seeds": 2,
        "labels": [20, 0],
    }
    results = Study.run(parse(StudyConfig, given), tmp_path / "study").results
    found = [arm for arm in results.arms if arm.name == "lexicon"]
    assert [(arm.labels, arm.seeds, arm.mean) for arm in found] == [(0, 1, 1.0)]
    assert {(d.a, d.b) for d in results.differences} == {("lexicon", "tfidf")}
    assert [(needed.arm, needed.reference) for needed in results.labels_needed] == [("tfidf", "lexicon")]


def test_other_labels_end_the_command_before_anything_is_written(tmp_path: Path) -> None:
    rows, out = table(tmp_path, ("spam", "ham")), tmp_path / "study"
    done = CliRunner().invoke(app, ["compare", str(rows), "--arms", "lexicon,tfidf", "--out", str(out), "--yes"])
    assert done.exit_code == 4
    assert "here they are ham, spam" in done.stderr
    assert not (out / "study.json").exists()
