"""Tags through the whole road: trained, scored, used, exported, compared."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from seqeval.metrics import accuracy_score, f1_score
from typer.testing import CliRunner

from headstart.cli import app
from headstart.use.predict import LoadedClassifier
from headstart.use.tag import LoadedTagger

FIRST, LAST = (
    ["Ada", "Alan", "Grace", "Linus", "Marie", "Niels", "Rosa", "Omar"],
    ["Lovelace", "Turing", "Hopper", "Curie", "Bohr", "Parks"],
)
PLACES = ["Paris", "Berlin", "Oslo", "Kyoto", "Lagos", "Lima", "Cairo", "Boston"]
FRAMES = (
    "{who} moved to {where} .",
    "{who} met {who} in {where} .",
    "It rained in {where} .",
    "Nobody knew , {who} said .",
)
SMALL = ["--base", "bert", "--init", "scratch", "--size", "nano", "--tokenizer", "word", "--threads", "1", "--quiet"]


def sentence(dice: random.Random) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in dice.choice(FRAMES).split():
        if word == "{who}":
            found.append((dice.choice(FIRST), "B-PER"))
            found += [(dice.choice(LAST), "I-PER")] if dice.random() < 0.5 else []
        else:
            found.append((dice.choice(PLACES), "B-LOC") if word == "{where}" else (word, "O"))
    return found


def conll(rows: list[list[tuple[str, str]]]) -> str:
    return "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in row) for row in rows) + "\n"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dice = random.Random(0)
    file = tmp_path_factory.mktemp("names") / "names.conll"
    file.write_text(conll([sentence(dice) for _ in range(300)]))
    return file


@pytest.fixture(scope="module")
def run(names: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tagger") / "run"
    done = CliRunner().invoke(app, ["finetune", str(names), *SMALL, "--epochs", "8", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


def predictions(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]


def invoked(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_tags_are_found_learned_and_scored_as_seqeval_does(run: Path):
    result, rows = json.loads((run / "result.json").read_text()), predictions(run)
    known, said = ([row[key] for row in rows] for key in ("label", "prediction"))
    assert result["task"] == "tag"
    assert result["test"]["f1"] == pytest.approx(f1_score(known, said))
    assert result["test"]["accuracy"] == pytest.approx(accuracy_score(known, said))
    assert result["test"]["f1"] > 0.8
    assert result["commonest"] == {"label": "O", "train": 0.0, "valid": 0.0, "test": 0.0}


def test_a_saved_tagger_evaluates_as_it_did_when_it_was_trained(run: Path, tmp_path: Path):
    rows = predictions(run)
    (tmp_path / "again.conll").write_text(
        conll([list(zip(r["text"].split(" "), r["label"], strict=True)) for r in rows])
    )
    found = json.loads(invoked("evaluate", run, tmp_path / "again.conll", "--json"))
    test = json.loads((run / "result.json").read_text())["test"]
    assert {key: found[key] for key in ("f1", "precision", "recall", "accuracy", "rows")} == pytest.approx(
        {key: test[key] for key in ("f1", "precision", "recall", "accuracy", "rows")}
    )
    assert set(found["classes"]) == {"PER", "LOC"}
    shown = invoked("evaluate", run, tmp_path / "again.conll")
    assert "entity F1" in shown
    assert "PER" in shown


def test_a_text_is_shown_with_its_entities_in_their_place(run: Path):
    text = "Nobody knew, Ada Lovelace said."
    (record,) = json.loads(invoked("predict", run, text, "--json"))
    assert record["tokens"] == ["Nobody", "knew", ",", "Ada", "Lovelace", "said", "."]
    assert [record["text"][e["start"] : e["end"]] for e in record["entities"]] == ["Ada Lovelace"]
    assert record["label"] == ["O", "O", "O", "B-PER", "I-PER", "O", "O"]
    assert invoked("predict", run, text) == "Nobody knew, [Ada Lovelace PER] said.\n"


def test_texts_of_a_file_are_tagged(run: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("It rained in Paris.\nNobody knew.\n")
    said = invoked("predict", run, "--file", tmp_path / "texts.txt")
    assert said == "It rained in [Paris LOC].\nNobody knew.\n"


def test_one_word_is_tagged_the_same_beside_longer_texts(run: Path):
    tagger = LoadedClassifier.load(run)
    assert isinstance(tagger, LoadedTagger)
    texts = ["Oslo", "", "Ada met Grace Hopper in Kyoto ."]
    together = tagger.predict(texts)
    assert [record["tokens"] for record in together][1] == []
    for text, record in zip(texts, together, strict=True):
        (alone,) = tagger.predict([text])
        assert alone["label"] == record["label"]
        assert alone["tag_probabilities"] == pytest.approx(record["tag_probabilities"], abs=1e-5)


def test_a_text_longer_than_the_context_is_tagged_to_its_end(run: Path):
    (record,) = LoadedClassifier.load(run).predict(["It rained in Paris . " * 60])
    assert len(record["entities"]) > 50


@pytest.mark.parametrize("scope", ["head", "last:1", "full"])
def test_a_base_is_tuned_in_parts_and_a_frozen_one_stays_as_it_was(scope: str, names: Path, tmp_path: Path):
    texts = [line.partition("\t")[0] for line in names.read_text().splitlines()]
    (tmp_path / "corpus.txt").write_text(" ".join(texts).replace(" .", " .\n"))
    invoked("pretrain", tmp_path / "corpus.txt", "--unit", "line", "--objective", "masked", "--tokenizer", "word", "--size",
            "nano", "--steps", 20, "--threads", 1, "--quiet", "--out", tmp_path / "base")  # fmt: skip
    out = tmp_path / "run"
    invoked(
        "finetune",
        names,
        "--base",
        tmp_path / "base",
        "--train",
        scope,
        "--epochs",
        2,
        "--threads",
        1,
        "--quiet",
        "--out",
        out,
    )
    receipt, result = (json.loads((out / name).read_text()) for name in ("receipt.json", "result.json"))
    assert receipt["frozen_moved"] == []
    assert bool(receipt["frozen"]) == (scope != "full")
    assert receipt["head_strength"] is not None  # it started from a probe of the words
    assert result["test"]["f1"] > 0.5


def test_a_study_compares_taggers_with_a_conditional_random_field(names: Path, tmp_path: Path):
    texts = [line.partition("\t")[0] for line in names.read_text().splitlines()]
    (tmp_path / "corpus.txt").write_text(" ".join(texts).replace(" .", " .\n"))
    pretrain = ["--unit", "line", "--tokenizer", "word", "--size", "nano", "--steps", 20, "--threads", 1, "--quiet"]
    for objective in ("masked", "causal"):
        invoked("pretrain", tmp_path / "corpus.txt", "--objective", objective, *pretrain, "--out", tmp_path / objective)
    few = [
        "--set",
        "finetune.epochs=1",
        "--set",
        "least_steps=5",
        "--set",
        "rates=[0.003]",
        "--yes",
        "--quiet",
        "--json",
    ]
    bases = ["--base", tmp_path / "masked", "--base", tmp_path / "causal"]
    invoked("compare", names, *bases, "--seeds", 2, "--labels", "60,all", *few, "--out", tmp_path / "study")
    results = json.loads((tmp_path / "study" / "results.json").read_text())
    assert (results["task"], results["score"], results["failures"]) == ("tag", "f1", [])
    last = {arm["name"]: arm for arm in results["arms"] if arm["labels"] == max(results["labels"])}
    assert set(last) == {"most-frequent-tag", "crf", *(f"{arm} {o}" for arm in ("scratch", "frozen", "full") for o in ("masked", "causal"))}  # fmt: skip
    assert last["crf"]["mean"] > 0.9
    assert set(last["crf"]["types"]) == {"PER", "LOC"}
    assert set(last["crf"]["measures"]) == {"f1", "precision", "recall"}
    cell = predictions(tmp_path / "study" / "cells" / "crf~all~0")
    assert last["crf"]["mean"] == pytest.approx(f1_score([r["label"] for r in cell], [r["prediction"] for r in cell]))
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Sentences with their tags" in page
    assert '<th scope="row"><bdi>PER</bdi></th>' in page  # entities are counted by type, not by tag
    assert "<bdi>B-PER</bdi>" not in page
    assert "<small>PER</small></mark>" in page
    assert "a conditional random field" in results["verdict"]


@pytest.mark.parametrize("arm", ["tfidf", "lexicon", "hybrid", "majority"])
def test_arms_for_whole_texts_are_refused(arm: str, names: Path, run: Path, tmp_path: Path):
    command = ["compare", str(names), "--base", str(run), "--arms", arm, "--yes", "--out", str(tmp_path / "study")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 4
    assert f"The arm {arm}" in done.output


def test_parts_of_speech_lead_with_token_accuracy(tmp_path: Path):
    dice, words = random.Random(1), {"N": FIRST, "V": ["met", "saw", "left"], "P": ["in", "at"], ".": ["."]}
    rows = [[(dice.choice(words[tag]), tag) for tag in "NVPN."] for _ in range(120)]
    (tmp_path / "pos.conll").write_text(conll(rows))
    invoked("finetune", tmp_path / "pos.conll", *SMALL, "--epochs", 3, "--out", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["test"]) == {"accuracy", "macro_f1", "rows", "words", "without_overlap"}
    assert invoked("predict", tmp_path / "run", "Ada met Omar.").startswith("Ada/")
