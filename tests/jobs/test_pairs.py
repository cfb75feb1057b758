"""Pairs of texts through the whole road: read, trained, scored, used, exported, compared."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from headstart import TextClassifier, TextRegressor
from headstart.cli import app
from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.text.split import split_labelled
from headstart.text.text_pair import TextPair
from headstart.use.predict import LoadedClassifier

PLACES = ["park", "barn", "house", "river", "street", "garden"]
ANIMALS = ["dog", "cat", "horse", "bird", "cow", "wolf"]
SMALL = ["--size", "nano", "--tokenizer", "word", "--threads", "1", "--quiet"]


def run(*args: str) -> Any:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whether both sentences name one animal, which neither of them shows alone; and the kind of the second, which is easy."""
    file, dice = tmp_path_factory.mktemp("pairs") / "pairs.csv", random.Random(0)
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("premise", "hypothesis", "label", "kind"))
        alike = [True, False] * 250
        dice.shuffle(alike)  # the number in the first sentence tells nothing
        for i, same in enumerate(alike):
            animal, place = dice.choice(ANIMALS), dice.choice(PLACES)
            other = animal if same else dice.choice([a for a in ANIMALS if a != animal])
            kind = "tame" if other in ANIMALS[:3] else "wild"
            pair = f"the {animal} is in the {place} {i}", f"a {other} sleeps"
            writer.writerow((*pair, "same" if same else "other", kind))
    return file


@pytest.fixture(scope="module")
def trained(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    run("finetune", str(table), "--base", "bert", "--init", "scratch", *SMALL, "--epochs", "6", "--label-column", "kind", "--out", str(out))  # fmt: skip
    assert json.loads((out / "result.json").read_text())["test"]["accuracy"] > 0.8
    return out


@pytest.fixture(scope="module")
def their_bert(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT of transformers with a WordPiece tokenizer, whose two token types differ by far."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "is", "in", "sleeps", *ANIMALS, *PLACES]
    (folder / "vocab.txt").write_text("\n".join([*words, *map(str, range(10)), *(f"##{i}" for i in range(10))]))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words) + 20, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.BertModel(config)
    with torch.no_grad():
        model.embeddings.token_type_embeddings.weight[1] += 1.0
    model.save_pretrained(folder)
    return folder


def predictions(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "predictions.jsonl").read_text().splitlines()]


def test_rows_of_two_usual_columns_are_pairs_and_those_with_one_first_text_stay_together(tmp_path: Path):
    file = tmp_path / "rows.csv"
    lines = [f"premise {i // 4},hypothesis {i},{'yes' if i % 2 else 'no'}" for i in range(400)]
    file.write_text("\n".join(["sentence1,sentence2,gold_label", *lines]))
    data = split_labelled(LabelledConfig(train=str(file)))
    assert data.reads == "pair"
    firsts = {name: {e.text.first for e in rows} for name, rows in data.parts().items()}
    assert not firsts["train"] & firsts["test"]
    assert not firsts["train"] & firsts["valid"]
    assert 60 <= len(data.test) <= 100
    alone = split_labelled(LabelledConfig(train=str(file), text_column="sentence2"))
    assert alone.reads == "text"
    assert alone.train[0].text.startswith("hypothesis")
    named = split_labelled(LabelledConfig(train=str(file), text_column="sentence2, sentence1"))
    assert named.train[0].text.first.startswith("hypothesis")


def test_parts_of_different_kinds_are_refused(table: Path, tmp_path: Path):
    (tmp_path / "test.csv").write_text("text,label\nthe dog,same\nthe cat,other\n")
    with pytest.raises(DataError, match="pairs of texts, those of another single"):
        split_labelled(LabelledConfig(train=str(table), test=str(tmp_path / "test.csv")))


def test_a_saved_model_predicts_and_evaluates_as_it_did_when_it_was_trained(trained: Path, table: Path):
    rows = predictions(trained)
    pairs = [TextPair(*row["text"].split(" ||| ")) for row in rows]
    found = LoadedClassifier.load(trained).predict(pairs)
    for row, again in zip(rows, found, strict=True):
        assert again["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)
    swapped = LoadedClassifier.load(trained).probabilities([TextPair(p.second, p.first) for p in pairs])
    assert np.abs(np.array(swapped) - [list(r["probabilities"].values()) for r in rows]).max() > 1e-3
    scores = json.loads(run("evaluate", str(trained), str(table), "--label-column", "kind", "--json").stdout)
    assert scores["rows"] == 500


def test_texts_of_the_command_line_are_taken_two_by_two(trained: Path):
    first, second = "the dog is in the park", "a dog sleeps"
    answer = json.loads(run("predict", str(trained), first, second, second, first, "--json").stdout)
    assert [row["text"] for row in answer] == [f"{first} ||| {second}", f"{second} ||| {first}"]
    odd = CliRunner().invoke(app, ["predict", str(trained), first])
    assert odd.exit_code == 3


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_table_of_pairs_is_labelled(trained: Path, tmp_path: Path, form: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": i, "premise": f"the dog is in the park {i}", "hypothesis": "a dog sleeps"} for i in range(5)]
    source, out = tmp_path / f"in.{form}", tmp_path / f"out.{form}"
    if form == "csv":
        with source.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif form == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), source)
    run("predict", str(trained), "--file", str(source), "--out", str(out), "--quiet")
    if form == "csv":
        made = list(csv.DictReader(out.read_text().splitlines()))
    elif form == "jsonl":
        made = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        made = pq.read_table(out).to_pylist()
    expected = LoadedClassifier.load(trained).predict([TextPair(r["premise"], r["hypothesis"]) for r in rows])
    assert [row["label"] for row in made] == [row["label"] for row in expected]
    assert [float(row["probability"]) for row in made] == pytest.approx([max(r["probabilities"].values()) for r in expected])  # fmt: skip


def test_an_onnx_file_and_its_example_predict_the_same(trained: Path, tmp_path: Path):
    file = tmp_path / "model.onnx"
    run("export", str(trained), "--to", "onnx", "--out", str(file))
    texts = ["the dog is in the park", "a dog sleeps", "the cat is in the barn " * 40, "a dog sleeps " * 70]
    ours = json.loads(run("predict", str(trained), *texts, "--json").stdout)
    theirs = json.loads(run("predict", str(file), *texts, "--json").stdout)
    for a, b in zip(ours, theirs, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
    shown = subprocess.run(
        [sys.executable, str(tmp_path / "model.example.py"), str(file), *texts], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    for line, row in zip(shown.stdout.splitlines(), ours, strict=True):
        label, probability, _ = line.split("\t")
        assert label == row["label"]
        assert float(probability) == pytest.approx(row["probabilities"][label], abs=2e-4)


@pytest.mark.parametrize("base", ["ours", "theirs"])
def test_transformers_reads_an_exported_pair_as_we_do(
    table: Path, trained: Path, their_bert: Path, base: str, tmp_path: Path
):
    transformers = pytest.importorskip("transformers")
    tuned = tmp_path / "run"
    start = ["--base", "bert", "--init", "scratch", *SMALL] if base == "ours" else ["--base", str(their_bert), "--threads", "1", "--quiet"]  # fmt: skip
    run("finetune", str(table), *start, "--pool", "cls", "--epochs", "1", "--out", str(tuned))
    run("export", str(tuned), "--to", "hf", "--out", str(tmp_path / "out"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    pairs = [("the dog is in the park", "a dog sleeps"), ("the cat is in the barn " * 9, "a dog " * 12)]
    loaded = LoadedClassifier.load(tuned)
    for first, second in pairs:
        ids = tokenizer(first, second, return_tensors="pt", truncation=True)
        with torch.no_grad():
            found = model(**ids).logits.softmax(-1)[0].double()
        expected = torch.tensor(loaded.probabilities([TextPair(first, second)])[0], dtype=torch.double)
        assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_an_external_bert_has_other_token_types_in_the_second_text(table: Path, their_bert: Path, tmp_path: Path):
    from headstart.jobs.finetune import Finetuning
    from headstart.jobs.job import Kept
    from headstart.runs.watch import Watch
    from headstart.schema import parse
    from headstart.tasks.classify import rows_of

    transformers = pytest.importorskip("transformers")
    from headstart.config import FinetuneConfig

    cfg = parse(FinetuneConfig, {"base": str(their_bert), "pool": "cls", "data": {"train": str(table)}})
    job = Finetuning.prepare(cfg, Kept(), Watch())
    first, second = "the dog is in the park", "a dog sleeps"
    rows, _, _ = rows_of([TextPair(first, second)], job.tokenizer, job.model.base, "truncate")
    theirs = transformers.BertTokenizerFast(str(their_bert / "vocab.txt"))(first, second, return_tensors="pt")
    assert rows[0].tolist() == theirs["input_ids"][0].tolist()
    ids = torch.tensor([rows[0].tolist()])
    with torch.no_grad():
        found = job.model.eval().base(ids, torch.ones_like(ids, dtype=torch.bool)).last
        expected = transformers.BertModel.from_pretrained(their_bert).eval()(**theirs).last_hidden_state
    assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_estimators_take_rows_of_two_texts(table: Path):
    with table.open() as file:
        rows = list(csv.DictReader(file))[:240]
    X = [(row["premise"], row["hypothesis"]) for row in rows]
    settings = {"model": {"size": "nano"}, "tokenizer": {"kind": "word"}, "train": {"threads": 1}}
    model = TextClassifier("bert", epochs=1, settings=settings).fit(X, [row["label"] for row in rows])
    assert model.predict_proba(np.array(X[:3], dtype=object)).shape == (3, 2)
    with pytest.raises(DataError, match="pairs of texts"):
        model.predict(["the dog is in the park"])
    number = TextRegressor("bert", epochs=1, settings=settings).fit(X, [float(len(a)) for a, _ in X])
    assert number.predict(X[:2]).shape == (2,)


def test_a_study_shows_what_each_text_alone_gives_away(table: Path, their_bert: Path, tmp_path: Path):
    leaky = tmp_path / "leaky.csv"
    with table.open() as file, leaky.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("premise", "hypothesis", "label"))
        for row in csv.DictReader(file):
            writer.writerow((row["premise"], row["hypothesis"] + (" now" if row["label"] == "same" else " later"), row["label"]))  # fmt: skip
    study = ["--base", str(their_bert), "--seeds", "1", "--epochs", "1", "--rates", "0.001", "--set", "least_steps=2", "--set", "finetune.train.threads=1", "--quiet", "--yes"]  # fmt: skip
    run("compare", str(table), *study, "--arms", "majority,overlap,first-only,second-only,tfidf,bi-encoder,static", "--set", "static_vectors=" + _vectors(tmp_path), "--out", str(tmp_path / "a"))  # fmt: skip
    answer = run("compare", str(leaky), *study, "--out", str(tmp_path / "b"))
    fair, unfair = (json.loads((tmp_path / name / "results.json").read_text()) for name in "ab")
    scores = {arm["name"]: arm["mean"] for arm in fair["arms"]}
    assert scores["overlap"] > 0.9
    assert scores["tfidf"] > 0.9
    assert max(scores["first-only"], scores["second-only"]) < 0.65
    assert scores["bi-encoder"] > 0.5
    assert "Caution" not in fair["verdict"]
    assert [arm["name"] for arm in unfair["arms"]] == [
        "majority", "tfidf", "overlap", "first-only", "second-only", "scratch", "frozen", "full", "bi-encoder"
    ]  # fmt: skip
    assert "Caution: the second text alone reaches 1.000, a constant answer 0.5" in unfair["verdict"]
    assert "the second text alone reaches" in answer.output


def _vectors(folder: Path) -> str:
    file = folder / "words.vec"
    words = [*ANIMALS, *PLACES, "the", "a", "sleeps"]
    rows = [f"{word} " + " ".join(str(int(i == j)) for j in range(len(words))) for i, word in enumerate(words)]
    file.write_text(f"{len(words)} {len(words)}\n" + "\n".join(rows) + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--prompt", "Review: {text}\nIt was"], "--prompt is for single texts"),
        (["--objective", "contrastive"], "--objective contrastive is for single texts"),
        (["--long", "window"], "--long window is for single texts"),
    ],
)
def test_settings_for_single_texts_are_refused(table: Path, their_bert: Path, flags: list[str], says: str, tmp_path: Path):  # fmt: skip
    done = CliRunner().invoke(app, ["finetune", str(table), "--base", str(their_bert), *flags, "--out", str(tmp_path / "r")])  # fmt: skip
    assert done.exit_code == 4
    assert says in done.output


@pytest.mark.parametrize(("rows", "arm"), [("pairs", "zero-shot"), ("single", "overlap")])
def test_arms_that_do_not_suit_the_rows_are_refused(table: Path, their_bert: Path, rows: str, arm: str, tmp_path: Path):  # fmt: skip
    given = [] if rows == "pairs" else ["--text-column", "premise"]
    done = CliRunner().invoke(app, ["compare", str(table), *given, "--base", str(their_bert), "--arms", f"tfidf,{arm}", "--yes", "--out", str(tmp_path / "s")])  # fmt: skip
    assert done.exit_code == 4
    assert f"The arm {arm} is for" in done.output
