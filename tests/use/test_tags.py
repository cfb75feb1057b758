"""A tagger put to use: exported, in a table, as an estimator, looked into."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from sklearn.base import clone
from torch.testing import assert_close
from typer.testing import CliRunner

from headstart import TokenTagger
from headstart.cli import app
from headstart.config import FinetuneConfig, TokenizerConfig
from headstart.errors import DataError, UserError
from headstart.jobs.finetune import finetune
from headstart.schema import parse
from headstart.shapes import HuggingFaceConfig
from headstart.text.tokenizer import Tokenizer
from headstart.use.export import export_transformers
from headstart.use.onnx import OnnxClassifier
from headstart.use.onnx_export import export_onnx
from headstart.use.predict import LoadedClassifier

WHO, WHERE = ("Ada", "Grace Hopper", "Omar", "Marie Curie"), ("Paris", "Oslo", "Lima")
TEXTS = ["Ada moved to Oslo.", "Marie Curie, who met Omar", "", "It rained"]
BASES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "distilbert": "DistilBertModel",
    "gpt2": "GPT2Model",
    "llama": "LlamaModel",
}


def sentences() -> tuple[list[list[str]], list[list[str]]]:
    X, y = [], []
    for i in range(120):
        who, where = WHO[i % 4].split(), WHERE[i // 4 % 3]
        X.append([*who, "moved", "to", where, ".", str(i)])
        y.append(["B-PER", *["I-PER"] * (len(who) - 1), "O", "O", "B-LOC", "O", "O"])
    return X, y


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = (json.dumps({"tokens": words, "tags": tags}) for words, tags in zip(*sentences(), strict=True))
    file.write_text("\n".join(lines))
    return file


def tagger(base: str, rows: Path, out: Path, **settings: Any) -> Path:
    given: dict[str, Any] = {
        "base": base,
        "data": {"train": str(rows)},
        "train": {"steps": 60, "batch_size": 8, "threads": 1, "tensorboard": False, "lr": 3e-3},
        **settings,
    }
    if base in ("bert", "gpt", "classic"):
        shape = {"preset": base, "layers": 2, "heads": 2, "width": 16, "ff": 32, "context": 32}
        given |= {"init": "scratch", "model": shape, "tokenizer": {"kind": "word"}}
    finetune(parse(FinetuneConfig, given), out)
    return out


@pytest.fixture(scope="module")
def run(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tagger("bert", rows, tmp_path_factory.mktemp("tagger") / "run")


@pytest.fixture
def base(
    request: pytest.FixtureRequest, rows: Path, tmp_path: Path, elsewhere: Callable[..., HuggingFaceConfig]
) -> str:
    """One of ours as a preset, or a folder with a model of transformers."""
    if request.param not in BASES:
        return str(request.param)
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([" ".join(words) for words in sentences()[0]], TokenizerConfig(kind="word"))
    kind = getattr(transformers, BASES[request.param])
    settings = elsewhere(request.param, vocab_size=tokenizer.size, pad_token_id=tokenizer.pad).settings
    kind(kind.config_class(**settings)).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text(tokenizer.to_json())
    return str(tmp_path / "base")


@pytest.mark.parametrize("base", ["bert", "gpt", "gpt2", "distilbert", "roberta", "llama"], indirect=True)
def test_transformers_gives_the_same_logits_and_entities(base: str, rows: Path, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    run = tagger(base, rows, tmp_path / "run")
    made = export_transformers(run, tmp_path / "out")
    assert made["class"].endswith("ForTokenClassification")
    ours = LoadedClassifier.load(run)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    text = "Marie Curie moved to Oslo ."
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(text, return_tensors="pt")
    mask = given["attention_mask"].bool()
    with torch.inference_mode():
        expected = ours.saved.model(given["input_ids"], mask)
        found = theirs(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
    assert_close(found, expected, atol=1e-4, rtol=1e-4)
    pipe = transformers.pipeline(
        "token-classification", str(tmp_path / "out"), aggregation_strategy="simple"
    )  # a word is a token here
    (record,) = ours.predict([text])
    words = [(e["entity_group"], e["word"].strip()) for e in pipe(text)]
    assert record["entities"], "nothing to compare"
    assert words == [(e["label"], e["text"]) for e in record["entities"]]


def test_a_model_without_a_class_in_transformers_is_refused(rows: Path, tmp_path: Path):
    run = tagger("classic", rows, tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run), "--to", "hf", "--out", str(tmp_path / "out")])
    assert done.exit_code == 5
    assert "transformers has no class for" in done.output


@pytest.mark.parametrize("base", ["bert", "gpt"])
def test_an_onnx_file_gives_the_same_tags(base: str, rows: Path, tmp_path: Path):
    run = tagger(base, rows, tmp_path / "run")
    made = export_onnx(run, tmp_path / "model.onnx")
    assert made["largest_difference"] < 1e-4
    longer = [*TEXTS, "Ada moved to Oslo . " * 20]
    ours, theirs = (
        LoadedClassifier.load(run).predict(longer),
        OnnxClassifier.load(tmp_path / "model.onnx").predict(longer),
    )
    for one, other in zip(ours, theirs, strict=True):
        assert other["label"] == one["label"]
        assert other["tag_probabilities"] == pytest.approx(one["tag_probabilities"], abs=1e-4)
        assert [e["start"] for e in other["entities"]] == [e["start"] for e in one["entities"]]


def test_the_example_beside_an_onnx_file_tags_words(run: Path, tmp_path: Path):
    made = export_onnx(run, tmp_path / "model.onnx")
    text = "Marie Curie moved to Oslo ."
    done = subprocess.run(
        [sys.executable, made["example"], made["out"], text], capture_output=True, text=True, check=True
    )
    (record,) = LoadedClassifier.load(run).predict([text])
    assert done.stdout.strip() == " ".join(
        f"{word}/{tag}" for word, tag in zip(record["tokens"], record["label"], strict=True)
    )


def test_int8_is_refused(run: Path, rows: Path, tmp_path: Path):
    done = CliRunner().invoke(
        app, ["export", str(run), "--to", "onnx", "--int8", str(rows), "--out", str(tmp_path / "m.onnx")]
    )
    assert done.exit_code == 2
    assert "the task of" in done.output


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_gets_a_column_of_entities(suffix: str, run: Path, tmp_path: Path):
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((i, text) for i, text in enumerate(TEXTS) if text)])
    out = tmp_path / f"out.{suffix}"
    done = CliRunner().invoke(
        app, ["predict", str(run), "--file", str(tmp_path / "in.csv"), "--out", str(out), "--json"]
    )
    assert done.exit_code == 0, done.output
    if suffix == "csv":
        cells = [json.loads(row["entities"]) for row in csv.DictReader(out.read_text().splitlines())]
    elif suffix == "jsonl":
        cells = [json.loads(line)["entities"] for line in out.read_text().splitlines()]
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        cells = [json.loads(cell) for cell in parquet.read_table(out)["entities"].to_pylist()]
    expected = [record["entities"] for record in LoadedClassifier.load(run).predict([t for t in TEXTS if t])]
    assert [[e["text"] for e in cell] for cell in cells] == [[e["text"] for e in row] for row in expected]
    assert json.loads(done.stdout)["labels"].get("PER") == sum(e["label"] == "PER" for row in expected for e in row)


def test_an_estimator_follows_the_conventions_of_scikit_learn(tmp_path: Path):
    X, y = sentences()
    shape = {"model": {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 32}, "tokenizer": {"kind": "word"}}
    model = TokenTagger(base="bert", epochs=20, lr=3e-3, settings={**shape, "train": {"threads": 1}})
    assert clone(model).get_params() == model.get_params()
    said = model.fit(X, y).predict(X)
    assert [len(row) for row in said] == [len(row) for row in X]
    assert model.score(X, y) == pytest.approx(f1_score(y, said))
    assert model.score(X, y) > 0.8
    assert model.classes_.tolist() == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    first = model.predict_proba(X[:1])[0]
    assert first.shape == (len(X[0]), 5)
    assert np.allclose(first.sum(1), 1)
    model.save(tmp_path / "saved")
    assert TokenTagger.load(tmp_path / "saved").predict(X[:3]) == said[:3]


@pytest.mark.parametrize(
    ("X", "y", "error", "said"),
    [
        (["Ada wrote"], [["O"]], DataError, r"X\[0\] is no list of words"),
        ([["Ada", "wrote"]], [["O"]], DataError, r"X\[0\] has 2 words, y\[0\] 1 tag"),
        ([["Ada"]], [["O"], ["O"]], UserError, "1 sentence and 2 rows"),
        ([[]], [[]], DataError, r"X\[0\] is empty"),
    ],
)
def test_an_estimator_refuses_what_is_no_sentence(X: Any, y: Any, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        TokenTagger(base="bert").fit(X, y)


def test_what_a_tag_owes_to_each_token_is_shown_for_each_entity(run: Path):
    done = CliRunner().invoke(app, ["inspect", str(run), "Ada moved to Oslo .", "--json"])
    assert done.exit_code == 0, done.output
    (seen,) = json.loads(done.stdout)
    (record,) = LoadedClassifier.load(run).predict(["Ada moved to Oslo ."])
    assert [part["label"] for part in seen["attribution"]] == [
        f"B-{e['label']} of {e['text'].split()[0]}" for e in record["entities"]
    ]
    for part, probabilities in zip(seen["attribution"], seen["labels"], strict=True):
        assert part["complete"]
        assert max(probabilities.values()) in [pytest.approx(p, abs=1e-5) for p in record["tag_probabilities"]]
    asked = CliRunner().invoke(
        app, ["inspect", str(run), "Ada moved to Oslo .", "--label", "B-LOC", "--show", "attribution"]
    )
    assert "evidence for 'B-LOC of Oslo'" in asked.stdout


def test_rows_are_not_looked_into_and_a_wrong_tag_is_named(run: Path, rows: Path):
    for more, said in ((["--data", str(rows)], "tags words"), (["Ada", "--label", "B-PRE"], "Did you mean 'B-PER'")):
        done = CliRunner().invoke(app, ["inspect", str(run), *more])
        assert done.exit_code in (4, 5)
        assert said in done.output


def test_a_check_of_data_counts_entities(rows: Path):
    done = CliRunner().invoke(app, ["data", "check", str(rows), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["splits"]["train"]["labels"] == {"LOC": 120, "PER": 120}
