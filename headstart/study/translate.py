"""A grid of translators: models x hidden sizes x data sets x seeds, scored by validation loss.

Its settings are in ladder.json, its cells in cells/<data>-<model>-<hidden>-seed<k>/; grid.py draws the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pydantic import Field

from headstart.config import TranslateConfig
from headstart.errors import ConfigError, DataError
from headstart.jobs.curves import curve, log_records
from headstart.quantities import counted
from headstart.runs.record_shapes import TranslateData
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import merge, parse
from headstart.study.grid import Grid, GridConfig, run_grid
from headstart.study.grid_figures import translator_pictures
from headstart.study.grid_results import TranslatorCurve, TranslatorResults, TranslatorRow
from headstart.study.report import Table
from headstart.study.run import Planned
from headstart.text.pairs import split_pairs
from headstart.text.read import text_files

VARIED = {"data.pairs": "PAIRS", "model.kind": "--model", "model.hidden": "--hidden", "train.seed": "--seeds"}
COLUMNS = ("data", "rows", "model", "hidden", "parameters", "seeds", "loss", "loss_sd", "exact_match", "seconds")


class TranslateGridConfig(GridConfig):
    data: tuple[str, ...] = Field(min_length=1)  # tables of pairs, one for each data set
    models: tuple[str, ...] = ("gru", "gru-additive", "attention", "transformer")
    hidden: tuple[int, ...] = (32, 64)
    seeds: int = Field(3, ge=1)


@dataclass(frozen=True)
class Translator:
    """A combination that the grid trains with several seeds."""

    data: str
    model: str
    hidden: int

    def cell(self, seed: int) -> str:
        return f"{Path(self.data).stem}-{self.model}-{self.hidden}-seed{seed}"


def compare_translators(
    cfg: TranslateGridConfig, out: str | Path, watch: Watch | None = None, jobs: int = 1
) -> TranslatorResults:
    """Run every cell that is not finished, and gather what came out."""
    return run_grid(TRANSLATORS, cfg, out, jobs, watch)


def combinations(cfg: TranslateGridConfig) -> list[Translator]:
    stems = [Path(path).stem for path in cfg.data]
    if len(set(stems)) < len(stems):
        raise DataError(f"Two data sets have the same name: {', '.join(stems)}. Rename one.", "DATA_PATH")
    return [Translator(*each) for each in product(cfg.data, cfg.models, cfg.hidden)]


def plan(cfg: TranslateGridConfig) -> list[Planned]:
    _refuse_varied(cfg.settings)
    seeds = range(cfg.seeds)
    return [Planned(one.cell(seed), training(cfg, one, seed)) for one in combinations(cfg) for seed in seeds]


def training(cfg: TranslateGridConfig, one: Translator, seed: int) -> TranslateConfig:
    """The settings of one cell."""
    own = {"data": {"pairs": [one.data]}, "model": {"kind": one.model, "hidden": one.hidden}, "train": {"seed": seed}}
    return parse(TranslateConfig, merge(cfg.settings, own))


def data_files(cfg: TranslateGridConfig) -> dict[str, list[Path]]:
    """The files of each data set; pairs that no cell could use are reported."""
    for pairs in {training(cfg, one, 0).data for one in combinations(cfg)}:
        split_pairs(pairs)
    return {Path(path).stem: text_files([path]) for path in cfg.data}


def _refuse_varied(settings: Mapping[str, Any]) -> None:
    """What the grid varies, no setting of every run can say."""
    for name, flag in VARIED.items():
        table, key = name.split(".")
        if key in settings.get(table, {}):
            raise ConfigError(f"--set {name} has no effect here: the grid varies it. Use {flag}.")


def gather(cfg: TranslateGridConfig, finished: Mapping[str, Run]) -> TranslatorResults:
    """Means over seeds, and the curves of every seed."""
    table: list[TranslatorRow] = []
    curves: list[TranslatorCurve] = []
    for one in combinations(cfg):
        runs = {seed: finished[one.cell(seed)] for seed in range(cfg.seeds) if one.cell(seed) in finished}
        if runs:
            table.append(_row(one, list(runs.values())))
            curves += [_curve(one, seed, run) for seed, run in runs.items()]
    return TranslatorResults(table=table, curves=curves, verdict=_verdict(table))


def _row(one: Translator, runs: Sequence[Run]) -> TranslatorRow:
    results = [run.read_json("result.json") for run in runs]
    losses = [result["valid"]["loss"] for result in results]  # of the kept weights: the lowest of the run
    return TranslatorRow(
        data=Path(one.data).stem,
        rows=runs[0].read_json("data.json", TranslateData)["rows"]["train"],
        model=one.model,
        hidden=one.hidden,
        parameters=results[0]["parameters"],
        seeds=len(runs),
        loss=mean(losses),
        losses=losses,
        loss_sd=stdev(losses) if len(losses) > 1 else None,
        exact_match=mean(result["valid"]["exact_match"]["value"] for result in results),
        seconds=round(mean(result["seconds"] for result in results), 1),
    )


def _curve(one: Translator, seed: int, run: Run) -> TranslatorCurve:
    """Training and validation loss by step."""
    records = log_records(run)
    train, valid = (list(zip(*curve(records, split, "loss"), strict=True)) for split in ("train", "valid"))
    return TranslatorCurve(
        data=Path(one.data).stem, model=one.model, hidden=one.hidden, seed=seed, train=train, valid=valid
    )


def _verdict(table: Sequence[TranslatorRow]) -> str:
    """The lowest loss and the highest, each with what it belongs to and how far its seeds lie apart."""

    def described(row: TranslatorRow) -> str:
        sd = "" if row.loss_sd is None else f" ± {row.loss_sd:.4f}"
        what = f"{row.model}, hidden size {row.hidden}, {row.rows:,} pairs of {row.data}"
        return f"{row.loss:.4f}{sd} over {counted(row.seeds, 'seed')} ({what})"

    ordered = sorted(table, key=lambda row: row.loss)
    highest = f", the highest {described(ordered[-1])}" if len(ordered) > 1 else ""
    return f"The lowest validation loss, in nats per token, is {described(ordered[0])}{highest}."


def _table(results: TranslatorResults) -> Table:
    header = ("data", "pairs", "model", "hidden", "parameters", "seeds", "loss", "± sd", "exact match", "seconds")
    rows = [
        [
            row.data, f"{row.rows:,}", row.model, str(row.hidden), f"{row.parameters:,}", str(row.seeds), f"{row.loss:.4f}",
            "" if row.loss_sd is None else f"{row.loss_sd:.4f}", f"{row.exact_match:.4f}", f"{row.seconds:.0f}",
        ]
        for row in results.table
    ]  # fmt: skip
    return Table(header, rows, right=(1, 3, 4, 5, 6, 7, 8, 9))


TRANSLATORS = Grid(
    "ladder.json",
    TranslateGridConfig,
    TranslatorResults,
    plan,
    data_files,
    gather,
    "Which translator has the lowest loss?",
    _table,
    COLUMNS,
    translator_pictures,
)
