"""Runs and studies of the folder by their ids. A request never holds a path: it names an id, which is looked up here."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headstart.errors import ModelError
from headstart.runs.run import Run, runs_in
from headstart.study.study import studies_in

ID = r"^[a-z0-9_-]{1,64}$"


@dataclass(frozen=True)
class Entry:
    """A run or a study, as `headstart runs` lists it."""

    id: str
    name: str  # from the folder on
    path: Path
    kind: Literal["run", "study"]
    record: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        return self.record["state"] == "finished"


@dataclass(frozen=True)
class Model:
    """A finished run with a model in it; also one of a cell of a study."""

    id: str
    name: str
    path: Path
    job: str  # pretrain, finetune, translate or match
    made: float


class Registry:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._known: dict[str, Model] = {}  # by id and by name, so that most requests need no look at the whole folder

    def entries(self) -> list[Entry]:
        """Every run and study below the folder, newest first."""
        if not self.folder.is_dir():
            return []
        runs = [self._entry("run", run.path, run.summary()) for run in runs_in(self.folder) if self._inside(run.path)]
        studies = [self._entry("study", Path(found["run"]), found) for found in studies_in(self.folder)]
        both = [*runs, *(study for study in studies if self._inside(study.path))]
        return sorted(both, key=lambda entry: str(entry.record["started"] or ""), reverse=True)

    def entry(self, wanted: str) -> Entry:
        found = next((entry for entry in self.entries() if entry.id == wanted), None)
        if found is None:
            raise ModelError("There is no run or study of this id.", "RUN_MISSING")
        return found

    def models(self) -> list[Model]:
        """Every finished model, newest first; those of the cells of studies after the others."""
        if not self.folder.is_dir():
            return []
        entries = self.entries()
        own = [e.path for e in entries if e.kind == "run" and e.finished]
        cells = [cell for e in entries if e.kind == "study" for cell in sorted((e.path / "cells").glob("*/"))]
        bases = [base for e in entries if e.kind == "study" for base in sorted((e.path / "bases").glob("*/"))]
        found = [model for path in (*own, *bases, *cells) if (model := self._model(path))]
        return sorted(
            {model.id: model for model in found}.values(), key=lambda model: (model.path in cells, -model.made)
        )

    def known(self, wanted: str) -> Model | None:
        """A model that was asked for before and was not trained anew since, by one look at the disk."""
        found = self._known.get(wanted)
        with suppress(OSError):
            if found and (found.path / "result.json").stat().st_mtime == found.made:
                return found
        return None

    def model(self, wanted: str) -> Model:
        known = self._known.get(wanted)
        if known and known == self._model(known.path):  # still there, and not trained anew
            return known
        found = next((model for model in self.models() if wanted in (model.id, model.name)), None)
        if found:
            self._known[wanted] = found
        else:
            self._known.pop(wanted, None)
            raise ModelError("There is no finished model of this id. GET /v1/models lists them.", "RUN_MISSING")
        return found

    def newest(self, *jobs: str) -> Model:
        """The newest model of a kind, for requests that name none."""
        found = next((model for model in self.models() if model.job in jobs), None)
        if found is None:
            raise ModelError(
                f"There is no finished model of the kind {' or '.join(jobs)} in this folder.", "RUN_MISSING"
            )
        return found

    def id_of(self, path: Path) -> str:
        """A name and a hash of where it is, so that no two are the same.

        >>> Registry(Path("/srv/runs")).id_of(Path("/srv/runs/My model"))
        'my-model-58ca028f'
        """
        name = self.name_of(path)
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[-48:].strip("-") or "run"
        return f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"

    def name_of(self, path: Path) -> str:
        return os.path.relpath(path, self.folder) if path != self.folder else self.folder.name

    def _entry(self, kind: Literal["run", "study"], path: Path, record: Mapping[str, Any]) -> Entry:
        return Entry(self.id_of(path), self.name_of(path), path, kind, record)

    def _model(self, path: Path) -> Model | None:
        run = Run(path)
        if not run.finished or not (path / "model" / "config.json").is_file() or not self._inside(path / "model"):
            return None
        try:
            return Model(self.id_of(path), self.name_of(path), path, run.job, (path / "result.json").stat().st_mtime)
        except (ModelError, OSError):  # damaged, or removed in the meantime: the list of runs tells of it
            return None

    def _inside(self, path: Path) -> bool:
        """Whether a path stays in the folder when links are followed."""
        return path.resolve().is_relative_to(self.folder.resolve())
