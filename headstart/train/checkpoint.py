"""Checkpoints: what a killed run goes on from.

    checkpoints/step-0000200/
      model.safetensors      every weight
      optimizer.safetensors  AdamW's two averages for each weight that learns
      best.safetensors       the best weights so far, when they are not the present ones
      state.json             step, best score, length of the log, seconds
      MANIFEST.json          written last: size and SHA-256 of the files above

Nothing random is stored: everything at a step is a function of the seed and the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from headstart.errors import ModelError
from headstart.train.disk import disk_errors, sync_folder, write_file
from headstart.train.run import Run

KEPT = 2  # checkpoints; one more than is needed, should the newest turn out damaged
Tensors = dict[str, Tensor]


def weights(model: nn.Module) -> Tensors:
    """Every parameter once, tied ones under their first name, and the buffers that belong to the model's state."""
    kept = model.state_dict().keys()
    buffers = {name: b for name, b in model.named_buffers() if name in kept}
    return {**{name: p.detach() for name, p in model.named_parameters()}, **buffers}


def load_weights(model: nn.Module, tensors: Tensors) -> None:
    own = weights(model)
    missing, strange = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or strange:
        raise ModelError(f"The weights do not fit the model: missing {missing[:5]}, not expected {strange[:5]}.")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise ModelError(
                    f"The weights do not fit the model: {name} is {tuple(tensors[name].shape)}, "
                    f"not {tuple(parameter.shape)}."
                )
            parameter.copy_(tensors[name])


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 over names and numbers: equal when, and only when, every weight is equal to the last bit."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, best: Tensors | None, state: dict[str, Any]
) -> None:
    """Add the checkpoint of `state["step"]`, then remove those that are no longer needed."""
    files = {
        "model.safetensors": save(weights(model)),
        "optimizer.safetensors": save(_optimizer_tensors(model, optimizer)),
        "state.json": json.dumps(state).encode(),
    }
    if best is not None:
        files["best.safetensors"] = save(best)
    manifest = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    folder = run.path / "checkpoints"
    final = folder / f"step-{state['step']:07d}"
    draft = folder / f".{final.name}.{os.getpid()}.tmp"
    with disk_errors(final):
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for name, data in files.items():
                write_file(draft / name, data)
            write_file(draft / "MANIFEST.json", json.dumps(manifest).encode())
            if final.exists():  # a damaged one, or this process would have resumed from it
                shutil.rmtree(final)
            os.rename(draft, final)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    up_to_now = [p for p in _checkpoints(run) if _step(p) <= state["step"]]  # a later one is a damaged one
    for old in up_to_now[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], Tensors | None, list[str]] | None:
    """State, best weights and what was passed over, from the newest checkpoint that is whole; None before the first.

    `model` and `optimizer` are set to it.
    """
    passed_over: list[str] = []
    for folder in _checkpoints(run):
        try:
            files = _verified(folder)
        except ValueError as error:
            passed_over.append(f"{folder.name}: {error}")
            continue
        load_weights(model, load(files["model.safetensors"]))
        _restore_optimizer(model, optimizer, load(files["optimizer.safetensors"]))
        best = load(files["best.safetensors"]) if "best.safetensors" in files else None
        return json.loads(files["state.json"]), best, passed_over
    if passed_over or run.begun:
        tried = "; ".join(passed_over) or "there are none"
        raise ModelError(f"{run.path}: no checkpoint can be used ({tried}). Start a new run.", "CHECKPOINT_DAMAGED")
    return None


def _checkpoints(run: Run) -> list[Path]:
    """Newest first."""
    found = (run.path / "checkpoints").glob("step-*")
    return sorted((p for p in found if re.fullmatch(r"step-\d{7,}", p.name)), key=_step, reverse=True)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _verified(folder: Path) -> dict[str, bytes]:
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_bytes())
        files = {name: (folder / Path(name).name).read_bytes() for name in manifest}
        for name, data in files.items():
            if hashlib.sha256(data).hexdigest() != manifest[name]["sha256"]:
                raise ValueError(f"{name} is not what was written")
    except (OSError, AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"it is incomplete ({type(error).__name__}: {error})") from None
    except json.JSONDecodeError:
        raise ValueError("its manifest is damaged") from None
    if not {"model.safetensors", "optimizer.safetensors", "state.json"} <= files.keys():
        raise ValueError("its manifest is incomplete")
    return files


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    return {
        f"{name}.{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
    }


def _restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    for name, p in model.named_parameters():
        keys = ("step", "exp_avg", "exp_avg_sq")
        state = {key: tensors[f"{name}.{key}"] for key in keys if f"{name}.{key}" in tensors}
        if state:  # fused AdamW wants its step beside the weights
            optimizer.state[p] = {key: value.to(p.device).clone() for key, value in state.items()}
