"""The one loop: it learns, it is exact about accumulation, and it stops before it does harm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headstart.config import PretrainConfig, TrainConfig
from headstart.errors import DivergedError
from headstart.models.heads import Model
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import TransformerConfig
from headstart.targets.classes import Classes
from headstart.tasks.classify import Classify
from headstart.tasks.language import Language
from headstart.text.batch import Batch, RowBatches, hidden_tokens, in_order, next_token, pad
from headstart.text.tokenizer import TokenRows
from headstart.train.loop import train
from headstart.train.optim import learning_rate

ROWS = TokenRows.of([[2, *range(5 + i, 10 + i + i % 4), 3] for i in range(8)])  # of four lengths
ANY_CONFIG = parse(PretrainConfig, {"data": {"paths": ["unused.txt"]}})


class Fake:
    """A tokenizer as far as masking needs one."""

    pad, unk, start, end, mask, size = 0, 1, 2, 3, 4, 53


def causal(rows: list[Any], rng: Any) -> Batch:
    return next_token(rows, 0)


def masked(rows: list[Any], rng: Any) -> Batch:
    return hidden_tokens(rows, Fake(), 0.3, np.random.default_rng(0))  # type: ignore[arg-type]


def labelled(rows: list[Any], rng: Any) -> Batch:
    ids, mask = pad(rows)
    return Batch(ids, mask, ids[:, 1] % 2)


TASKS: dict[str, tuple[str, HeadSpec, Callable[..., Batch], Any]] = {
    "causal": ("gpt", HeadSpec("language"), causal, Language(None)),
    "causal, classic": ("classic", HeadSpec("language"), causal, Language(None)),
    "masked": ("bert", HeadSpec("language"), masked, Language(None)),
    "classify": ("gpt", HeadSpec("classify", ("a", "b"), "last"), labelled, Classify(Classes(("a", "b")), "accuracy")),
    "classify, two-way": (
        "bert",
        HeadSpec("classify", ("a", "b"), "cls"),
        labelled,
        Classify(Classes(("a", "b")), "accuracy"),
    ),
}


def fit(
    name: str, tiny: Callable[..., TransformerConfig], path: Path, cfg: TrainConfig, task: Any = None, **shape: Any
) -> tuple[Model, Run]:
    preset, spec, collate, usual = TASKS[name]
    torch.manual_seed(0)
    model = build_model(tiny(preset, dropout=0.0, ff_dropout=0.0, **shape), spec)

    def pick(part: Any, rng: Any) -> Batch:
        return collate([ROWS[int(i)] for i in part], rng)

    batches = RowBatches(ROWS.lengths, cfg.batch_size, pick, cfg.seed)

    def valid() -> Iterable[Batch]:
        return in_order(ROWS.lengths, 4, pick)

    with Run.start(path, False, ANY_CONFIG, 1) as run:
        train(model, task or usual, batches, valid, cfg, run, Watch())
    return model, run


def settings(**changes: Any) -> TrainConfig:
    usual = {"steps": 60, "batch_size": 8, "lr": 0.01, "eval_every": 60, "checkpoint_every": 60, "tensorboard": False}
    return TrainConfig(**{**usual, **changes})


@pytest.mark.parametrize("name", TASKS)
def test_every_task_overfits_eight_examples(name: str, tiny: Callable[..., TransformerConfig], tmp_path: Path) -> None:
    _, run = fit(name, tiny, tmp_path / "run", settings(steps=200, eval_every=200))
    first, last = [r["loss"] for r in run.read_lines("log.jsonl") if r["split"] == "valid"]
    assert last < (0.5 if name == "masked" else 0.25) * first  # other tokens are hidden in training


def test_a_language_model_starts_at_the_uniform_loss(tiny: Callable[..., TransformerConfig], tmp_path: Path) -> None:
    _, run = fit("causal", tiny, tmp_path / "run", settings(steps=1))
    first = next(r["loss"] for r in run.read_lines("log.jsonl") if r["split"] == "valid")
    assert first == pytest.approx(math.log(53), abs=0.05)


def test_dropout_is_on_even_if_making_a_batch_has_turned_it_off(
    tiny: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    """A frozen base reads all rows when the first batch is asked for: in a resumed run, that is within a step."""
    seen = []

    class Turned(Language):
        def loss(self, model: Model, batch: Batch) -> Any:
            seen.extend([model.training] if torch.is_grad_enabled() else [])  # evaluations aside
            model.eval()  # as reading the rows does
            return super().loss(model, batch)

    fit("causal", tiny, tmp_path / "run", settings(steps=1, accumulate=3), Turned(None))
    assert seen == [True, True, True]


@pytest.mark.parametrize("tied", [True, False])
def test_accumulating_four_small_batches_is_one_large_batch(
    tied: bool, tiny: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    # One epoch is 8 rows of four lengths: in one batch of 8, or in four of 2. The order differs, the sum does not.
    whole, one = fit("causal", tiny, tmp_path / "one", settings(steps=3, log_every=1), tied=tied)
    cfg = settings(steps=3, batch_size=2, accumulate=4, log_every=1)
    parts, four = fit("causal", tiny, tmp_path / "four", cfg, tied=tied)
    for name, tensor in weights(whole).items():
        assert_close(weights(parts)[name], tensor, atol=2e-4, rtol=1e-3)
    logs = ([r for r in run.read_lines("log.jsonl") if r["split"] != "receipt"] for run in (one, four))
    for a, b in zip(*logs, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a.get("grad_norm", 0) == pytest.approx(b.get("grad_norm", 0), rel=1e-3)  # Adam would hide a wrong scale


def test_the_best_weights_are_kept_and_stale_training_stops(
    tiny: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    class Worsening(Language):
        seen = 0

        def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
            self.seen += 1
            self.kept = self.kept if self.seen > 2 else {n: t.clone() for n, t in weights(model).items()}
            return {"loss": [3.0, 1.0, 2.0, 2.0, 2.0, 2.0][self.seen - 1]}

    task = Worsening(None)
    cfg = settings(steps=50, eval_every=10, patience=2)
    model, run = fit("causal", tiny, tmp_path / "run", cfg, task)
    assert [r["step"] for r in run.read_lines("log.jsonl") if r["split"] == "valid"] == [0, 10, 20, 30]
    assert all(torch.equal(t, task.kept[name]) for name, t in weights(model).items())


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_update(
    poison: float, tiny: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    class Poisoned(Language):
        calls = 0

        def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
            total, count = super().loss(model, batch)
            if model.training:
                self.calls += 1
                if self.calls == 6:
                    self.before = {n: t.clone() for n, t in weights(model).items()}
                    self.model = model
                    return total * poison, count
            return total, count

    task = Poisoned(None)
    with pytest.raises(DivergedError, match="at step 5"):
        fit("causal", tiny, tmp_path / "run", settings(), task)
    assert all(torch.equal(t, task.before[name]) for name, t in weights(task.model).items())
    assert list((tmp_path / "run" / "checkpoints").glob("step-*/MANIFEST.json"))


def test_the_learning_rate_rises_to_its_peak_and_falls_to_its_end() -> None:
    cfg = settings(steps=100, warmup=0.1, lr=1.0, final_lr=0.1)
    rates = [learning_rate(step, cfg) for step in range(101)]
    assert rates[0] == pytest.approx(1 / 11)
    assert max(rates) == rates[10] == 1.0
    assert rates[100] == pytest.approx(0.1)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
