"""A grid of runs: cells that differ in what the grid varies and in nothing else, whatever they learn.

Translators and matchers are compared in grids. What a kind of grid varies and measures is its `Grid`; its folder has

    <file>         the settings of every run, the plan, hashes of the data, failures
    cells/<name>/  run directories
    results.json   what came out, from the finished cells and nothing else
    table.csv      one row for each combination: means over repeats
    report.html    verdict, table and figures; and each figure as NAME.png
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from headstart.config import JobConfig
from headstart.errors import ConfigError, DataError
from headstart.runs.disk import write_file
from headstart.runs.record_shapes import GridSettings, Shape
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import Frozen, parse
from headstart.show.picture import Picture
from headstart.strict_json import to_json
from headstart.study.grid_results import GridFound
from headstart.study.report import Table, harmless, write_grid_report
from headstart.study.results import Failure
from headstart.study.run import Cells, Engine, Planned, study_folder
from headstart.text.files import file_facts


class GridConfig(Frozen):
    """What all grids have; a subclass adds what is varied."""

    settings: dict[str, Any] = Field(default_factory=dict)  # of every run, as its config.toml has them


C = TypeVar("C", bound=GridConfig)
R = TypeVar("R", bound=GridFound)


@dataclass(frozen=True)
class Grid(Generic[C, R]):
    """A kind of grid: what it varies (`plan`), what it measures (`gather`), and how that is shown."""

    file: str  # settings of the folder
    config: type[C]
    results: type[R]
    plan: Callable[[C], list[Planned]]  # refuses settings that no cell could use
    data: Callable[[C], Mapping[str, Sequence[Path]]]  # files by the name of their data set; refuses unusable ones
    gather: Callable[[C, Mapping[str, Run]], R]  # of finished cells by name
    title: str
    table: Callable[[R], Table]
    columns: Sequence[str]  # of table.csv
    pictures: Callable[[R], Iterator[Picture]]


class _Failed(Shape):
    cell: str
    exit: int
    message: str


class GridState(GridSettings):
    plan: dict[str, Any] | None = None  # None: made before it was kept
    failures: list[_Failed] = Field(default_factory=list)


def run_grid(
    grid: Grid[C, R],
    cfg: C,
    out: str | Path,
    jobs: int = 1,
    watch: Watch | None = None,
    engine: Engine | None = None,
) -> R:
    """Run every cell that is not finished; the results, also written with table, figures and page."""
    out = Path(out)
    engine = engine or (lambda cells: Cells(out, cells, jobs, watch or Watch()))
    with _begun(grid, cfg, out) as (planned, state):
        _run_cells(planned, state, engine)
        return _finish(grid, cfg, out, state)


def prepare_grid(grid: Grid[C, R], cfg: C, out: Path) -> None:
    """Everything before the first cell. Workers do the rest."""
    with _begun(grid, cfg, out):
        pass


def work_on_grid(grid: Grid[Any, Any], out: Path, engine: Engine) -> Callable[[], object]:
    """Run the cells of a grid that is prepared, beside other workers; what is left to do once, by one of them."""
    file = out / grid.file
    state = read_json(file, GridState, "STUDY_DAMAGED")
    cfg = parse(grid.config, state.get("plan") or {}, str(file))
    planned = grid.plan(cfg)
    _check_data(out, state, grid.data(cfg))
    _run_cells(planned, state, engine)
    return partial(_finish, grid, cfg, out, state)


@contextmanager
def _begun(grid: Grid[C, R], cfg: C, out: Path) -> Iterator[tuple[list[Planned], dict[str, Any]]]:
    """The folder of the grid, locked, with its plan."""
    planned, data = grid.plan(cfg), grid.data(cfg)  # what is wrong is reported before anything is written
    with study_folder(out):
        state = _begin(out, grid.file, cfg, data)
        for cell in planned:
            _must_agree(Run(out / "cells" / cell.name), cell)
        yield planned, state


def _run_cells(planned: Sequence[Planned], state: dict[str, Any], engine: Engine) -> None:
    """Run what is missing; `state` gets what failed."""
    with engine(planned) as running:
        running.run(planned)
    state["failures"] = [vars(outcome) for outcome in running.failures]


def _finish(grid: Grid[C, R], cfg: C, out: Path, state: Mapping[str, Any]) -> R:
    _write(out / grid.file, state)
    results = gather_grid(grid, cfg, out, [Failure(**failure) for failure in state["failures"]])
    write_grid(grid, out, results)
    return results


def open_grid(grid: Grid[C, R], folder: Path) -> R:
    """The results of a grid, from its cells; of one made before plans were kept, as they were written then."""
    file = folder / grid.file
    state = read_json(file, GridState, "STUDY_DAMAGED")
    if state.get("plan") is None:
        return grid.results.read(folder / "results.json")
    failures = [Failure(**failure) for failure in state.get("failures", [])]
    return gather_grid(grid, parse(grid.config, state["plan"], str(file)), folder, failures)


def gather_grid(grid: Grid[C, R], cfg: C, out: Path, failures: Sequence[Failure]) -> R:
    """What the finished cells measured, beside those that failed and those that are missing."""
    runs = {cell.name: Run(out / "cells" / cell.name) for cell in grid.plan(cfg)}
    finished = {name: run for name, run in runs.items() if run.finished}
    failed = {failure.cell: failure.message for failure in failures if failure.cell in runs.keys() - finished.keys()}
    if not finished:
        raise ConfigError(f"No cell of {out} is finished: {next(iter(failed.values()), 'nothing was run')}")
    told = {"failed": failed, "failures": [f for f in failures if f.cell in failed]}
    missing = len(runs) - len(finished) - len(failed)
    return grid.gather(cfg, finished).model_copy(update={**told, "missing_cells": missing})


def write_grid(grid: Grid[C, R], folder: Path, results: R) -> None:
    """results.json, table.csv, report.html and the figures."""
    results.write(folder)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(grid.columns)
    writer.writerows([harmless(row[column]) for column in grid.columns] for row in results.plain()["table"])
    write_file(folder / "table.csv", text.getvalue().encode())
    shown = results.shown()
    write_grid_report(folder, grid.title, shown, grid.table(shown), grid.pictures(shown))


def _begin(out: Path, name: str, cfg: GridConfig, data: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """The state of the folder: runs of other settings or data must not stand in one table. Another cell is welcome."""
    file, plan = out / name, cfg.model_dump(mode="json")
    before = read_json(file, GridState, "STUDY_DAMAGED") if os.path.lexists(file) else {**plan, "data": {}}
    if before["settings"] != plan["settings"]:
        raise ConfigError(f"{out} was begun with other settings. Choose another --out.")
    hashes = _check_data(out, before, data)
    state = {"settings": plan["settings"], "data": {**before["data"], **hashes}, "plan": plan, "failures": []}
    _write(file, state)
    return state


def _check_data(out: Path, before: Mapping[str, Any], data: Mapping[str, Sequence[Path]]) -> dict[str, list[str | int]]:
    """The hashes of each data set, which must be what they were."""
    hashes = {name: [f["sha256"] for f in file_facts(files)] for name, files in data.items()}
    changed = [name for name in hashes if before["data"].get(name, hashes[name]) != hashes[name]]
    if changed:
        raise DataError(
            f"{out} was begun with another {', '.join(changed)}. Choose another --out, or rename it.", "DATA_CHANGED"
        )
    return hashes


def _write(file: Path, state: Mapping[str, Any]) -> None:
    write_file(file, to_json(state, indent=2).encode())


def _must_agree(run: Run, cell: Planned) -> None:
    """A cell is known by the last part of a path, and must not stand for another one of that name.

    Where its data lie may change: they are known by their content.
    """
    assert isinstance(cell.work, JobConfig), "a grid has no baselines"
    other = [d for d in run.differences(cell.work) if not d.startswith("data.pairs:")] if run.there else []
    if other:
        raise ConfigError(f"{run.path} was begun with other settings: {'; '.join(other)}. Choose another --out.")
