"""An exported model gives the same logits without Headstart, and what cannot be exported is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from torch.testing import assert_close
from typer.testing import CliRunner, Result

from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig, TokenizerConfig
from headstart.errors import ModelError, UserError
from headstart.jobs.finetune import finetune
from headstart.jobs.pretrain import pretrain
from headstart.models.decode import Sampling
from headstart.models.huggingface import KINDS
from headstart.schema import parse
from headstart.shapes import HuggingFaceConfig
from headstart.text.tokenizer import Tokenizer, rows_to_read
from headstart.use.export import export_transformers
from headstart.use.language import LoadedLanguageModel
from headstart.use.predict import LoadedClassifier

transformers = pytest.importorskip("transformers")
TEXTS = ["film 3 was lovely from end to end", "film 4 was awful", "dull", "film <s> was <mask> </s>"]
BASES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "mpnet": "MPNetModel",
    "distilbert": "DistilBertModel",
    "gpt2": "GPT2Model",
    "llama": "LlamaModel",
}


@pytest.fixture
def texts(reviews: Path, tmp_path: Path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(line.rpartition(",")[0] for line in reviews.read_text().splitlines()[1:]))
    return file


@pytest.fixture
def base(
    request: pytest.FixtureRequest, texts: Path, tmp_path: Path, elsewhere: Callable[..., HuggingFaceConfig]
) -> str:
    """One of ours as a preset, or a folder with a model of transformers."""
    if request.param not in BASES:
        return str(request.param)
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(texts.read_text().splitlines(), TokenizerConfig(kind="word"))
    kind = getattr(transformers, BASES[request.param])
    kind(
        kind.config_class(**elsewhere(request.param, vocab_size=tokenizer.size, pad_token_id=tokenizer.pad).settings)
    ).save_pretrained(tmp_path / "base")
    file = tmp_path / "base" / "tokenizer.json"
    file.write_text(padding_second(tokenizer.to_json()) if request.param == "mpnet" else tokenizer.to_json())
    return str(tmp_path / "base")


def padding_second(tokenizer: str) -> str:
    """A tokenizer.json in which the first two tokens, of which the first is padding, have changed places."""
    described = json.loads(tokenizer)
    vocabulary, swapped = described["model"]["vocab"], {0: 1, 1: 0}
    described["model"]["vocab"] = {token: swapped.get(i, i) for token, i in vocabulary.items()}
    for token in described["added_tokens"]:
        token["id"] = swapped.get(token["id"], token["id"])
    return json.dumps(described)


@pytest.mark.parametrize("base", ["mpnet"], indirect=True)
def test_mpnet_with_another_padding_id_than_that_of_its_code_is_refused(
    base: str, reviews: Path, tmp_path: Path
) -> None:
    file = Path(base) / "tokenizer.json"
    file.write_text(padding_second(file.read_text()))
    run = classifier(base, reviews, tmp_path / "run")
    with pytest.raises(ModelError, match="pads with the token 0, but MPNet of transformers takes the token 1"):
        export_transformers(run, tmp_path / "out")


def classifier(base: str, reviews: Path, out: Path, **settings: Any) -> Path:
    train = {"batch_size": 8, "tensorboard": False, "lr": 1e-2}
    model: dict[str, Any] = (
        {"model": {"size": "nano"}, "tokenizer": {"kind": "word"}, "init": "scratch"}
        if base in ("gpt", "bert", "classic")
        else {}
    )
    kind = json.loads((Path(base) / "config.json").read_text())["model_type"] if Path(base).is_dir() else ""
    model["pool"] = "last" if base == "gpt" or (kind and KINDS[kind].causal) else "cls"  # those that transformers has
    finetune(parse(FinetuneConfig, {"base": base, "epochs": 3, "data": {"train": str(reviews)}, "train": train, **model, **settings}), out)  # fmt: skip
    return out


def to_int8(run: Path, file: Path, rows: Path) -> Result:
    words = ["export", str(run), "--to", "onnx", "--out", str(file), "--int8", str(rows)]
    return CliRunner().invoke(app, words)


def language(objective: str, texts: Path, out: Path, **model: Any) -> Path:
    settings = {"objective": objective, "data": {"paths": [str(texts)], "unit": "line"}, "samples": [], "model": {"size": "nano", **model},
                "tokenizer": {"kind": "word"}, "train": {"steps": 5, "batch_size": 8, "tensorboard": False}}  # fmt: skip
    pretrain(parse(PretrainConfig, settings), out)
    return out


@pytest.mark.parametrize("base", ["gpt", "bert", *BASES], indirect=True)
def test_a_classifier_gives_the_same_probabilities_in_plain_transformers(
    base: str, reviews: Path, tmp_path: Path
) -> None:
    run = classifier(base, reviews, tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run), "--to", "hf", "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["largest_difference"] < 1e-5
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        given = tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True, return_token_type_ids=False)
        found = model(**given).logits.softmax(-1)
    assert_close(found, torch.tensor(LoadedClassifier.load(run).probabilities(TEXTS)), atol=1e-5, rtol=0)
    assert model.config.id2label == {0: "negative", 1: "positive"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(word in card for word in ("## Data", "SHA-256", "95 % interval", "## Receipt", "seed 0"))


@pytest.mark.parametrize(
    ("objective", "auto"), [("causal", "AutoModelForCausalLM"), ("masked", "AutoModelForMaskedLM")]
)
def test_a_language_model_gives_the_same_logits_in_plain_transformers(
    objective: str, auto: str, texts: Path, tmp_path: Path
) -> None:
    run = language(objective, texts, tmp_path / "run")
    assert export_transformers(run, tmp_path / "out")["largest_difference"] < 1e-5
    theirs = getattr(transformers, auto).from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    saved = LoadedLanguageModel.load(run).saved
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    ours = saved.tokenizer.encode(TEXTS, end=objective == "masked")
    assert tokenizer(TEXTS).input_ids == [ours[i].tolist() for i in range(len(TEXTS))]
    assert_close(theirs(ids).logits, saved.model(ids, torch.ones_like(ids, dtype=torch.bool)), atol=1e-5, rtol=0)
    if objective == "causal":
        made = theirs.generate(ids, max_new_tokens=3, do_sample=False)[0, ids.size(1) :].tolist()
        told = LoadedLanguageModel.load(run).generate(TEXTS[0], 3, Sampling(), 0)["tokens"]
        assert made[: len(told)] == [t["id"] for t in told]


@pytest.mark.parametrize(
    ("base", "settings", "says"),
    [
        ("classic", {}, "has the preset 'classic', which transformers has no class for"),
        ("bert", {"pool": "mean"}, "the pooling 'mean', which no BertForSequenceClassification does"),
        ("gpt", {"model": {"size": "nano", "activation": "relu"}}, "'gpt' with a changed structure"),
        ("gpt", {"long": "window"}, "reads long texts in windows"),
    ],
)
def test_what_transformers_cannot_express_is_refused_by_name(
    base: str, settings: Any, says: str, reviews: Path, tmp_path: Path
) -> None:
    run = classifier(base, reviews, tmp_path / "run", **settings)
    with pytest.raises(ModelError, match=says):
        export_transformers(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("base", ["gpt", "bert"])
def test_a_long_text_is_cut_in_plain_transformers_as_it_is_here(base: str, reviews: Path, tmp_path: Path) -> None:
    run = classifier(base, reviews, tmp_path / "run")
    export_transformers(run, tmp_path / "out")
    long = " ".join(f"film {i % 80} was lovely" for i in range(1250))
    saved = LoadedClassifier.load(run).saved
    ours, _ = rows_to_read([long], saved.tokenizer, saved.config.causal, saved.config.context)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert theirs.encode(long).ids == ours[0].tolist()
    classify = transformers.pipeline("text-classification", str(tmp_path / "out"), truncation=True)
    expected = LoadedClassifier.load(run).predict([long])[0]
    (found,) = classify(long)
    assert found["label"] == expected["label"]
    assert found["score"] == pytest.approx(expected["probabilities"][expected["label"]], abs=1e-5)
    assert "truncation=True" in (tmp_path / "out" / "README.md").read_text()


def test_an_export_is_never_written_over_something(reviews: Path, tmp_path: Path) -> None:
    run = classifier("gpt", reviews, tmp_path / "run")
    with pytest.raises(UserError, match="already exists"):
        export_transformers(run, run)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gpt", "bert", "classic", "distilbert", "mpnet", "gpt2"], indirect=True)
def test_onnx_gives_the_same_probabilities_and_loads_no_torch(base: str, reviews: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    from headstart.use.onnx_export import export_onnx

    run = classifier(base, reviews, tmp_path / "run", pool="mean")
    assert export_onnx(run, tmp_path / "model.onnx")["largest_difference"] < 1e-4
    code = f"""
import sys
from headstart.cli import app
try: app(["predict", {str(tmp_path / "model.onnx")!r}, *{TEXTS!r}, "--json"])
except SystemExit as end: assert not end.code, end.code
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for theirs, ours in zip(json.loads(done.stdout), LoadedClassifier.load(run).predict(TEXTS), strict=True):
        assert theirs["label"] == ours["label"]
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-4)


def test_rows_that_int8_cannot_be_scored_on_are_told_before_anything_is_written(reviews: Path, tmp_path: Path) -> None:
    run, strange = classifier("gpt", reviews, tmp_path / "run"), tmp_path / "strange.csv"
    strange.write_text("text,label\na film,unheard of\n")
    file = tmp_path / "model.onnx"
    done = to_int8(run, file, strange)
    assert done.exit_code == 3
    assert "does not know: 'unheard of'" in done.stderr
    assert not file.exists()


def test_a_run_that_held_nothing_out_is_exported_too(reviews: Path, tmp_path: Path) -> None:
    run = classifier("bert", reviews, tmp_path / "run", data={"train": str(reviews), "labels": 20, "test_fraction": 0})
    done = CliRunner().invoke(app, ["export", str(run), "--to", "hf", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
    assert "No rows were held out" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
def test_int8_comes_with_its_accuracy(reviews: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    run = classifier("gpt", reviews, tmp_path / "run")
    file = tmp_path / "model.onnx"
    done = to_int8(run, file, reviews)
    assert done.exit_code == 0, done.stderr
    assert "accuracy in 8 bits" in done.stdout
    assert done.stderr == ""
    assert file.with_suffix(".int8.onnx").stat().st_size < file.stat().st_size


def test_int8_is_never_written_over_something(reviews: Path, tmp_path: Path) -> None:
    run, other = classifier("gpt", reviews, tmp_path / "run"), tmp_path / "model.int8.onnx"
    other.write_text("another model")
    file = tmp_path / "model.onnx"
    done = to_int8(run, file, reviews)
    assert done.exit_code == 2
    assert f"{other} already exists. Choose another --out." in " ".join(done.stderr.split())
    assert other.read_text() == "another model"
    assert not file.exists()


@pytest.mark.slow
def test_where_int8_fails_nothing_is_left(reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    import onnxruntime.quantization

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(onnxruntime.quantization, "quantize_dynamic", full)
    run, place = classifier("gpt", reviews, tmp_path / "run"), tmp_path / "out"
    done = to_int8(run, place / "model.onnx", reviews)
    assert "No space left" in done.stderr
    assert list(place.iterdir()) == []


def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model.onnx"), "a text"])
    assert done.exit_code == 5
    assert "not an ONNX model that can be read" in done.stderr
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "modle.onnx"), "a text"])
    assert done.exit_code == 3
    assert "modle.onnx: no such file. Did you mean" in done.stderr


def test_models_stand_side_by_side(reviews: Path, tmp_path: Path) -> None:
    one, other = (classifier(base, reviews, tmp_path / base) for base in ("gpt", "bert"))
    done = CliRunner().invoke(app, ["predict", str(one), TEXTS[0], "--also", str(other), "--json"])
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)[0]
    expected = LoadedClassifier.load(other).predict(TEXTS[:1])[0]
    assert record["also"][str(other)] == {key: expected[key] for key in ("label", "probabilities")}
    shown = CliRunner().invoke(app, ["predict", str(one), TEXTS[0], "--also", str(other)]).stdout
    assert len(shown.strip().split("\t")) == 5
