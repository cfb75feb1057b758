"""Checkpoints: the state that a killed run resumes from.

    checkpoints/step-0000200/
      model.safetensors      every weight
      optimizer.safetensors  AdamW's two moments for each trainable weight
      best.safetensors       the best weights so far, when they are not the present ones
      state.json             Progress
      MANIFEST.json          size and SHA-256 of the files above

Nothing random is stored: everything at a step is a function of the seed and the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from headstart.errors import ModelError, ResourceError
from headstart.quantities import data_size
from headstart.runs import manifest
from headstart.runs.disk import DRAFT, free_space, remove_folder, write_folder
from headstart.runs.run import Run
from headstart.runs.watch import Watch

KEPT = 2  # checkpoints; one more than is needed, should the newest turn out damaged
FAILURES = 3  # saves in a row that the disk may refuse before training stops
AVERAGES = ("step", "exp_avg", "exp_avg_sq")  # what AdamW keeps for a weight
Tensors = dict[str, Tensor]


@dataclass
class Progress:
    """Where a run stands; state.json of a checkpoint."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    step: int = 0
    best: Mapping[str, Any] | None = None  # scores of the best evaluation
    best_step: int = 0
    stale: int = 0  # evaluations since then
    tokens: int = 0
    seconds: float = 0.0
    log_bytes: int = 0
    evaluated: bool = False  # whether the evaluation due at `step` is already in the log
    skipped: int = 0  # steps skipped because loss or gradient was not finite
    recent: list[float] = field(default_factory=list)  # the last losses, against which a spike is seen


_STATE = TypeAdapter(Progress)


@dataclass(frozen=True)
class Checkpoint:
    progress: Progress
    weights: Tensors
    averages: Tensors
    best: Tensors | None


def weights(model: nn.Module) -> Tensors:
    """Every parameter once, tied ones under their first name, and the buffers that belong to the model's state."""
    kept = model.state_dict().keys()
    buffers = {name: b for name, b in model.named_buffers() if name in kept}
    return {**{name: p.detach() for name, p in model.named_parameters()}, **buffers}


def load_weights(model: nn.Module, tensors: Tensors) -> None:
    must_fit(model, tensors)
    with torch.no_grad():
        for name, parameter in weights(model).items():
            parameter.copy_(tensors[name])


def weight_bytes(model: nn.Module) -> int:
    return sum(t.nbytes for t in weights(model).values())


def checkpoint_bytes(model: nn.Module) -> int:
    """Weights, the best weights, and AdamW's two moments of every trainable weight."""
    return 2 * weight_bytes(model) + 2 * sum(p.nbytes for p in model.parameters() if p.requires_grad)


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 over names and numbers: equal when, and only when, every weight is equal to the last bit."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Saver:
    """Saves where a run stands. A disk that refuses costs no training until it has refused three times in a row."""

    def __init__(
        self, run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, watch: Watch, saved: int | None
    ) -> None:
        """`saved` is the step that the run goes on from, and that is on disk already."""
        self.run, self.model, self.optimizer, self.watch, self.saved = run, model, optimizer, watch, saved
        self.failures = 0
        self._must_have_space()

    def save(self, now: Progress, best: Tensors | None, insist: bool = False) -> None:
        """Add the checkpoint of `now`; without `insist` a refusal is told and the next save tries again."""
        if not self.run.writes:
            return
        if not self.run.there:  # a folder of that name could be made again, but nothing could go on from it
            raise ResourceError(
                f"{self.run.path} was removed or renamed while the run was at work, so nothing can be saved there; step "
                f"{now.step} is lost. Begin a new run.",
                "RUN_GONE",
            )
        if self.saved == now.step:
            return
        try:
            now.log_bytes = self.run.log_length()
            save_checkpoint(self.run, self.model, self.optimizer, best, now)
        except ResourceError as refusal:
            self.failures += 1
            if insist or self.failures == FAILURES:
                raise
            self.watch.note(f"Note: step {now.step} could not be saved. {refusal} Training goes on and tries again.")
            return
        self.failures, self.saved = 0, now.step
        for trouble in _remove_old(self.run, now.step):
            self.watch.note(f"Note: {trouble}")

    def _must_have_space(self) -> None:
        """Refuse to begin where the checkpoints clearly will not fit."""
        there = sum(path.lstat().st_size for folder in _checkpoints(self.run) for path in folder.glob("*"))
        needed = (KEPT + 1) * checkpoint_bytes(self.model) + weight_bytes(self.model) - there  # the last is model/
        free = free_space(self.run.path)
        if free < needed:
            raise ResourceError(
                f"{self.run.path} needs {data_size(needed)} for checkpoints and the model; {data_size(free)} are free "
                "on its disk. Free some space, or choose another --out.",
                "DISK_FULL",
            )


def save_checkpoint(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, best: Tensors | None, now: Progress
) -> None:
    """Write the checkpoint of `now`, and read it again."""
    files = {
        "model.safetensors": save(weights(model)),
        "optimizer.safetensors": save(_averages(model, optimizer)),
        "state.json": json.dumps(asdict(now)).encode(),
    }
    if best is not None:
        files["best.safetensors"] = save(best)
    folder = run.path / "checkpoints" / f"step-{now.step:07d}"
    write_folder(folder, {**files, manifest.NAME: manifest.manifest_of(files)})
    del files  # as large as the model several times over
    try:
        for _ in _verified(folder):
            pass
    except ValueError as error:
        raise ResourceError(f"{folder} was written, but cannot be read again: {error}.", "DISK_FAULT") from None


def load_checkpoint(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, Tensors | None, list[str]] | None:
    """Progress, best weights and what was passed over, from the newest checkpoint that is whole.

    `model` and `optimizer` are set to it. None for a run that has not begun.
    """
    if not run.begun:
        return None
    passed_over: list[str] = []
    for folder in _checkpoints(run):
        try:
            found = _opened(folder, run, model)
        except ValueError as error:
            passed_over.append(f"{folder.name}: {error}")
            continue
        load_weights(model, found.weights)
        _restore_averages(model, optimizer, found.averages)
        return found.progress, found.best, passed_over
    tried = "; ".join(passed_over) or "there are none"
    raise ModelError(f"{run.path}: no checkpoint can be used ({tried}). Start a new run.", "CHECKPOINT_DAMAGED")


def _checkpoints(run: Run) -> list[Path]:
    """Newest first."""
    found = (run.path / "checkpoints").glob("step-*")
    return sorted((p for p in found if re.fullmatch(r"step-\d{7,}", p.name)), key=_step, reverse=True)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _remove_old(run: Run, step: int) -> list[str]:
    """Remove the checkpoints that are no longer needed now that `step` is safe; what could not be removed."""
    old = [p for p in _checkpoints(run) if _step(p) <= step][KEPT:]  # a later one is a damaged one
    half_gone = (run.path / "checkpoints").glob(DRAFT)
    troubles = []
    for path in [*half_gone, *old]:
        try:
            remove_folder(path)
        except OSError as error:
            troubles.append(f"the old checkpoint {path} could not be removed ({error.strerror}).")
    return troubles


def _opened(folder: Path, run: Run, model: nn.Module) -> Checkpoint:
    """A checkpoint that is whole, belongs to this run and fits this model; a ValueError says why it is not."""
    files = dict(_verified(folder))
    try:
        now = _STATE.validate_json(files["state.json"])
        tensors = {name: load(data) for name, data in files.items() if name.endswith(".safetensors")}
        found = Checkpoint(
            now, tensors["model.safetensors"], tensors["optimizer.safetensors"], tensors.get("best.safetensors")
        )
        for kept in (found.weights, found.best or found.weights):
            must_fit(model, kept)
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from None
    except ModelError as error:
        raise ValueError(str(error)) from None
    except (ValueError, SafetensorError):
        raise ValueError("its files cannot be understood") from None
    if now.step != _step(folder):
        raise ValueError(f"it is of step {now.step}")
    if not 0 <= now.log_bytes <= run.log_length():
        raise ValueError("the log is shorter than it was then")
    averages = {f"{name}.{key}": p for name, p in model.named_parameters() for key in AVERAGES if p.requires_grad}
    shapes = {name: torch.Size() if name.endswith(".step") else p.shape for name, p in averages.items()}
    if any(t.shape != shapes.get(name) for name, t in found.averages.items()):
        raise ValueError("the optimizer's moments do not fit the model")
    learned = {name.rpartition(".")[0] for name in found.averages}
    if len(found.averages) != len(AVERAGES) * len(learned) or bool(learned) != (now.step > now.skipped):
        raise ValueError("the optimizer's moments are missing")
    return found


def _verified(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a checkpoint by name, as long as they are those that were written and no others."""
    entries = manifest.read_manifest(folder)
    try:
        if {*entries, manifest.NAME} != set(os.listdir(folder)):
            raise ValueError("its files are not those of its manifest")
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror})") from None
    yield from manifest.verified(folder, entries)


def must_fit(model: nn.Module, tensors: Tensors) -> None:
    own = weights(model)
    missing, strange = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or strange:
        raise ModelError(f"The weights do not fit the model: missing {missing[:5]}, not expected {strange[:5]}.")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise ModelError(
                f"The weights do not fit the model: {name} is {tuple(tensors[name].shape)}, not {tuple(tensor.shape)}."
            )


def _averages(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    return {
        f"{name}.{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
    }


def _restore_averages(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    for name, p in model.named_parameters():
        if f"{name}.step" in tensors:  # fused AdamW wants its step beside the weights
            optimizer.state[p] = {key: tensors[f"{name}.{key}"].to(p.device).clone() for key in AVERAGES}
