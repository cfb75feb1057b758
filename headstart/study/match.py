"""A grid of matchers: frozen and fine-tuned towers, and tower against tower, on the same splits of the images.

Its settings are in towers.json, its cells in cells/<text>-<image>-<head or full>-split<k>/; grid.py draws the folder.
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
from headstart.schema import merge, parse
from headstart.study.grid import Grid, GridConfig, run_grid
from headstart.study.grid_figures import matcher_pictures
from headstart.study.grid_results import MatcherDifference, MatcherResults, MatcherRow
from headstart.study.report import Table
from headstart.study.run import Planned
from headstart.study.statistics import split_interval

RECALLS = ("recall@1", "recall@5", "recall@10")
COLUMNS = ("text", "image", "trained", "splits", *RECALLS, "trained_parameters", "seconds")
LEADING = "recall@5"  # text to image: what the differences are in


class MatchGridConfig(GridConfig):
    data: str  # images and captions, as match train takes them
    text: tuple[str, ...] = ("minilm",)
    image: tuple[str, ...] = ("efficientnet-lite0",)
    scope: tuple[Literal["head", "full"], ...] = ("head", "full")
    splits: int = Field(3, ge=1)  # each with other test images, and another seed


@dataclass(frozen=True)
class Towers:
    """A combination that the grid trains on several splits."""

    text: str
    image: str
    scope: Literal["head", "full"]

    @property
    def name(self) -> str:
        return f"{Path(self.text).name}-{Path(self.image).name}-{self.scope}"

    def cell(self, split: int) -> str:
        return f"{self.name}-split{split}"


def compare_towers(cfg: MatchGridConfig, out: str | Path, watch: Watch | None = None, jobs: int = 1) -> MatcherResults:
    """Run every cell that is not finished, and gather what came out."""
    return run_grid(MATCHERS, cfg, out, jobs, watch)


def combinations(cfg: MatchGridConfig) -> list[Towers]:
    found = [Towers(*each) for each in product(cfg.text, cfg.image, cfg.scope)]
    if len({towers.name for towers in found}) < len(found):
        raise ConfigError("Two towers have the same name. Rename one.")
    return found


def plan(cfg: MatchGridConfig) -> list[Planned]:
    return [
        Planned(towers.cell(k), training(cfg, towers, k)) for k in range(cfg.splits) for towers in combinations(cfg)
    ]


def training(cfg: MatchGridConfig, towers: Towers, split: int) -> MatchConfig:
    """The settings of one cell: all towers have the same images of a split to learn from and to be tested on.

    Validation images are drawn with the number after that of the split, hence every other one.
    """
    own = {"text": towers.text, "image": towers.image, "scope": towers.scope, "train": {"seed": split}}
    settings = parse(MatchConfig, merge(cfg.settings, {**own, "data": {"pairs": cfg.data, "split_seed": 2 * split}}))
    if not settings.data.test_fraction:
        raise ConfigError("data.test_fraction must be above 0: towers are compared on images that none has seen.")
    return settings


def gather(cfg: MatchGridConfig, finished: Mapping[str, Run]) -> MatcherResults:
    """Means over splits, and what each combination differs by from the first one on the same splits."""
    done: dict[Towers, dict[int, Run]] = {}
    for towers in combinations(cfg):
        runs = {k: finished[towers.cell(k)] for k in range(cfg.splits) if towers.cell(k) in finished}
        if runs:
            done[towers] = runs
    share = _test_share(next(iter(finished.values())))
    table = [_row(towers, list(runs.values()), share) for towers, runs in done.items()]
    first, *others = done
    differences = [_difference(towers, first, done, share) for towers in others]
    return MatcherResults(table=table, differences=differences, verdict=_verdict(differences, table))


def _row(towers: Towers, runs: Sequence[Run], share: float) -> MatcherRow:
    results = [run.read_json("result.json") for run in runs]
    recalls = {at: [_recall(result, at) for result in results] for at in RECALLS}
    means: dict[str, Any] = {at: mean(found) for at, found in recalls.items()}
    return MatcherRow(
        text=Path(towers.text).name,
        image=Path(towers.image).name,
        trained=towers.scope,
        splits=len(runs),
        **means,
        intervals={at: _shares(split_interval(found, share)) for at, found in recalls.items()},
        back={at: mean(_recall(result, at, "image_to_text") for result in results) for at in RECALLS},
        chance=results[0]["test"]["chance"],
        trained_parameters=results[0]["trained_parameters"],
        seconds=round(mean(result["seconds"] for result in results), 1),
    )


def _shares(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """An interval of recalls, which are not below 0 nor above 1, however few the splits."""
    return interval and (max(0.0, interval[0]), min(1.0, interval[1]))


def _difference(
    towers: Towers, first: Towers, done: Mapping[Towers, Mapping[int, Run]], share: float
) -> MatcherDifference:
    """`towers` minus `first` on the splits that both have."""
    found = [
        _recall(run.read_json("result.json"), LEADING) - _recall(done[first][k].read_json("result.json"), LEADING)
        for k, run in done[towers].items()
        if k in done[first]
    ]
    interval = split_interval(found, share)
    return MatcherDifference(
        a=towers.name,
        b=first.name,
        score=LEADING,
        splits=len(found),
        difference=mean(found) if found else None,
        interval=interval,
        clear=interval is not None and (interval[0] > 0 or interval[1] < 0),
    )


def _verdict(differences: Sequence[MatcherDifference], table: Sequence[MatcherRow]) -> str:
    """What can be concluded, in a sentence for each combination beside the first."""
    best = max(table, key=lambda row: row.at_5)
    last = f"The best finds {100 * best.at_5:.1f} % ({LEADING}), mean over {counted(best.splits, 'split')}."
    return " ".join([*map(_sentence, differences), last])


def _sentence(found: MatcherDifference) -> str:
    if found.splits < 2 or found.difference is None:
        return f"{counted(found.splits, 'split', 'does', 'do')} not tell {found.a} and {found.b} apart."
    gained = f"{signed(100 * found.difference)} points of {found.score}"
    if found.interval is None:
        return (
            f"{found.a} and {found.b} differ by {gained} on each of {found.splits} splits: how far that may vary cannot be "
            "told. Use more splits or more test images."
        )
    low, high = (points(100 * end) for end in found.interval)
    if not found.clear:
        return f"{found.a} shows no significant difference from {found.b}: {gained} ({low} to {high})."
    return f"{found.a} is {'better' if found.difference > 0 else 'worse'} than {found.b}: {gained} ({low} to {high})."


def _recall(result: Mapping[str, Any], at: str, way: str = "text_to_image") -> float:
    return float(result["test"][way][at]["value"])


def _test_share(run: Run) -> float:
    images = run.read_json("data.json", MatchData)["images"]
    return float(images["test"] / images["train"])


def _table(results: MatcherResults) -> Table:
    """Without a recall that guessing reaches, which says nothing of a model."""
    chance = results.table[0].chance["text_to_image"]
    recalls = [at for at in RECALLS if chance[at] < 1]
    rows = []
    for row in results.table:
        scores = [f"{row.recalls[at]:.3f}{_between(row.intervals[at])}" for at in recalls]
        rows.append([row.text, row.image, row.trained, str(row.splits), *scores, f"{row.seconds:.0f}"])
    return Table(["text", "image", "trained", "splits", *recalls, "seconds"], rows, right=range(3, 5 + len(recalls)))


def _between(interval: tuple[float, float] | None) -> str:
    return f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""


MATCHERS = Grid(
    "towers.json",
    MatchGridConfig,
    MatcherResults,
    plan,
    lambda cfg: {"data": [table_of(cfg.data)]},
    gather,
    "Which towers find the image of a caption?",
    _table,
    COLUMNS,
    matcher_pictures,
)
