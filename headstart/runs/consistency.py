"""What a finished run keeps about itself, held against itself: settings, weights, log, test rows. No torch.

Each function yields what disagrees, as the end of a sentence that begins with the run; nothing where all is consistent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from math import isclose
from typing import Any

from headstart.runs.manifest import NAME, read_manifest, verified
from headstart.runs.run import Run


def settings_disagree(run: Run) -> Iterator[str]:
    """The seed and the sampled rows in env.json, in the settings as asked for, and in config.toml; and that against its hash."""
    config, env = run.config, run.read_json("env.json")
    asked = run.asked(type(config))  # which reports settings that are not those it began with
    if not env.get("seed") == asked.train.seed == config.train.seed:
        yield "its files name different seeds, so one of them was edited"
    data, drawn = getattr(asked, "data", None), getattr(config, "data", None)
    if any(getattr(data, name, None) != getattr(drawn, name, None) for name in ("labels", "draw", "split_seed")):
        yield "env.json and config.toml name different rows to sample, so one of them was edited"
    kept = run.read_json("result.json").get("config_sha256")
    if kept and sha256((run.path / "config.toml").read_bytes()).hexdigest() != kept:
        yield "config.toml is not the file that result.json names by its SHA-256"


def weights_disagree(run: Run) -> Iterator[str]:
    """The files of model/ against MANIFEST.json, and that against result.json."""
    model = run.path / "model"
    if not os.path.lexists(model / NAME):
        yield "model/MANIFEST.json is missing"
        return
    entries = {}
    try:
        entries = read_manifest(model)
        for _ in verified(model, entries):
            pass
    except ValueError as error:
        yield f"model/ was changed: {error}"
    kept = run.read_json("result.json").get("weights_sha256")
    if kept and "model.safetensors" in entries and entries["model.safetensors"].sha256 != kept:
        yield "the weights in model/ are not those that result.json names"


def log_disagrees(run: Run) -> Iterator[str]:
    """The log against the result: the last step, the best validation, and the points of the training curve."""
    result, records = run.read_json("result.json"), list(run.read_lines("log.jsonl"))
    if not records or max(record.get("step", 0) for record in records) != result["steps"]:
        yield f"log.jsonl does not end at step {result['steps']}, so it was edited"
    kept = {(record.get("split"), record.get("step")): record for record in records}
    best, valid = kept.get(("valid", result["best_step"])), result.get("valid")
    if valid and (best is None or not _agree(best, valid)):
        yield f"log.jsonl and result.json disagree about the validation at step {result['best_step']}, so one was edited"
    for point in result.get("curve") or []:
        logged = kept.get(("train", point.get("step")))
        if logged is None or not _same(logged.get("loss"), point.get("loss")):
            yield f"log.jsonl and result.json disagree about the loss at step {point.get('step')}, so one was edited"
            return


def test_rows_disagree(run: Run) -> Iterator[str]:
    """The accuracy, counted again from the test rows, and each prediction against its probabilities."""
    test = run.read_json("result.json").get("test") or {}
    if "accuracy" not in test:
        return
    rows = list(run.read_lines("predictions.jsonl"))
    right = sum(row["label"] == row["prediction"] for row in rows)
    if len(rows) != test["rows"] or not _same(right / max(1, len(rows)), test["accuracy"]):
        yield f"predictions.jsonl has {right} of {len(rows)} test rows right, which is not the accuracy in result.json"
        return
    unlike = [n for n, row in enumerate(rows) if row.get("probabilities") and _most_probable(row) != row["prediction"]]
    if unlike:
        yield f"row {unlike[0]} of predictions.jsonl does not have its most probable label, so it was edited"


def _agree(logged: Any, valid: Any) -> bool:
    return all(_same(logged[name], valid[name]) for name in ("loss", "accuracy") if name in valid and name in logged)


def _same(one: Any, other: Any) -> bool:
    return all(isinstance(n, (int, float)) for n in (one, other)) and isclose(one, other, rel_tol=1e-9)


def _most_probable(row: Any) -> str:
    found: dict[str, float] = row["probabilities"]
    return max(found, key=lambda label: found[label])
