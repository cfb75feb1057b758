"""Prompted fine-tuning: a head that starts from label words, and a template that travels with the model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from headstart.bases.pretrained import open_base
from headstart.bases.verbalizer import label_word_rows
from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError
from headstart.jobs.finetune import finetune
from headstart.jobs.job import prepare
from headstart.jobs.pretrain import pretrain
from headstart.models.heads import LanguageHead
from headstart.prompts import Prompt
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.tasks.zero_shot import word_scores
from headstart.use.estimator import TextClassifier
from headstart.use.export import export_transformers
from headstart.use.inspect import Inspector
from headstart.use.onnx import OnnxClassifier
from headstart.use.onnx_export import export_onnx
from headstart.use.predict import LoadedClassifier

TEMPLATE, WORDS = "Meal: {text}\nIt was {label}.", {"bad": "bad", "good": "good"}
KINDS = {"good": ["lovely", "fresh", "tasty"], "bad": ["awful", "cold", "stale"]}
DISHES = ["soup", "bread", "fish", "cake", "rice", "tea", "salad", "curry"]
TEXTS = [" The tea was lovely. ", "The fish was awful.", "cold " * 300]


@pytest.fixture(scope="module", params=["causal", "masked"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has read of meals, and of whether they were good."""
    here = tmp_path_factory.mktemp(request.param)
    lines = [f"Meal: The {d} was {w}.\nIt was {k}." for d in DISHES for k, ws in KINDS.items() for w in ws]
    (here / "corpus.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    rows = [f"The {d} was {w}.,{k}" for d in DISHES for k, ws in KINDS.items() for w in ws]
    (here / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    steps = 400 if request.param == "causal" else 1500  # a masked model is asked for the word only when it is masked
    settings = {
        "objective": request.param,
        "samples": (),
        "data": {"paths": (str(here / "corpus.jsonl"),), "unit": "line", "valid_fraction": 0.0},
        "model": {"size": "nano", "context": 32, "dropout": 0.0},
        "mask_rate": 0.4,
        "train": {"steps": steps, "batch_size": 16, "lr": 5e-3, "tensorboard": False},
    }
    torch.set_num_threads(1)
    pretrain(parse(PretrainConfig, settings), here / "base")
    return here / "base"


def config(base: Path, **settings: Any) -> FinetuneConfig:
    train = {"tensorboard": False, "batch_size": 8, **settings.pop("train", {})}
    data = {"train": str(base.parent / "rows.csv"), "labels": 8, "balanced": True, **settings.pop("data", {})}
    given = {"base": str(base), "prompt": TEMPLATE, "label_words": WORDS, "data": data, "train": train, **settings}
    return parse(FinetuneConfig, given)


def test_before_the_first_step_it_says_what_the_language_model_says(base: Path) -> None:
    job = prepare(config(base))
    source = open_base(str(base))
    assert isinstance(source.model.head, LanguageHead)
    scores = word_scores(source.model, source.tokenizer, TEXTS, Prompt(template=TEMPLATE, words=WORDS))
    rows = job.test.outputs(job.model, "cpu")
    expected = word_scores(source.model, source.tokenizer, job.test.texts, Prompt(template=TEMPLATE, words=WORDS))
    assert_close(torch.tensor(rows).float(), expected.softmax(1), atol=1e-4, rtol=1e-3)
    assert scores.softmax(1)[0, 1] > 0.5 > scores.softmax(1)[1, 1], (
        "and the language model knows good meals from bad ones"
    )


def test_of_a_word_of_several_tokens_the_rows_are_averaged() -> None:
    head = LanguageHead.__new__(LanguageHead)
    torch.nn.Module.__init__(head)
    head.weight, head.bias = torch.nn.Parameter(torch.eye(4)), None
    weight, bias = label_word_rows(head, [(0, 1), (2,)])
    assert_close(weight[0] - weight[1], torch.tensor([0.5, 0.5, -1.0, 0.0]))
    assert bias.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("scope", ["full", "head", "lora"])
def test_the_template_travels_with_the_model(base: Path, tmp_path: Path, scope: str) -> None:
    if scope == "lora":
        pytest.importorskip("peft")
    result = finetune(config(base, scope=scope, calibrate=scope == "full"), tmp_path / "run")
    assert result["test"]["accuracy"] > 0.8
    resolved = Run.open(tmp_path / "run").config
    assert isinstance(resolved, FinetuneConfig)
    assert (resolved.prompt, resolved.label_words) == (TEMPLATE, WORDS)
    classifier = LoadedClassifier.load(tmp_path / "run")
    rows = np.array(classifier.probabilities(TEXTS))
    assert classifier.predict(TEXTS)[0]["label"] == "good"
    pytest.importorskip("onnxscript")
    export_onnx(tmp_path / "run", tmp_path / "model.onnx")
    np.testing.assert_allclose(OnnxClassifier.load(tmp_path / "model.onnx").probabilities(TEXTS), rows, atol=1e-4)
    command = [sys.executable, str(tmp_path / "model.example.py"), str(tmp_path / "model.onnx"), *TEXTS[:2]]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split("\t")[0] for line in shown] == ["good", "bad"]
    assert float(shown[0].split("\t")[1]) == pytest.approx(rows[0].max(), abs=1e-3)
    inspection = Inspector.load(tmp_path / "run").inspect("The tea was lovely.")
    assert "good" in str(inspection)


def test_transformers_needs_no_template_of_its_own(base: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    finetune(config(base), tmp_path / "run")
    if base.parent.name.startswith("masked"):
        with pytest.raises(Exception, match="reads the mask token of a prompt"):
            export_transformers(tmp_path / "run", tmp_path / "hf")
        return
    export_transformers(tmp_path / "run", tmp_path / "hf")
    classify = transformers.pipeline("text-classification", str(tmp_path / "hf"), truncation=True, top_k=None)
    for text, ours in zip(TEXTS, LoadedClassifier.load(tmp_path / "run").predict(TEXTS), strict=True):
        theirs = {found["label"]: found["score"] for found in classify([text])[0]}
        assert theirs == pytest.approx(ours["probabilities"], abs=1e-3)


def test_killed_and_resumed_it_has_the_same_weights(base: Path, tmp_path: Path) -> None:
    class Killed(Exception): ...

    from headstart.runs.watch import Watch

    class Kill(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done == 20:
                raise Killed

    cfg = config(base, calibrate=True, train={"checkpoint_every": 10, "eval_every": 10})
    finetune(cfg, tmp_path / "whole")
    with pytest.raises(Killed):
        finetune(cfg, tmp_path / "killed", watch=Kill())
    finetune(cfg, tmp_path / "killed", resume=True)
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_base_without_a_language_head_is_refused(base: Path, tmp_path: Path, elsewhere: Callable[..., Any]) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = open_base(str(base)).tokenizer
    shape = elsewhere("bert", vocab_size=tokenizer.size)
    transformers.BertModel(transformers.BertConfig(**shape.settings)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer.json").write_text(tokenizer.to_json())
    with pytest.raises(ConfigError, match="has no language head, which a prompt needs"):
        prepare(config(base).model_copy(update={"base": str(tmp_path / "bert")}))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "nothing here"], "must have {text} once"),
        (["--label-words", "bad=bad"], "label_words belong to a prompt"),
        (["--prompt", "auto", "--label-words", "bad"], "is not LABEL=WORD"),
        (["--prompt", "auto", "--init", "scratch"], "leave it out with init = scratch"),
        (["--prompt", "auto", "--pool", "mean"], "a prompt is read where its label word stands"),
        (["--prompt", "auto", "--label-words", "ugly=bad"], "there is no label 'ugly'"),
        (["--prompt", "word " * 60 + "{text}"], "Shorten it"),
    ],
)
def test_what_makes_no_sense_is_said(base: Path, tmp_path: Path, words: list[str], message: str) -> None:
    rows = str(base.parent / "rows.csv")
    done = CliRunner().invoke(app, ["finetune", rows, "--base", str(base), "--out", str(tmp_path / "run"), *words])
    assert message in done.output
    assert done.exit_code in (2, 4)


def test_the_estimator_takes_a_prompt(base: Path) -> None:
    X = [f"The {d} was {w}." for d in DISHES[:2] for ws in KINDS.values() for w in ws[:2]]
    y = [k for _ in DISHES[:2] for k, ws in KINDS.items() for _ in ws[:2]]
    model = TextClassifier(base=str(base), prompt=TEMPLATE, label_words=WORDS, settings={"train": {"threads": 1}}).fit(
        X, y
    )
    assert model.predict(["The curry was lovely.", "The curry was awful."]).tolist() == ["good", "bad"]
