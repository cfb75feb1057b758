"""A grid of translators: models x hidden sizes x data sets x seeds, each cell a run directory of its own.

    <out>/
      ladder.json        the settings
      cells/<data>-<model>-<hidden>-seed<k>/   run directories
      results.json       what came out, from the finished cells and nothing else
      table.csv          one row for each model, hidden size and data set: means over seeds
      curves.png  by-hidden.png  by-data.png  heatmap.png

What is finished is kept, so the same command again runs only what is missing. A failed cell is told and left out, and
the number of seeds stands beside every mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pydantic import Field

from headstart.config import TranslateConfig
from headstart.errors import ConfigError, DataError
from headstart.quantities import counted
from headstart.runs.record_shapes import TranslateData
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import Frozen, merge, parse
from headstart.study.cells import finished, keep_settings, run_missing, write_results
from headstart.study.plots import curve, plot_ladder_curves, plot_ladder_heatmap
from headstart.text.pairs import split_pairs
from headstart.text.read import text_files

VARIED = {"data.pairs": "PAIRS", "model.kind": "--model", "model.hidden": "--hidden", "train.seed": "--seeds"}
COLUMNS = ("data", "rows", "model", "hidden", "parameters", "seeds", "loss", "loss_sd", "exact_match", "seconds")


class LadderConfig(Frozen):
    data: tuple[str, ...] = Field(min_length=1)  # tables of pairs, one for each data set
    models: tuple[str, ...] = ("gru", "gru-additive", "attention", "transformer")
    hidden: tuple[int, ...] = (32, 64)
    seeds: int = Field(3, ge=1)
    settings: dict[str, Any] = Field(default_factory=dict)  # of every run, as translate train has them


@dataclass(frozen=True)
class Cell:
    data: str
    model: str
    hidden: int
    seed: int

    @property
    def name(self) -> str:
        return f"{Path(self.data).stem}-{self.model}-{self.hidden}-seed{self.seed}"


def cells(cfg: LadderConfig) -> list[Cell]:
    stems = [Path(path).stem for path in cfg.data]
    if len(set(stems)) < len(stems):
        raise DataError(f"Two data sets have the same name: {', '.join(stems)}. Rename one.", "DATA_PATH")
    return [
        Cell(data, model, hidden, seed)
        for data in cfg.data
        for model in cfg.models
        for hidden in cfg.hidden
        for seed in range(cfg.seeds)
    ]


def training(cfg: LadderConfig, cell: Cell) -> TranslateConfig:
    """The settings of one cell: the arms differ in nothing but what the grid varies."""
    own = {
        "data": {"pairs": [cell.data]},
        "model": {"kind": cell.model, "hidden": cell.hidden},
        "train": {"seed": cell.seed},
    }
    return parse(TranslateConfig, merge(cfg.settings, own))


def climb(cfg: LadderConfig, out: str | Path, watch: Watch | None = None) -> dict[str, Any]:
    """Run every cell that is not finished, and gather what came out."""
    from headstart.jobs.translate import translate

    watch, out = watch or Watch(), Path(out)
    _refuse_varied(cfg.settings)
    planned = [(cell.name, training(cfg, cell)) for cell in cells(cfg)]  # a wrong setting is told before any work,
    for pairs in {settings.data for _, settings in planned}:  # and so are pairs that no cell could use
        split_pairs(pairs)
    data = {Path(path).stem: text_files([path]) for path in cfg.data}
    keep_settings(out / "ladder.json", cfg.model_dump(mode="json")["settings"], data)
    return gather(cfg, out, run_missing(planned, translate, out, watch))


def _refuse_varied(settings: Mapping[str, Any]) -> None:
    """What the grid varies, no setting of every run can say."""
    for name, flag in VARIED.items():
        table, key = name.split(".")
        if key in settings.get(table, {}):
            raise ConfigError(f"--set {name} has no effect here: the grid varies it. Say {flag}.")


def gather(cfg: LadderConfig, out: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """Means over seeds of the finished cells, with their curves; written beside the cells as table and pictures."""
    named = {cell.name: cell for cell in cells(cfg)}
    done = [(named[name], run) for name, run in finished(named, out, failed).items()]
    table = list(_table(done))
    results = {
        "table": table,
        "curves": [_curve(cell, run) for cell, run in done],
        "failed": dict(failed),
        "verdict": _verdict(table),
    }
    write_results(out, results, COLUMNS)
    plot_ladder_curves(results, out / "curves.png", "model", "hidden", "data")
    plot_ladder_curves(results, out / "by-hidden.png", "data", "hidden", "model")
    plot_ladder_curves(results, out / "by-data.png", "hidden", "data", "model")
    plot_ladder_heatmap(results, out / "heatmap.png")
    return results


def _table(done: list[tuple[Cell, Run]]) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for cell, run in done:
        groups.setdefault((cell.data, cell.model, cell.hidden), []).append(run)
    for (data, model, hidden), runs in groups.items():
        results = [run.read_json("result.json") for run in runs]
        losses = [result["valid"]["loss"] for result in results]  # of the kept weights: the lowest of the run
        yield {
            "data": Path(data).stem,
            "rows": runs[0].read_json("data.json", TranslateData)["rows"]["train"],
            "model": model,
            "hidden": hidden,
            "parameters": results[0]["parameters"],
            "seeds": len(runs),
            "loss": mean(losses),
            "losses": losses,
            "loss_sd": stdev(losses) if len(losses) > 1 else None,
            "exact_match": mean(result["valid"]["exact_match"]["value"] for result in results),
            "seconds": round(mean(result["seconds"] for result in results), 1),
        }


def _verdict(table: Sequence[Mapping[str, Any]]) -> str:
    """The lowest loss and the highest, each with what it belongs to and how far its seeds lie apart."""

    def told(row: Mapping[str, Any]) -> str:
        sd = "" if row["loss_sd"] is None else f" ± {row['loss_sd']:.4f}"
        what = f"{row['model']}, hidden size {row['hidden']}, {row['rows']:,} pairs of {row['data']}"
        return f"{row['loss']:.4f}{sd} over {counted(row['seeds'], 'seed')} ({what})"

    ordered = sorted(table, key=lambda row: float(row["loss"]))
    highest = f", the highest {told(ordered[-1])}" if len(ordered) > 1 else ""
    return f"The lowest validation loss, in nats a token, is {told(ordered[0])}{highest}."


def _curve(cell: Cell, run: Run) -> dict[str, Any]:
    """Validation and training loss by step."""
    named = {"data": Path(cell.data).stem, "model": cell.model, "hidden": cell.hidden, "seed": cell.seed}
    return {
        **named,
        **{split: list(zip(*curve(run, split, "loss"), strict=True)) for split in ("train", "valid")},
    }
