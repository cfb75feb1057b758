"""What the verbs that run many runs share: their flags, and how a grid of translators or matchers is run and shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headstart.cli.terminal import Bar, show, show_json, show_table
from headstart.quantities import counted, duration

if TYPE_CHECKING:
    from headstart.study.grid import Grid
    from headstart.study.grid_results import GridFound

Jobs = Annotated[int, Option(min=1, help="Runs at once.")]
DryStudy = Annotated[bool, Option("--dry-run", help="Only say how long it would take.")]


def grid_study(
    grid: Grid[Any, Any], given: Mapping[str, Any], out: str, jobs: int, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Run or estimate a grid of translators or matchers, and show what came out. `given`: its settings, None for a default."""
    from headstart.schema import parse
    from headstart.study.grid import run_grid

    config = parse(grid.config, {key: value for key, value in given.items() if value is not None})
    if dry_run:
        from headstart.study.estimate import grid_estimate

        cost = grid_estimate(grid.plan(config), Path(out), jobs)
        if as_json:
            show_json(cost)
            return
        time = f"about {duration(cost['seconds'])}"
        show(f"{counted(cost['cells'], 'cell')}, {cost['missing']:,} missing, {jobs} at once: {time}")
        return
    results = run_grid(grid, config, out, jobs, Bar(quiet))
    show_json(results.plain()) if as_json else show_grid(grid, Path(out), results)


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
