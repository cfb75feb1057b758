"""Frozen against tuned towers, and tower against tower, on the same splits of the pictures.

<out>/
  towers.json        the settings
  cells/<text>-<image>-<head or full>-split<k>/   run directories
  results.json       what came out, from the finished cells and nothing else
  table.csv          one row for each pair of towers and what was trained of it: means over splits
  recall.png
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from pydantic import Field

from headstart.config import MatchConfig
from headstart.errors import ConfigError
from headstart.images.captions import table_of
from headstart.quantities import counted, points, signed
from headstart.runs.record_shapes import MatchData
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import Frozen, merge, parse
from headstart.study.cells import finished, keep_settings, run_missing, write_results
from headstart.study.plots import plot_recalls
from headstart.study.statistics import split_interval

RECALLS = ("recall@1", "recall@5", "recall@10")
COLUMNS = ("text", "image", "trained", "splits", *RECALLS, "trained_parameters", "seconds")
LEADING = "recall@5"  # of captions to pictures: what the differences are told in


class TowersConfig(Frozen):
    data: str  # pictures and captions, as match train takes them
    text: tuple[str, ...] = ("minilm",)
    image: tuple[str, ...] = ("efficientnet-lite0",)
    scope: tuple[Literal["head", "full"], ...] = ("head", "full")
    splits: int = Field(3, ge=1)  # each with other test pictures, and another seed
    settings: dict[str, Any] = Field(default_factory=dict)  # of every run, as match train has them


@dataclass(frozen=True)
class Arm:
    text: str
    image: str
    scope: str

    @property
    def name(self) -> str:
        return f"{Path(self.text).name}-{Path(self.image).name}-{self.scope}"

    def cell(self, split: int) -> str:
        return f"{self.name}-split{split}"


def arms(cfg: TowersConfig) -> list[Arm]:
    found = [Arm(*each) for each in product(cfg.text, cfg.image, cfg.scope)]
    if len({arm.name for arm in found}) < len(found):
        raise ConfigError("Two towers have the same name. Rename one.")
    return found


def training(cfg: TowersConfig, arm: Arm, split: int) -> MatchConfig:
    """The settings of one cell: arms of a split have the same pictures to learn from and to be tested on.

    Validation pictures are drawn with the number after that of the split, hence every other one.
    """
    own = {"text": arm.text, "image": arm.image, "scope": arm.scope, "train": {"seed": split}}
    settings = parse(MatchConfig, merge(cfg.settings, {**own, "data": {"pairs": cfg.data, "split_seed": 2 * split}}))
    if not settings.data.test_fraction:
        raise ConfigError("data.test_fraction must be above 0: towers are compared on pictures that none has seen.")
    return settings


def compare_towers(cfg: TowersConfig, out: str | Path, watch: Watch | None = None) -> dict[str, Any]:
    """Run every cell that is not finished, and gather what came out."""
    from headstart.jobs.match import match

    out, split = Path(out), range(cfg.splits)
    planned = [(arm.cell(k), training(cfg, arm, k)) for k in split for arm in arms(cfg)]
    keep_settings(out / "towers.json", cfg.model_dump(mode="json")["settings"], {"data": [table_of(cfg.data)]})
    return gather(cfg, out, run_missing(planned, match, out, watch or Watch()))


def gather(cfg: TowersConfig, out: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """Means over splits of the finished cells, and what the arms differ by on the same splits."""
    names = [arm.cell(k) for arm in arms(cfg) for k in range(cfg.splits)]
    runs = finished(names, out, failed)
    done = {arm: {k: runs[arm.cell(k)] for k in range(cfg.splits) if arm.cell(k) in runs} for arm in arms(cfg)}
    done = {arm: found for arm, found in done.items() if found}
    share = _test_share(next(iter(runs.values())))
    table = [_row(arm, list(found.values()), share) for arm, found in done.items()]
    first, *others = done
    differences = [_difference(arm, first, done, share) for arm in others]
    results = {"table": table, "differences": differences, "failed": dict(failed)}
    results["verdict"] = _verdict(differences, table)
    write_results(out, results, COLUMNS)
    plot_recalls(results, out / "recall.png")
    return results


def _row(arm: Arm, runs: Sequence[Run], share: float) -> dict[str, Any]:
    results = [run.read_json("result.json") for run in runs]
    recalls = {at: [_recall(result, at) for result in results] for at in RECALLS}
    return {
        "text": Path(arm.text).name,
        "image": Path(arm.image).name,
        "trained": arm.scope,
        "splits": len(runs),
        **{at: mean(found) for at, found in recalls.items()},
        "intervals": {at: _shares(split_interval(found, share)) for at, found in recalls.items()},
        "back": {at: mean(_recall(result, at, "image_to_text") for result in results) for at in RECALLS},
        "chance": results[0]["test"]["chance"],
        "trained_parameters": results[0]["trained_parameters"],
        "seconds": round(mean(result["seconds"] for result in results), 1),
    }


def _shares(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """An interval of recalls, which are not below 0 nor above 1, however few the splits."""
    return interval and (max(0.0, interval[0]), min(1.0, interval[1]))


def _difference(arm: Arm, first: Arm, done: Mapping[Arm, Mapping[int, Run]], share: float) -> dict[str, Any]:
    """`arm` minus `first` on the splits that both have."""
    found = [
        _recall(run.read_json("result.json"), LEADING) - _recall(done[first][k].read_json("result.json"), LEADING)
        for k, run in done[arm].items()
        if k in done[first]
    ]
    interval = split_interval(found, share)
    return {
        "a": arm.name,
        "b": first.name,
        "score": LEADING,
        "splits": len(found),
        "difference": mean(found) if found else None,
        "interval": interval,
        "clear": interval is not None and (interval[0] > 0 or interval[1] < 0),
    }


def _verdict(differences: Sequence[Mapping[str, Any]], table: Sequence[Mapping[str, Any]]) -> str:
    """What can be told, in a sentence for each arm beside the first."""
    told = []
    for found in differences:
        if found["interval"] is None:
            told.append(_untold(found))
            continue
        low, high = (points(100 * end) for end in found["interval"])
        gained = f"{signed(100 * found['difference'])} points of {found['score']} ({low} to {high})"
        told.append(
            f"{found['a']} is {'better' if found['difference'] > 0 else 'worse'} than {found['b']}: {gained}."
            if found["clear"]
            else f"{found['a']} cannot be told apart from {found['b']}: {gained}."
        )
    best = max(table, key=lambda row: float(row[LEADING]))
    told.append(
        f"The best finds {100 * best[LEADING]:.1f} % ({LEADING}), mean over {counted(best['splits'], 'split')}."
    )
    return " ".join(told)


def _untold(found: Mapping[str, Any]) -> str:
    """Why there is no interval."""
    if found["splits"] < 2:
        return f"{counted(found['splits'], 'split', 'does', 'do')} not tell {found['a']} and {found['b']} apart."
    return (
        f"{found['a']} and {found['b']} differ by {signed(100 * found['difference'])} points of {found['score']} on each "
        f"of {found['splits']} splits: how far that may vary cannot be told. Use more splits or more test images."
    )


def _recall(result: Mapping[str, Any], at: str, way: str = "text_to_image") -> float:
    return float(result["test"][way][at]["value"])


def _test_share(run: Run) -> float:
    images = run.read_json("data.json", MatchData)["images"]
    return float(images["test"] / images["train"])
