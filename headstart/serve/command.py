"""The command line of a job that was asked for over HTTP: a list of words, never a shell.

Values come after `=`, so that none of them is taken for a flag, whatever it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from headstart.errors import ConfigError
from headstart.serve.files import Files
from headstart.serve.registry import Registry
from headstart.serve.requests import CompareJob, FinetuneJob, LabellingRequest, PretrainJob
from headstart.study.arms import BASELINES
from headstart.study.plan import USUAL

Job = CompareJob | PretrainJob | FinetuneJob
VALUES = {  # flags of one value, by the field that gives it
    "text_column": "--text-column", "label_column": "--label-column", "task": "--task", "seeds": "--seeds", "epochs": "--epochs", "unit": "--unit",
    "size": "--size", "steps": "--steps", "objective": "--objective", "minutes": "--minutes", "lr": "--lr", "seed": "--seed",
    "init": "--init", "train": "--train",
}  # fmt: skip
SWITCHES = {"skip_blank": "--skip-blank", "clean_labels": "--clean-labels", "any_labels": "--any-labels", "balanced": "--balanced"}  # fmt: skip


class BaseAtHand(TypedDict):
    id: str
    name: str
    kind: str  # pack, run or preset


def bases_at_hand(registry: Registry) -> dict[str, tuple[str, str]]:
    """What a job may start from without a download, by id: the name for the command line, and what it is."""
    from headstart.hub.pack_contents import PACKS
    from headstart.hub.packs import pack_folder
    from headstart.shapes import PRESETS

    packs = {
        name: (name, "pack") for name, pack in PACKS.items() if pack.kind == "model" and pack_folder(name).exists()
    }
    runs = {model.id: (str(model.path), "run") for model in registry.models() if model.job == "pretrain"}
    return {**runs, **packs, **{name: (name, "preset") for name in PRESETS}}


def command_of(job: Job, files: Files, registry: Registry, out: Path) -> list[str]:
    """The words after `headstart`."""
    words: list[str] = [job.verb]
    given = job.model_dump(exclude_none=True)
    if isinstance(job, PretrainJob):
        words += [str(files.get(wanted).path) for wanted in job.corpus]
    else:
        words.append(str(files.get(job.data).path))
        words += [f"--{part}={files.get(given[part]).path}" for part in ("valid", "test") if part in given]
    if isinstance(job, CompareJob):
        if not (
            job.bases or job.corpus or {*(job.arms or USUAL)} <= {*BASELINES}
        ):  # which `headstart compare` may download
            raise ConfigError("These arms start from a base. Choose one of GET /api/bases, or a text to pretrain on.")
        words += [f"--base={_base(base, registry)}" for base in job.bases]
        words += [f"--corpus={files.get(wanted).path}" for wanted in job.corpus]
        words += [f"--arms={','.join(job.arms)}"] if job.arms else []
        words += [f"--labels={','.join(map(str, job.labels))}"] if job.labels else []
        words += [f"--set=least_steps={job.least_steps}"] if job.least_steps else []
        words += ["--yes"]
    if isinstance(job, FinetuneJob):
        words += [f"--base={_base(job.base, registry)}", *([f"--labels={job.labels}"] if job.labels else [])]
    words += [f"{flag}={_number(given[name])}" for name, flag in VALUES.items() if name in given]
    words += [flag for name, flag in SWITCHES.items() if given.get(name)]
    return [*words, f"--out={out}"]


def labelling_command(asked: LabellingRequest, files: Files, registry: Registry) -> tuple[list[str], Path]:
    """The words after `headstart` that start a labelling session, and its folder."""
    file = files.get(asked.data).path
    if comma := next((name for name in asked.labels if "," in name), None):
        raise ConfigError(f"'{comma}' cannot be a label here: it has a comma.")
    out = registry.folder / asked.name if asked.name else _free(registry.folder, f"label-{file.stem.lower()}")
    base = asked.base or "auto"
    words = ["label", "start", str(file), f"--base={base if base in ('auto', 'tfidf') else _base(base, registry)}"]
    words += [f"--labels={','.join(asked.labels)}"] if asked.labels else []
    words += [f"--text-column={asked.text_column}"] if asked.text_column else []
    words += [f"--label-column={asked.label_column}"] if asked.label_column else []
    return [*words, f"--out={out}"], out


def shown_command(words: Sequence[str], folder: Path) -> str:
    """A command to copy, for a shell in the folder above that of the runs."""
    root = f"{folder.absolute()}/"
    return shlex.join(["headstart", *(word.replace(root, f"{folder.absolute().name}/") for word in words)])


def free_place(job: Job, folder: Path, files: Files) -> Path:
    """Where the job writes: the name that was given, or one that is free."""
    if job.name:
        return folder / job.name
    source = files.get(job.corpus[0] if isinstance(job, PretrainJob) else job.data).path.stem.lower()
    return _free(folder, f"{'study' if job.verb == 'compare' else job.verb}-{source}")


def _free(folder: Path, name: str) -> Path:
    """A folder of this name, or of one with a number behind it, that is not there."""
    stem = name[:36].strip("-")
    names = [stem, *(f"{stem}-{i}" for i in range(2, 1000))]
    return next(folder / name for name in names if not (folder / name).exists())


def _base(wanted: str, registry: Registry) -> str:
    known: Mapping[str, tuple[str, str]] = bases_at_hand(registry)
    if wanted not in known:
        raise ConfigError(
            f"There is no base '{wanted}' at hand. GET /api/bases lists them; nothing is downloaded from here."
        )
    return known[wanted][0]


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
