"""What grids of runs share, whatever the runs learn: finished cells are kept, failed ones told, settings not mixed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headstart.config import JobConfig
from headstart.errors import BusyError, ConfigError, DataError, Stopped, UserError
from headstart.runs.disk import write_file
from headstart.runs.record_shapes import GridSettings
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.strict_json import to_json
from headstart.text.files import file_facts

C = TypeVar("C", bound=JobConfig)
Job = Callable[..., object]  # (settings, run directory, resume=, watch=)


def run_missing(planned: Sequence[tuple[str, C]], job: Job, out: Path, watch: Watch) -> dict[str, str]:
    """Run every cell below `out` that is not finished; those that failed, with what they said."""
    failed: dict[str, str] = {}
    for name, settings in planned:
        _must_be_of(Run(out / "cells" / name), settings)
    for n, (name, settings) in enumerate(planned, start=1):
        run = Run(out / "cells" / name)
        if run.finished:
            continue
        watch.note(f"cell {n} of {len(planned)}: {name}")
        try:
            with goes_on_when_started_again(out):
                job(settings, run.path, resume=run.there, watch=watch)
        except UserError as error:
            if isinstance(error, (Stopped, BusyError)):  # somebody wants to stop, or is at work here
                raise
            failed[name] = str(error)
            watch.note(f"Note: {name} failed: {error}")
    return failed


def _must_be_of(run: Run, settings: JobConfig) -> None:
    """A cell is known by the last part of a path, and must not stand for another one of that name.

    Where its data lie may change: they are known by their content.
    """
    other = [d for d in run.differences(settings) if not d.startswith("data.pairs:")] if run.there else []
    if other:
        raise ConfigError(f"{run.path} was begun with other settings: {'; '.join(other)}. Choose another --out.")


@contextmanager
def goes_on_when_started_again(out: Path) -> Iterator[None]:
    """Inside a study --resume is nobody's flag: what is missing is run when it is started again."""
    try:
        yield
    except Stopped as stop:
        raise stop.but(f"everything is saved in {out}. The same command or call goes on there.") from None


def finished(names: Iterable[str], out: Path, failed: Mapping[str, str]) -> dict[str, Run]:
    """The cells that came to an end."""
    runs = {name: Run(out / "cells" / name) for name in names}
    runs = {name: run for name, run in runs.items() if run.finished}
    if not runs:
        raise ConfigError(f"No cell of {out} came to an end: {next(iter(failed.values()), 'nothing was run')}")
    return runs


def keep_settings(file: Path, settings: Mapping[str, Any], data: Mapping[str, Sequence[Path]]) -> None:
    """Runs of other settings or data must not stand in one table. Another cell is welcome."""
    out, own = file.parent, {"settings": settings, "data": {}}
    before = read_json(file, GridSettings, "STUDY_DAMAGED") if os.path.lexists(file) else own
    if before["settings"] != settings:
        raise ConfigError(f"{out} was begun with other settings. Choose another --out.")
    hashes = {name: [f["sha256"] for f in file_facts(files)] for name, files in data.items()}
    changed = [name for name in hashes if before["data"].get(name, hashes[name]) != hashes[name]]
    if changed:
        raise DataError(
            f"{out} was begun with another {', '.join(changed)}. Choose another --out, or rename it.", "DATA_CHANGED"
        )
    write_file(file, to_json({**own, "data": {**before["data"], **hashes}}, indent=2).encode())


def write_results(out: Path, results: Mapping[str, Any], columns: Sequence[str]) -> None:
    """results.json, and its table as table.csv."""
    write_file(out / "results.json", to_json(results, indent=2).encode())
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(results["table"])
    write_file(out / "table.csv", text.getvalue().encode())
