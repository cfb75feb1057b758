"""Fine-tuning and going on with pretraining from a model made elsewhere: as from a run of our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.bases.pretrained import open_base
from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig, TokenizerConfig
from headstart.errors import ConfigError
from headstart.jobs.finetune import finetune
from headstart.jobs.pretrain import pretrain
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import HuggingFaceConfig
from headstart.text.tokenizer import Tokenizer
from headstart.use.language import LoadedLanguageModel
from headstart.use.predict import LoadedClassifier

transformers = pytest.importorskip("transformers")
CLASSES = {"bert": "BertModel", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}


@pytest.fixture(params=CLASSES)
def base(
    request: pytest.FixtureRequest, reviews: Path, tmp_path: Path, elsewhere: Callable[..., HuggingFaceConfig]
) -> Path:
    """A folder as transformers writes it; the bert in it has no language-model head."""
    torch.manual_seed(0)
    texts = [line.rpartition(",")[0] for line in reviews.read_text().splitlines()[1:]]
    tokenizer = Tokenizer.train(texts, TokenizerConfig(kind="word"))
    kind = getattr(transformers, CLASSES[request.param])
    shape = elsewhere(request.param, vocab_size=tokenizer.size)
    kind(kind.config_class(**shape.settings)).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text(tokenizer.to_json())
    return tmp_path / "base"


def config(base: Path, reviews: Path, **settings: Any) -> FinetuneConfig:
    train = {"batch_size": 8, "tensorboard": False, "lr": 1e-2, **settings.pop("train", {})}
    return parse(
        FinetuneConfig, {"base": str(base), "epochs": 3, "data": {"train": str(reviews)}, "train": train, **settings}
    )


@pytest.mark.parametrize("scope", ["full", "head", "last:1", "lora"])
def test_every_scope_learns_and_tells_what_moved(base: Path, reviews: Path, tmp_path: Path, scope: str) -> None:
    if scope == "lora":
        pytest.importorskip("peft")
    result = finetune(
        config(base, reviews, scope=scope, pool="mean", epochs=8, fit_head=False, train={"eval_every": 28, "lr": 3e-3}),
        tmp_path / "run",
    )
    run = Run.open(tmp_path / "run")
    receipt, log = run.read_json("receipt.json"), list(run.read_lines("log.jsonl"))
    losses = [r["loss"] for r in log if r["split"] == "valid"]
    assert min(losses) < losses[0]
    before, after = weights(open_base(str(base)).model.base), weights(read_model(run.path / "model").model.base)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert receipt["copied"] == sorted(f"base.{name}" for name in before)
    assert {f"base.{n}" for n in moved}.isdisjoint(receipt["frozen"])
    assert receipt["frozen_moved"] == []
    assert bool(moved) == (scope != "head")
    assert (receipt["base_sha256_before"] == receipt["base_sha256_after"]) == (scope == "head")
    if scope == "last:1":
        assert all(".1." in name or "ln_f" in name or name.endswith("norm.weight") for name in moved)
    if scope == "lora":
        assert 0 < result["trained_parameters"] < result["parameters"]
        assert all(".0." in name or ".1." in name for name in moved)
        assert any("lora_A" in name for name in receipt["new"])


def test_the_kept_model_is_the_one_that_was_scored(base: Path, reviews: Path, tmp_path: Path) -> None:
    scope = "full" if "gpt2" not in (base / "config.json").read_text() else "lora"
    finetune(config(base, reviews, scope=scope), tmp_path / "run")
    kept = list(Run.open(tmp_path / "run").read_lines("predictions.jsonl"))
    again = LoadedClassifier.load(tmp_path / "run").predict([p["text"] for p in kept])
    for one, other in zip(kept, again, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    described = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert described["id2label"] == {"0": "negative", "1": "positive"}


@pytest.mark.parametrize(("base", "scope"), [("gpt2", "full"), ("bert", "lora")], indirect=["base"])
def test_a_run_that_was_stopped_goes_on_to_the_last_bit(base: Path, reviews: Path, tmp_path: Path, scope: str) -> None:
    if scope == "lora":
        pytest.importorskip("peft")

    class Enough(Exception):
        pass

    class Impatient(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done == 10:
                raise Enough

    cfg = config(base, reviews, scope=scope)
    finetune(cfg, tmp_path / "whole")
    with pytest.raises(Enough):
        finetune(cfg, tmp_path / "run", watch=Impatient())
    (base / "model.safetensors").unlink()  # no longer needed
    finetune(cfg, tmp_path / "run", resume=True)
    one, other = (tmp_path / name / "model" / "model.safetensors" for name in ("whole", "run"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("base", ["bert"], indirect=True)
def test_the_rate_is_one_that_suits_a_model_made_elsewhere(base: Path, reviews: Path, tmp_path: Path) -> None:
    for scope, rate in (("full", 5e-5), ("head", 1e-3)):
        cfg = config(base, reviews, scope=scope, epochs=1, train={"lr": 0.0})
        finetune(cfg, tmp_path / scope)
        assert Run.open(tmp_path / scope).config.train.lr == rate


@pytest.mark.parametrize("base", ["gpt2"], indirect=True)
def test_a_context_is_cut_to_what_was_asked_and_no_longer_than_there_is(
    base: Path, reviews: Path, tmp_path: Path
) -> None:
    finetune(config(base, reviews, context=5, epochs=1), tmp_path / "run")
    assert Run.open(tmp_path / "run").read_json("data.json")["truncated"]["train"] == 52
    assert read_model(tmp_path / "run" / "model").model.base.max_len == 5
    with pytest.raises(ConfigError, match="--context 25: the base reads 24 tokens at most"):
        finetune(config(base, reviews, context=25), tmp_path / "long")
    with pytest.raises(ConfigError, match="--context 1: fewer than 2 tokens are no text"):
        finetune(config(base, reviews, context=1), tmp_path / "short")


@pytest.mark.parametrize("base", ["bert"], indirect=True)
def test_windows_have_room_for_text_between_start_and_end(base: Path, reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a context of 2 tokens holds a start and an end, and nothing of the text"):
        finetune(config(base, reviews, context=2, long="window"), tmp_path / "run")


def test_the_context_of_a_preset_is_one_of_its_model(reviews: Path) -> None:
    with pytest.raises(ConfigError, match=r"that of the preset 'gpt' is model\.context"):
        config(Path("gpt"), reviews, init="scratch", context=64)


@pytest.mark.parametrize("base", ["bert", "llama"], indirect=True)
def test_pretraining_goes_on_with_the_tokenizer_and_objective_of_the_base(
    base: Path, sentences: Path, tmp_path: Path, reviews: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line.rpartition(",")[0] for line in reviews.read_text().splitlines()[1:]))
    two_way = "bert" in (base / "config.json").read_text()
    done = CliRunner().invoke(app, ["pretrain", str(text), "--base", str(base), "--out", str(tmp_path / "more"), "--unit", "line",
                                    "--steps", "20", "--lr", "0.01", "--batch-size", "8", "--context", "12",
                                    "--set", "train.tensorboard=false"])  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert ("has no language-model head, so it gets a new one." in done.stderr) == two_way
    run = Run.open(tmp_path / "more")
    assert run.config.objective == ("masked" if two_way else "causal")
    valid = [r["loss"] for r in run.read_lines("log.jsonl") if r["split"] == "valid"]
    assert min(valid) < valid[0]
    if not two_way:
        assert LoadedLanguageModel.load(tmp_path / "more").generate("film", 3, how(), top=0)["tokens"]
    finetune(config(tmp_path / "more", reviews, epochs=1), tmp_path / "run")
    assert isinstance(Run.open(tmp_path / "run").config.model, HuggingFaceConfig)


def how() -> Any:
    from headstart.models.decode import Sampling

    return Sampling()


def test_pretraining_that_goes_on_begins_with_what_the_base_knew(base: Path, sentences: Path, tmp_path: Path) -> None:
    settings = {"base": str(base), "data": {"paths": [str(sentences)], "unit": "line"}, "samples": [],
                "train": {"steps": 1, "batch_size": 8, "lr": 1e-12, "weight_decay": 0.0, "tensorboard": False}}  # fmt: skip
    pretrain(parse(PretrainConfig, settings), tmp_path / "more")
    before, after = open_base(str(base)), read_model(tmp_path / "more" / "model")
    for name, tensor in weights(before.model).items():
        if name not in before.fresh:
            assert torch.allclose(tensor, weights(after.model)[name], atol=1e-6), name


def test_going_on_is_slower_unless_a_rate_is_given() -> None:
    data = {"data": {"paths": ("a",)}}
    assert parse(PretrainConfig, {**data, "base": "b"}).train.lr == 1e-4
    assert parse(PretrainConfig, {**data, "base": "b", "train": {"lr": 1e-2}}).train.lr == 1e-2
    assert parse(PretrainConfig, data).train.lr == 1e-3


@pytest.mark.parametrize("base", ["gpt2"], indirect=True)
def test_what_the_base_settles_cannot_be_asked_for(base: Path, sentences: Path) -> None:
    done = CliRunner().invoke(
        app, ["pretrain", str(sentences), "--base", str(base), "--vocab", "99", "--objective", "masked"]
    )
    assert done.exit_code == 4
    assert "--objective, --vocab: the base" in done.stderr
