"""Whether the numbers of training are sound: finite, and without a sudden jump."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

from headstart.config import TrainConfig
from headstart.errors import DivergedError
from headstart.runs.checkpoint import Progress
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.text.batch import Batches

RECENT = 32  # steps whose median loss is the reference for a spike
SPIKE = 3.0  # times that median
NEGLIGIBLE = 0.1  # nats; a lower loss is never a spike
NAMED = 8  # rows of a batch that a message names
REMEDY = "Lower train.lr, or raise train.warmup."


class Health:
    def __init__(self, batches: Batches[Any], cfg: TrainConfig, run: Run, watch: Watch) -> None:
        self.batches, self.cfg, self.run, self.watch = batches, cfg, run, watch

    def allows(self, update: dict[str, float], now: Progress) -> bool:
        """Whether the optimizer may take this step; after `skip_nonfinite` skipped ones, training stops."""
        broken = [name for name in ("loss", "grad_norm") if not math.isfinite(update[name])]
        if not broken:
            return True
        what = "loss" if "loss" in broken else "gradient"
        told = f"The {what} is not finite at step {now.step} (learning rate {update['lr']:.2g}, {self._where(now)})"
        numbers = {name: str(value) if name in broken else value for name, value in update.items()}
        self._log("nonfinite", numbers, now)
        if now.skipped >= self.cfg.skip_nonfinite:
            raise DivergedError(
                f"{told}; the weights were not updated. {REMEDY} To leave out up to N such updates: "
                "--set train.skip_nonfinite=N, with --resume too."
            )
        now.skipped += 1
        self.watch.note(f"Note: {told}. Left out, as {now.skipped} of {self.cfg.skip_nonfinite} allowed.")
        return False

    def look_for_spike(self, update: dict[str, float], now: Progress) -> None:
        """Log a loss far above the recent ones; nothing else is done about it."""
        usual = max(median(now.recent), NEGLIGIBLE) if len(now.recent) == RECENT else math.inf
        if update["loss"] > SPIKE * usual:
            self._log("spike", {"loss": update["loss"], "usual": usual}, now)
        now.recent = [*now.recent, update["loss"]][-RECENT:]

    def check_weights(self, weights: Iterable[Tensor], now: Progress) -> None:
        """After a step: non-finite weights must never reach a checkpoint."""
        total = torch.stack([w.detach().sum() for w in weights])  # one number that is not finite makes its sum so
        if not bool(total.isfinite().all()):
            raise DivergedError(f"The weights are not finite after step {now.step} ({self._where(now)}). {REMEDY}")

    def check_scores(self, scores: Mapping[str, Any], now: Progress) -> None:
        if not math.isfinite(scores["loss"]):
            raise DivergedError(f"The validation loss is not finite at step {now.step}. {REMEDY}")

    def _log(self, split: str, record: dict[str, Any], now: Progress) -> None:
        contents = [n for index in self._indexes(now) for n in self.batches.contents(index).tolist()]
        self.run.log({"step": now.step, "split": split, **record, "batch": contents})

    def _where(self, now: Progress) -> str:
        first = self._indexes(now)[0]
        numbers = self.batches.contents(first).tolist()
        more = " ..." if len(numbers) > NAMED or self.cfg.accumulate > 1 else ""
        return f"batch {first}: {self.batches.made_of} {', '.join(map(str, numbers[:NAMED]))}{more}"

    def _indexes(self, now: Progress) -> range:
        """The batches of the current step."""
        return range(now.step * self.cfg.accumulate, (now.step + 1) * self.cfg.accumulate)
