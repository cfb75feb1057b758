"""Whether a run directory that a student hands in is what it claims to be.

What a run keeps about itself is held against itself and against the student's id: the seed, the settings that it began with,
the SHA-256 of the weights, the log against the result, the test rows against their score. A copied run has the seed of
another id, and an edited score disagrees with the log or the test rows. Grading also classifies some test rows again and
runs the first step again (which loads torch): on the same processor and torch its weights are the same to the last bit.
Whoever runs the first step and forges all that follows, so that it agrees, is not found without training again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import chdir
from itertools import islice
from math import isclose
from pathlib import Path
from typing import Any

from headstart.errors import ModelError, UserError, first_line
from headstart.labs.results import NotFound, is_number, pick
from headstart.labs.tasks import Reach
from headstart.runs.consistency import log_disagrees, settings_disagree, test_rows_disagree, weights_disagree
from headstart.runs.environment import changes, processor, versions
from headstart.runs.run import Run

AGAIN = 16  # test rows


def reached(task: Reach, folder: Path, seed: int, again: bool = False) -> tuple[bool, str, list[str]]:
    """Whether the score is reached, a sentence about it, and what is wrong with the run.

    `again`: some test rows are classified again, with the weights that are there, and the first step is run again.
    """
    place = folder / task.run
    if not place.exists():
        return False, f"there is no run {task.run} yet", []
    if not place.resolve().is_relative_to(folder.resolve()):
        return False, f"{task.run} leads out of the folder", [f"{task.run} is a link that leads out of the folder"]
    try:
        run = Run.open(place)
        score = pick(run.read_json("result.json"), task.score)
        wrong = list(_wrong(run, seed))
        wrong += _classified_again(run) if again and not wrong else []
        step, note = _stepped_again(run, folder) if again and not wrong else ([], "")
        wrong += step
    except NotFound as error:
        return False, f"{task.run} has no {task.score}: {error}", []
    except UserError as error:
        damaged = [first_line(error)] if isinstance(error, ModelError) and error.code == "RUN_DAMAGED" else []
        return False, first_line(error), damaged
    if not is_number(score) or isinstance(score, bool):
        return False, f"{task.score} of {task.run} is no number", []
    low, high = task.least, task.most
    enough = (low is None or score >= low) and (high is None or score <= high)
    bound = f"at least {low}" if low is not None else f"at most {high}"
    told = f"{task.score} is {score:.4g}; {bound} is asked for{note}"
    return enough and not wrong, told, [f"{task.run}: {each}" for each in wrong]


def _wrong(run: Run, seed: int) -> Iterator[str]:
    yield from settings_disagree(run)
    if (found := run.read_json("env.json").get("seed")) != seed:
        yield f"its seed is {found}, not {seed}, so it is the run of another id"
    yield from weights_disagree(run)
    yield from log_disagrees(run)
    yield from test_rows_disagree(run)


def _classified_again(run: Run) -> list[str]:
    """Some test rows by the model that is there, against what predictions.jsonl says of them."""
    if run.job != "finetune" or not (run.path / "predictions.jsonl").exists():
        return []
    rows = list(islice(run.read_lines("predictions.jsonl"), AGAIN))
    if not all(isinstance(row.get("text"), str) and row.get("probabilities") for row in rows):
        return []  # a task other than classification, or pairs
    from headstart.use.predict import LoadedClassifier

    model = LoadedClassifier.load(run.path)
    found = model.probabilities([row["text"] for row in rows])
    kept = [list(row["probabilities"].values()) for row in rows]
    if all(
        isclose(a, b, abs_tol=1e-3)
        for one, other in zip(found, kept, strict=True)
        for a, b in zip(one, other, strict=False)
    ):
        return []
    return ["the weights in model/ do not give the probabilities in predictions.jsonl"]


def _stepped_again(run: Run, folder: Path) -> tuple[list[str], str]:
    """The first step with the run's own settings and data: what is wrong with it, and a note on what was compared."""
    logged = next((record for record in run.read_lines("log.jsonl") if record.get("split") == "receipt"), None)
    if logged is None:
        return [], "; its first step cannot be judged: log.jsonl has no SHA-256 of it"
    if differs := _made_elsewhere(run, logged):
        return [], f"; its first step cannot be judged here: {', '.join(differs)}"
    from headstart.jobs.first_step import first_step

    try:
        with chdir(folder):  # where the student gave the command
            found = first_step(Run.open(run.path.resolve()))
    except UserError as error:
        return [], f"; its first step cannot be run again: {first_line(error)}"
    if found["weights_sha256"] == logged.get("weights_sha256"):
        return [], "; its first step, run again, gives the same weights"
    return ["its first step, run again with its settings and data, gives other weights than its log says"], ""


def _made_elsewhere(run: Run, logged: Mapping[str, Any]) -> list[str]:
    """What decides the last bits of weights and is not the same here."""
    env = run.read_json("env.json")
    then = {**env, "processor": logged.get("processor"), "gradients": env.get("gradients", "ordered")}
    now = {**then, "versions": versions(), "processor": processor(), "gradients": "ordered"}
    return [*env.get("not_bit_identical", []), *changes(then, now)]  # a resume has noted its own
