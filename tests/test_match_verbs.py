"""search and match on the command line: what they print, as text and as JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
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
    assert found[0].keys() == {"caption", "file", "score", "rank", "own_caption"}
    assert found[0]["file"].startswith("images/red-blue")
    told = run(*words, "--png", tmp_path / "a.png", "--html", tmp_path / "a.html")
    assert re.match(rf"red over ocean\nrank .*\n---.*\n   1  {found[0]['score']:.4f}  {found[0]['file']}", told)
    assert "contact sheet: " in told
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.html").read_text("utf-8").count("<figure") == 6


def test_search_for_a_target_tells_ranks_and_words(pictures: Path, matcher: Path, tmp_path: Path) -> None:
    words = ["search", pictures, "red", "red over ocean", "--target", "red-blue-0.png", "--model", matcher, "--quiet"]
    found = json.loads(run(*words, "--json", "--html", tmp_path / "a.html"))
    assert found["target"] == "images/red-blue-0.png"
    assert [w["word"] for w in found["captions"][1]["words"]] == ["red", "over", "ocean"]
    assert [each["rank"] for each in found["captions"][1]["found"]] == list(range(1, 11))
    assert found["captions"][1]["rank"] <= 3 < found["captions"][0]["rank"]
    assert 'class="hs-said"' in (tmp_path / "a.html").read_text("utf-8")
    told = run(*words, "--top", 1)
    assert re.search(r"^\+ ocean +[+-]0\.\d{4} +\d+$", told, flags=re.MULTILINE)
    assert re.search(r"^ +\d+ +-?0\.\d{4}  images/red-blue-0.png \(wanted\)", told, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("images", "words", "says"),
    [
        ("nowhere", ["red"], r"nowhere: no such f"),
        ("pictures", ["red", " "], "is blank"),
        ("pictures", ["red", "--target", "none.png"], "no such image in"),
    ],
)
def test_what_cannot_be_searched_is_told_before_a_model_is_made(
    images: str, words: list[str], says: str, pictures: Path, tmp_path: Path
) -> None:
    shutil.copytree(pictures, tmp_path / "pictures")
    done = CliRunner().invoke(app, ["search", images, *words])
    assert done.exit_code == 3, done.stderr
    assert re.match(rf"error\[\w+\]: .*{says}", done.stderr)  # and no line before it


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--png", "a.jpg"], "--png.*'a.jpg' does not end with .png"),
        (["--html", "a.png"], "--html.*'a.png' does not end with .html or .htm"),
        (["--png", "a.png", "--top", "300"], "draws at most 200 images"),
    ],
)
def test_a_sheet_that_cannot_be_written_is_refused_first(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["search", "nowhere", "red", *words])
    assert done.exit_code == 2
    assert re.search(says, done.stderr)


def test_a_model_that_does_not_match_is_told_from_a_run_that_is_missing(pictures: Path) -> None:
    done = CliRunner().invoke(app, ["search", str(pictures), "red", "--model", "minilm"])
    assert done.exit_code == 5
    assert "minilm does not match captions and images" in done.stderr


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
    told = run(*words)
    assert "96 captions, 48 images" in told
    parts = json.loads(Path("run/data.json").read_text())["images"]
    assert scores["trained_on"] == {"train": parts["train"], "valid": parts["valid"]}
    note = f"! {parts['train']} of these 48 images were trained on, and {parts['valid']} more chose the best step"
    assert f"\n{note}" in told
    others = shutil.copytree(pictures, tmp_path / "others")
    words[3] = others
    assert f"\n{note}" in run(*words)  # copies are the same images
    for file in (others / "images").iterdir():
        with Image.open(file) as image:
            image.resize((22, 18)).save(file)
    assert "trained on" not in run(*words)
    lines = run("match", "classify", "run", pictures / "images", "--labels", "red, blue", "--quiet").splitlines()
    assert len(lines) == 48
    assert all(re.match(r"(red|blue)\t[01]\.\d\d\t\S+\.png$", line) for line in lines)
    told = run("match", "classify", "run", pictures, "--labels", "images,red", "--quiet").splitlines()
    assert told[-1].startswith(note)
    listed = run("runs", ".")
    assert re.search(r"recall@5 +test recall@5", listed)
    assert re.search(r"^run +match +finished +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ s$", listed, flags=re.MULTILINE)


def test_a_dry_run_writes_nothing(pictures: Path, towers: dict[str, str], tmp_path: Path) -> None:
    named = ["--text", towers["text"], "--image", towers["image"], "--batch-size", "16", "--threads", "1"]
    done = CliRunner().invoke(app, ["match", "train", str(pictures), *named, "--dry-run", "--json", "--out", "run"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["job"] == "match"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_pairs_that_are_not_there_are_told(verb: str, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("file,caption\n")
    done = CliRunner().invoke(app, ["match", verb, str(tmp_path / "pair.csv"), "--out", str(tmp_path / "out")])
    assert (done.exit_code, "pair.csv: no such file. Did you mean 'pairs.csv'?" in done.stderr) == (3, True)
    done = CliRunner().invoke(app, ["match", verb, str(pictures / "images"), "--out", str(tmp_path / "out")])
    assert (done.exit_code, "this folder needs a pairs.csv" in done.stderr) == (3, True)
    assert not (tmp_path / "out").exists()


def test_recall_that_guessing_reaches_is_left_out(pictures: Path, matcher: Path, tmp_path: Path) -> None:
    rows = (pictures / "pairs.csv").read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([rows[0], rows[1], rows[7], rows[13], "red-red-1.png,"]))
    words = ["match", "evaluate", str(matcher), str(tmp_path / "few.csv"), "--images", str(pictures / "images")]
    assert "Note: left out 1 row without a file or a caption.\n" in CliRunner().invoke(app, words).stderr
    told = run(*words, "--quiet")
    assert told.startswith("3 captions, 3 images ")
    assert re.findall(r"(recall@\d+) +[\d.]+ +[\d.]+ to", told) == ["recall@1", "recall@1"]
    assert "\n! Too few images to judge by: recall@5 and recall@10 would be 1 by guessing.\n" in told


def test_a_table_of_captions_can_be_checked(pictures: Path) -> None:
    assert json.loads(run("data", "check", pictures, "--json"))["splits"].popitem()[1]["rows"] == 96
