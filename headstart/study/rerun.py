"""A cell of a study, or a run, run again in another folder and compared with what is kept of it. The job itself loads torch."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.config import FinetuneConfig, JobConfig
from headstart.runs.environment import changes, processor, versions
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.study.check import Verification
from headstart.study.run import Planned, run_cell

TOLERANCE = 0.01  # of a probability or a score, where the machine or a version is another one
CLOCK = ("run", "seconds", "preparing_seconds", "tokens_per_second", "communication_seconds", "processes", "threads", "gradients", "weights_sha256", "config_sha256")  # fmt: skip


def check_again(found: Verification, cell: Planned, kept: Path, out: Path | None, watch: Watch) -> None:
    """Run a cell again, and hold it against the one in `kept`; `out` is the folder of its study."""
    name, env = f"run again: {cell.name}", _env(kept)
    before = out is not None and (out / "features").exists()
    with tempfile.TemporaryDirectory() as scratch:
        moved = _moved(cell, Path(scratch))
        threads = env.get("threads") or _result(kept).get("threads")  # of a run, or of a cell that is none
        outcome = run_cell(moved, Path(scratch), threads=int(threads or 0), watch=watch)
        if out is not None and not before:  # what a joined arm leaves there
            shutil.rmtree(out / "features", ignore_errors=True)
        if outcome.exit:
            found.leave(name, f"it could not be run (exit code {outcome.exit}): {outcome.message}")
            return
        again = Path(scratch) / "cells" / cell.name
        unlike = list(differences(kept, again))
        other = machine_changes(kept, env, _env(again))
        if not unlike:
            found.hold(name, (), "bit for bit: " + _compared(kept))
        elif not other:
            found.hold(name, unlike)
        elif not (large := list(differences(kept, again, TOLERANCE))):
            found.hold(name, (), f"within {TOLERANCE}, not bit for bit: {', '.join(other)}")
        else:
            found.leave(name, f"{large[0]}, and {', '.join(other)} may be the reason")


def differences(kept: Path, again: Path, tolerance: float = 0.0) -> Iterator[str]:
    """What differs between two runs of a cell: weights, predictions, scores."""
    before, now = (_result(path) for path in (kept, again))
    hashes = [_weights(path, result) for path, result in ((kept, before), (again, now))]
    if not tolerance and hashes[0] and hashes[1] and hashes[0] != hashes[1]:
        yield "its weights are others than the same settings and seed give"
    lines = [_lines(path / "predictions.jsonl") for path in (kept, again)]
    if len(lines[0]) != len(lines[1]):
        yield f"it has {len(lines[0])} predictions, not {len(lines[1])}"
    unlike = [i for i, (a, b) in enumerate(zip(*lines, strict=False)) if not alike(a, b, tolerance)]
    if unlike:
        yield f"{len(unlike)} of {len(lines[0])} predictions differ, the first in row {unlike[0]}"
    for key in sorted((before.keys() & now.keys()) - {*CLOCK}):
        if not alike(before[key], now[key], tolerance):
            yield f"{key} of result.json differs"


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values from JSON are the same; texts always, numbers within `tolerance`.

    >>> alike({"a": [1, "x"]}, {"a": [1.001, "x"]}, 0.01), alike({"a": 1}, {"a": 1.001}, 0.0)
    (True, False)
    """
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(alike(one[key], other[key], tolerance) for key in one)
        case list(), list():
            return len(one) == len(other) and all(alike(a, b, tolerance) for a, b in zip(one, other, strict=True))
        case ((int() | float()), (int() | float())):
            return bool(abs(one - other) <= tolerance * max(1.0, abs(one)))
    return bool(one == other)


def machine_changes(kept: Path, env: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another than when the cell was made, and decides the last bits; a baseline has no record of it."""
    if not env:
        made = _study_versions(kept)
        return [f"{name} {made.get(name)} -> {v}" for name, v in versions().items() if made and made.get(name) != v]
    found = [*changes(env, now), *env.get("not_bit_identical", [])]
    if env.get("processor") != processor():
        found.append(f"processor {env.get('processor') or 'not recorded'} -> {processor() or 'unknown'}")
    return found


def _study_versions(kept: Path) -> Mapping[str, str]:
    file = kept.parent.parent / "study.json"
    return json.loads(file.read_text()).get("environment", {}).get("versions", {}) if file.exists() else {}


def _moved(cell: Planned, scratch: Path) -> Planned:
    """The same cell, without the cache of features that the study keeps."""
    if not isinstance(cell.work, FinetuneConfig) or cell.work.features is None:
        return cell
    return replace(cell, work=cell.work.model_copy(update={"features": str(scratch / "features")}))


def planned_run(run: Run) -> Planned:
    """A run as a cell of its own."""
    asked: JobConfig = run.asked(JobConfig)
    return Planned(run.path.name, asked)


def _env(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = Run(path).read_json("env.json") if Run(path).there else {}
    return found


def _result(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = Run(path).read_json("result.json")
    return found


def _weights(path: Path, result: Mapping[str, Any]) -> str | None:
    """The SHA-256 of the weights; a run made before it was kept has it where the weights themselves are."""
    from headstart.runs.manifest import NAME, read_manifest

    if (kept := result.get("weights_sha256")) or not (path / "model" / NAME).exists():
        return kept
    return read_manifest(path / "model")["model.safetensors"].sha256


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def _compared(kept: Path) -> str:
    weights = ["weights"] if _weights(kept, _result(kept)) else []
    predictions = ["predictions"] if (kept / "predictions.jsonl").exists() else []
    return ", ".join([*weights, *predictions, "scores"])
