"""search and match on the command line: what they print, as text and as JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_search_prints_and_draws_what_it_finds(pictures: Path, matcher: Path, tmp_path: Path) -> None:
    words = ["search", pictures, "red over ocean", "green", "--model", matcher, "--top", 3, "--quiet"]
    found = json.loads(run(*words, "--json"))
    assert [(f["caption"], f["rank"]) for f in found] == [
        (c, r) for c in ("red over ocean", "green") for r in (1, 2, 3)
    ]
    assert found[0].keys() == {"caption", "file", "score", "rank"}
    assert found[0]["file"].startswith("images/red-blue")
    told = run(*words, "--png", tmp_path / "a.png", "--html", tmp_path / "a.html")
    assert f"   1  {found[0]['score']:.4f}  {found[0]['file']}" in told
    assert "contact sheet: " in told
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.html").read_text("utf-8").count("<figure") == 6


def test_search_for_a_target_tells_ranks_and_words(pictures: Path, matcher: Path, tmp_path: Path) -> None:
    words = ["search", pictures, "red", "red over ocean", "--target", "red-blue-0.png", "--model", matcher, "--quiet"]
    found = json.loads(run(*words, "--json", "--html", tmp_path / "a.html"))
    assert found["target"] == "images/red-blue-0.png"
    assert [w["word"] for w in found["captions"][1]["words"]] == ["red", "over", "ocean"]
    assert found["captions"][1]["rank"] <= 3 < found["captions"][0]["rank"]
    assert 'class="hs-said"' in (tmp_path / "a.html").read_text("utf-8")
    assert re.search(r"^\+ ocean +[+-]0\.\d{4} +\d+$", run(*words), flags=re.MULTILINE)


def test_bad_images_are_told_and_the_rest_is_searched(pictures: Path, matcher: Path, tmp_path: Path) -> None:
    """D25"""
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    (folder / "images" / "bad.jpg").write_text("no image")
    (folder / "images" / "drawing.svg").write_text("<svg/>")
    words = ["search", str(folder), "red", "--model", str(matcher), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)) == 10
    assert "Note: images/bad.jpg was left out: not a PNG, JPEG or WebP image.\n" in done.stderr
    assert "Note: 2 images were left out.\n" in done.stderr
    strict = CliRunner().invoke(app, [*words, "--strict"])
    assert strict.exit_code == 3
    assert "2 of 50 images cannot be used: images/bad.jpg: not a PNG" in strict.stderr


def test_match_train_evaluate_and_classify(pictures: Path, towers: dict[str, str], tmp_path: Path) -> None:
    named = ["--text", towers["text"], "--image", towers["image"]]
    short = ["--set", "train.steps=100", "--set", "train.tensorboard=false", "--lr", 0.01, "--batch-size", 16]
    told = run("match", "train", pictures, *named, *short, "--threads", 1, "--out", "run", "--quiet")
    assert re.match(r"run: text and image, [\d,]+ of [\d,]+ parameters trained, 100 steps, .* s\n", told)
    assert re.search(r"^caption to image +recall@1 +[\d.]+ +[\d.]+ to [\d.]+ +0\.2000$", told, flags=re.MULTILINE)
    assert (
        "This run is finished already" in CliRunner().invoke(app, ["match", "train", "--out", "run", "--resume"]).stderr
    )
    words = ["match", "evaluate", "run", pictures, "--quiet"]
    scores = json.loads(run(*words, "--json"))
    assert (scores["images"], scores["captions"]) == (48, 96)
    low, high = scores["text_to_image"]["recall@5"]["interval"]
    assert low <= scores["text_to_image"]["recall@5"]["value"] <= high
    assert scores["text_to_image"]["recall@5"]["value"] > 3 * scores["chance"]["text_to_image"]["recall@5"]
    assert "96 captions, 48 images" in run(*words)
    lines = run("match", "classify", "run", pictures / "images", "--labels", "red, blue", "--quiet").splitlines()
    assert len(lines) == 48
    assert all(re.match(r"(red|blue)\t[01]\.\d\d\t\S+\.png$", line) for line in lines)


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_pairs_that_are_not_there_are_told(verb: str, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("file,caption\n")
    done = CliRunner().invoke(app, ["match", verb, str(tmp_path / "pair.csv"), "--out", str(tmp_path / "out")])
    assert (done.exit_code, "pair.csv: no such file. Did you mean 'pairs.csv'?" in done.stderr) == (3, True)
    done = CliRunner().invoke(app, ["match", verb, str(pictures / "images"), "--out", str(tmp_path / "out")])
    assert (done.exit_code, "this folder needs a pairs.csv" in done.stderr) == (3, True)
    assert not (tmp_path / "out").exists()
