"""How a grid of translators or matchers is run and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.flags import Given
from headstart.cli.settings import nested_settings
from headstart.cli.terminal import Bar, show, show_json, show_table
from headstart.errors import UserError
from headstart.quantities import counted, duration

if TYPE_CHECKING:
    from headstart.study.grid import Grid
    from headstart.study.grid_results import GridFound
    from headstart.study.run import Engine


def grid_study(grid: Grid[Any, Any], given: Given) -> None:
    """Run or estimate a grid, and show what came out. A flag is for what the grid varies, or for every run of it."""
    from headstart.schema import parse
    from headstart.study.grid import prepare_grid, run_grid

    must_run(given)
    out, jobs = Path(given["--out"]), given["--jobs"]
    varied = {name: value for name, value in given.settings().items() if name in grid.config.model_fields}
    each = {name: value for name, value in given.settings().items() if name not in varied}
    settings = nested_settings(each, given["--set"]) or None
    config = parse(grid.config, nested_settings({**varied, "settings": settings}, None))
    if given["--prepare"] and not given["--dry-run"]:
        prepare_grid(grid, config, out)
        show_prepared(out, given)
        return
    if not given["--dry-run"]:
        with engine(given, out) as elsewhere:
            results = run_grid(grid, config, out, jobs, Bar(given["--quiet"]), elsewhere)
        show_json(results.plain()) if given["--json"] else show_grid(grid, out, results)
        return
    from headstart.study.estimate import grid_estimate

    cost = grid_estimate(grid.plan(config), out, jobs)
    if given["--json"]:
        show_json(cost)
        return
    time = f"about {duration(cost['seconds'])}"
    show(f"{counted(cost['cells'], 'cell')}, {cost['missing']:,} missing, {jobs} at once: {time}")


def must_run(given: Given) -> None:
    """Refuse a place to run cells, where none are run."""
    for flag in ("--prepare", "--dry-run"):
        if given.values.get("--on") and given.values.get(flag):
            raise UserError(f"With {flag} nothing is run: leave out --on or {flag}.")


@contextmanager
def engine(given: Given, out: Path, expected: Mapping[str, float] | None = None) -> Iterator[Engine | None]:
    """What runs the cells, where --on names a place for them."""
    asked = given.values.get("--on")
    if not asked:
        yield None
        return
    from headstart.study.on_ray import RayCells, address_in, cluster

    if (given["--jobs"] or 1) > 1:
        raise UserError("--on ray runs as many cells at once as the cluster has CPUs for: leave out --jobs.")
    with cluster(address_in(asked)):
        yield lambda planned: RayCells(out, planned, Bar(given["--quiet"]), expected)


def show_prepared(out: Path, given: Given) -> None:
    """What to do with a study that is prepared."""
    if given["--json"]:
        show_json({"study": str(out)})
        return
    show(f"{out} is prepared. On each machine that shares the folder: headstart work {out}")


def show_grid(grid: Grid[Any, Any], folder: Path, results: GridFound) -> None:
    for notice in results.notices:
        show(f"! {notice}")
    table = grid.table(results)
    show_table(table.columns, table.rows, right=list(table.right))
    for failure in results.failures:
        show(f"! {failure.cell} failed with exit code {failure.exit}: {failure.message}")
    show()
    show(results.verdict)
    show(f"the whole page: {folder / 'report.html'}")
