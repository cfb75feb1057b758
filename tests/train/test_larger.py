"""What makes room for larger models changes nothing else: the same bits with layers computed again, float32 weights with bf16."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headstart.config import PretrainConfig, TrainConfig
from headstart.errors import ConfigError
from headstart.models.block import Block
from headstart.models.recurrent import Recurrent
from headstart.models.seq2seq import TransformerSeq2Seq
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import Seq2SeqConfig, TransformerConfig
from headstart.tasks.language import Language
from headstart.text.batch import Batch, RowBatches, next_token
from headstart.text.tokenizer import TokenRows
from headstart.train import larger
from headstart.train.loop import prepare_device, train

ROWS = TokenRows.of([[2, *range(5 + i, 10 + i + i % 4), 3] for i in range(8)])
UNUSED = parse(PretrainConfig, {"data": {"paths": ["unused.txt"]}})


def fit(path: Path, shape: TransformerConfig, **changes: Any) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(0)
    model = build_model(shape, HeadSpec("language"))

    def pick(part: Any, rng: Any) -> Batch:
        return next_token([ROWS[int(i)] for i in part], 0)

    cfg = TrainConfig(**{"steps": 6, "batch_size": 4, "eval_every": 6, "checkpoint_every": 6, "log_every": 1, "tensorboard": False, **changes})  # fmt: skip
    with Run.start(path, False, UNUSED, 1) as run:
        train(model, Language(None), RowBatches(ROWS.lengths, 4, pick, 0), None, cfg, run, Watch())
    return model, [r["loss"] for r in run.read_lines("log.jsonl") if r["split"] == "train"]


@pytest.mark.parametrize("preset", ["gpt", "bert", "classic"])
def test_layers_that_are_computed_again_give_the_same_bits(
    preset: str, tiny: Callable[..., TransformerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    forward = Block.forward
    monkeypatch.setattr(Block, "forward", lambda self, *args: (calls.append(1), forward(self, *args))[1])
    shape = tiny(preset, dropout=0.2, ff_dropout=0.2)
    kept, losses = fit(tmp_path / "kept", shape)
    once = len(calls)
    again, others = fit(tmp_path / "again", shape, checkpoint_layers=True)
    assert len(calls) - once == 2 * once, "each layer is computed twice"
    assert others == losses
    assert fingerprint(weights(again)) == fingerprint(weights(kept))
    assert not any("forward" in vars(layer) for layer in again.modules()), "only while it trains"


def test_all_layers_of_a_translator_are_found() -> None:
    model = TransformerSeq2Seq(
        parse(Seq2SeqConfig, {"kind": "transformer", "vocab": 20, "target_vocab": 20, "longest": 9})
    )
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    assert len(larger.repeated_layers(model)) == sum(map(len, lists)) > 1


def test_bf16_computes_products_in_it_and_keeps_weights_in_float32(
    tiny: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    if larger._fails("cpu"):
        pytest.skip("this processor has no bf16")
    whole, losses = fit(tmp_path / "whole", tiny("gpt"))
    half, others = fit(tmp_path / "half", tiny("gpt"), precision="bf16")
    assert others != losses
    assert_close(torch.tensor(others), torch.tensor(losses), rtol=0.02, atol=0.0)
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    assert fingerprint(weights(half)) != fingerprint(weights(whole))


@pytest.mark.parametrize(
    ("probe", "why"),
    [("import os; os.kill(os.getpid(), 4)", "ended by signal 4"), ("raise SystemExit('no such type')", "no such type")],
)
def test_a_device_that_dies_of_bf16_is_found_by_another_process(
    probe: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(larger, "PROBE", probe)
    larger._fails.cache_clear()
    try:
        with pytest.raises(ConfigError, match=why) as told:
            prepare_device(TrainConfig(precision="bf16"))
    finally:
        larger._fails.cache_clear()
    assert told.value.exit_code == 4


def test_a_device_that_hangs_in_bf16_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(larger, "PROBE", "import time; time.sleep(5)")
    monkeypatch.setattr(larger, "PATIENCE", 0.1, raising=False)
    larger._fails.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"did not end within 0\.1 seconds"):
            prepare_device(TrainConfig(precision="bf16"))
    finally:
        larger._fails.cache_clear()


@pytest.mark.parametrize("asked", ["checkpoint_layers", "compile"])
def test_a_model_without_repeated_layers_is_refused(asked: str, tiny: Callable[..., TransformerConfig]) -> None:
    cfg = TrainConfig(**{asked: True})
    recurrent = Recurrent(parse(Seq2SeqConfig, {"kind": "gru", "vocab": 20, "target_vocab": 20, "longest": 9}))
    with pytest.raises(ConfigError, match=f"{asked} has no effect on this model"):
        larger.layers_note(recurrent, cfg)
    assert larger.layers_note(recurrent, TrainConfig()) == ""
    model = build_model(tiny("gpt"), HeadSpec("language"))
    assert larger.layers_note(model, cfg) == ""
    assert f"{asked} changes nothing" in larger.layers_note(model.requires_grad_(False), cfg)


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler"):
        prepare_device(TrainConfig(compile=True))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, larger.COMPILERS)), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("again", [False, True])
def test_compiled_layers_learn_the_same(again: bool, tiny: Callable[..., TransformerConfig], tmp_path: Path) -> None:
    shape = tiny("gpt", dropout=0.0, ff_dropout=0.0)
    _, losses = fit(tmp_path / "plain", shape, steps=3)
    _, others = fit(tmp_path / "compiled", shape, steps=3, compile=True, checkpoint_layers=again)
    assert_close(torch.tensor(others), torch.tensor(losses), rtol=1e-4, atol=0.0)
