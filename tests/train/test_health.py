"""Numbers that are not finite never reach the weights, and a memory that is too small is told with what to try."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import DivergedError, ResourceError
from headstart.models.heads import Model
from headstart.runs.checkpoint import fingerprint, weights
from headstart.tasks.language import Language
from headstart.text.batch import Batch

INF, NAN = math.inf, math.nan


class Poisoned(Language):
    """Gives `poison` in place of a finite loss, or of one number in the gradient, at the `steps`."""

    def __init__(self, steps: Iterable[int], poison: float, where: str) -> None:
        super().__init__(None)
        self.steps, self.poison, self.where, self.step = set(steps), poison, where, -1
        self.before: dict[int, str] = {}  # weights at each step, as they were before it

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        total, count = super().loss(model, batch)
        if not model.training:
            return total, count
        self.step, self.model = self.step + 1, model
        self.before[self.step] = fingerprint(weights(model))
        if self.step not in self.steps:
            return total, count
        if self.where == "loss":
            return total * self.poison, count
        total.register_hook(lambda gradient: gradient * self.poison)
        return total, count


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("poison", [NAN, INF, -INF], ids=str)
@pytest.mark.parametrize("step", [0, 1, 2, 5, 6, 11])
def test_an_update_that_is_not_finite_is_not_made(
    step: int, poison: float, where: str, bench: Any, tmp_path: Path
) -> None:
    task = Poisoned([step], poison, where)
    with pytest.raises(
        DivergedError, match=rf"The {where} is not finite at step {step} \(learning rate .*rows \d, "
    ) as e:
        bench.train(tmp_path / "run", task=task)
    assert e.value.exit_code == 7
    assert fingerprint(weights(task.model)) == task.before[step]
    last = bench.open(tmp_path / "run")
    last.run.close()
    assert last.now.step == step - step % 2
    assert fingerprint(weights(last.model)) == task.before[last.now.step]


def test_the_message_names_the_batch_and_the_log_keeps_it(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"batch 3: rows (\d, ){3}\d\); the weights were not updated") as e:
        bench.train(tmp_path / "run", task=Poisoned([3], NAN, "loss"))
    *_, record = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert '"split": "nonfinite", "loss": "nan"' in record
    assert str(e.value).partition("rows ")[2].partition(")")[0] in record


def test_as_many_updates_as_allowed_are_left_out(bench: Any, notes: Any, tmp_path: Path) -> None:
    task = Poisoned([3, 4, 7], NAN, "loss")
    with pytest.raises(DivergedError, match="at step 7"):
        bench.train(tmp_path / "run", task=task, watch=notes, skip_nonfinite=2)
    assert task.before[3] == task.before[4] == task.before[5] != task.before[6]
    assert [note.partition(" (learning")[0] for note in notes.notes] == [
        "Note: The loss is not finite at step 3",
        "Note: The loss is not finite at step 4",
    ]


def test_a_run_that_leaves_updates_out_resumes_to_the_same_bits(bench: Any, tmp_path: Path, log_of: Any) -> None:
    class At(Poisoned):
        def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
            total, count = Language.loss(self, model, batch)
            bad = model.training and int(batch.ids.sum()) % 5 == 0  # by what is in it, so that a resumed run has it too
            return total * (NAN if bad else 1.0), count

    whole, run = bench.train(tmp_path / "whole", task=At([], NAN, "loss"), skip_nonfinite=9)
    skipped = [r["step"] for r in log_of(run) if r["split"] == "nonfinite"]
    assert 2 < len(skipped) < 9
    with pytest.raises(DivergedError):
        bench.train(tmp_path / "run", task=At([], NAN, "loss"), skip_nonfinite=2)
    with pytest.raises(DivergedError):  # those before the kill count too
        bench.train(tmp_path / "run", resume=True, task=At([], NAN, "loss"), skip_nonfinite=len(skipped) - 1)
    again, resumed = bench.train(tmp_path / "run", resume=True, task=At([], NAN, "loss"), skip_nonfinite=9)
    assert fingerprint(weights(again)) == fingerprint(weights(whole))
    assert log_of(resumed) == log_of(run)


def test_weights_that_are_not_finite_are_never_saved(bench: Any, tmp_path: Path) -> None:
    class Broken(Poisoned):
        def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
            if self.step == 6:  # as a fault of the machine would
                with torch.no_grad():
                    model.base.positions.weight[-1, -1] = INF  # of a place that no row reaches
            return super().loss(model, batch)

    with pytest.raises(DivergedError, match="The weights are not finite after step 7"):
        bench.train(tmp_path / "run", task=Broken([], NAN, "loss"))
    last = bench.open(tmp_path / "run")
    last.run.close()
    assert last.now.step == 6
    assert all(bool(t.isfinite().all()) for t in weights(last.model).values())


def test_a_validation_loss_that_is_not_finite_stops_the_run(bench: Any, tmp_path: Path) -> None:
    class Blind(Language):
        def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
            return {**super().evaluate(model, batches), "loss": NAN}

    with pytest.raises(DivergedError, match="validation loss is not finite at step 0"):
        bench.train(tmp_path / "run", task=Blind(None))


def test_a_learning_rate_that_is_much_too_high_ends_with_exit_code_7(sentences: Path, tmp_path: Path) -> None:
    words = ["pretrain", str(sentences), "--out", str(tmp_path / "run"), "--unit", "line", "--size", "nano", "--quiet",
             "--lr", "1e30", "--steps", "20", "--batch-size", "8", "--set", "train.tensorboard=false"]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 7
    assert "error[DIVERGED]: The loss is not finite at step 1 (learning rate 1e+30, batch 1: rows " in done.stderr
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-0000000"]


class Spiking(Language):
    """Losses 20 nats too high at some steps, without any effect on the gradient."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(None)
        self.step = start - 1

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
        total, count = super().loss(model, batch)
        self.step += model.training
        return total + (20 * count if model.training and self.step in (10, 40, 45) else 0), count


def test_a_spike_of_the_loss_is_logged_and_nothing_else(bench: Any, tmp_path: Path, log_of: Any) -> None:
    settings = {"steps": 60, "lr": 1e-5, "eval_every": 60, "checkpoint_every": 35}
    plain, _ = bench.train(tmp_path / "plain", **settings)
    model, run = bench.train(tmp_path / "run", task=Spiking(), **settings)
    spikes = [r for r in log_of(run) if r["split"] == "spike"]
    assert [r["step"] for r in spikes] == [40, 45], "there is nothing to hold the tenth against"
    assert all(r["loss"] > 20 > 5 > r["usual"] for r in spikes)
    assert all(len(r["batch"]) == 4 for r in spikes)
    assert fingerprint(weights(model)) == fingerprint(weights(plain))
    before = log_of(run)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-0000060")
    _, resumed = bench.train(tmp_path / "run", resume=True, task=Spiking(35), **settings)
    assert log_of(resumed) == before, "a resumed run remembers the losses from before"


def cuda(batch: Batch) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 1.00 GiB in all.")


def cpu(batch: Batch) -> Tensor:
    return torch.empty(10**15)  # more than there are addresses, whatever the machine


def python(batch: Batch) -> Tensor:
    raise MemoryError


@pytest.mark.parametrize("allocate", [cpu, cuda, python], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"batch_size": 32}, "Try --batch-size 8 --set train.accumulate=4 in a new run"),
        ({"batch_size": 8, "accumulate": 3}, "Try --batch-size 2 --set train.accumulate=12 in a new run"),
        ({"batch_size": 3}, "Try --batch-size 1 --set train.accumulate=3 in a new run"),
        ({"batch_size": 1}, "Try a shorter --context or a smaller --size, in a new run"),
    ],
)
def test_too_little_memory_is_told_with_what_to_try(
    allocate: Any, settings: dict[str, int], remedy: str, bench: Any, tmp_path: Path
) -> None:
    class Greedy(Language):
        def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
            if model.training:
                allocate(batch)
            return super().loss(model, batch)

    with pytest.raises(ResourceError, match=remedy) as e:
        bench.train(tmp_path / "run", task=Greedy(None), **settings)
    assert (e.value.exit_code, e.value.code) == (6, "MEMORY")
    assert "\n" not in str(e.value)


def test_another_fault_of_torch_is_not_taken_for_too_little_memory(bench: Any, tmp_path: Path) -> None:
    class Wrong(Language):
        def loss(self, model: Model, batch: Batch) -> tuple[Tensor, float]:
            return torch.zeros(2) @ torch.zeros(3), 1.0

    with pytest.raises(RuntimeError, match="size"):
        bench.train(tmp_path / "run", task=Wrong(None))
