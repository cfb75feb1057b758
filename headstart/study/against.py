"""Two studies on one page, as far as their test rows are the same. No torch.

Other training rows, other bases or other settings: each arm that both studies have is compared with itself, and the best of one with
the best of the other, on the test rows that are in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.quantities import counted, points, signed
from headstart.runs.disk import write_file
from headstart.strict_json import to_json
from headstart.study.gather import Gathered, opened
from headstart.study.report import Table, environment
from headstart.study.statistics import Estimate, Scores, difference, holm
from headstart.study.taken import Taken

FEWEST_ROWS = 20  # test rows in both, below which nothing is compared
FILE = "against"  # .json and .html, in the folder of the first study
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """An arm of one study on the rows that are in both."""

    arm: str
    labels: int
    seeds: int
    mean: float


@dataclass(frozen=True)
class Compared:
    here: Side
    there: Side
    difference: float  # here minus there
    interval: tuple[float, float]
    clear: bool

    @property
    def said(self) -> str:
        size = f"{signed(100 * self.difference)} points ({points(100 * self.interval[0])} to {points(100 * self.interval[1])})"
        return f"{self.here.arm} {self.here.mean:.3f} here, {self.there.arm} {self.there.mean:.3f} there: {size}"


@dataclass(frozen=True)
class Against:
    here: str
    there: str
    score: str
    rows: int  # test rows in both
    test_rows: tuple[int, int]
    best: Compared
    arms: tuple[Compared, ...]  # those that both studies have

    @property
    def verdict(self) -> str:
        best, rows = self.best, f"On the {self.rows:,} test rows that are in both"
        if not best.clear:
            answer = f"{rows}, there is no clear difference between the best arms of the two studies"
        else:
            better = self.here if best.difference > 0 else self.there
            answer = f"{rows}, the best arm of {better} is better"
        clear = [c for c in self.arms if c.clear]
        others = [f"{c.here.arm} {signed(100 * c.difference)}" for c in clear]
        found = [f"Best: {best.said}"]
        found += [f"Arms with a clear difference, here minus there, in points: {', '.join(others)}"] if others else []
        left = [f"{counted(all_ - self.rows, 'test row')} of {name}" for all_, name in zip(self.test_rows, (self.here, self.there), strict=True) if all_ > self.rows]  # fmt: skip
        found += [f"Not in both, and left out: {', '.join(left)}"] if left else []
        found.append("Intervals are of 95 %, adjusted for all comparisons of this page")
        return "\n- ".join(f"{sentence}." for sentence in (answer, *found))


def against(here: Path, there: Path) -> Against:
    """What the study in `here` shows beside the one in `there`."""
    ours, theirs = opened(here), opened(there)
    if (ours.target.task, ours.target.names) != (theirs.target.task, theirs.target.names):
        raise ConfigError(f"{there} predicts something else: {theirs.target.task} with the labels {', '.join(theirs.target.names[:10])}.")  # fmt: skip
    rows = shared_rows(ours, theirs)
    if len(rows[0]) < FEWEST_ROWS:
        raise ConfigError(
            f"{here} and {there} share {counted(len(rows[0]), 'test row')}; {FEWEST_ROWS} are needed to compare them. Give both the same --test."
        )
    mine, yours = ({t.arm.name: t for t in study.at(study.last)} for study in (ours, theirs))
    pairs = [(mine[name], yours[name]) for name in mine if name in yours]
    pairs.insert(0, (_best(ours, mine, rows[0]), _best(theirs, yours, rows[1])))
    scores = [(ours.scores(a, rows[0]), theirs.scores(b, rows[1])) for a, b in pairs]
    heaviest = ours.target.heaviest(ours.score, ours.truth[rows[0]])
    estimates = holm([difference(*_paired(x, y), heaviest=heaviest) for x, y in scores])
    made = [
        _compared(ours, theirs, pair, both, found) for pair, both, found in zip(pairs, scores, estimates, strict=True)
    ]
    sizes = len(ours.truth), len(theirs.truth)
    return Against(str(here), str(there), ours.score, len(rows[0]), sizes, made[0], tuple(made[1:]))


def shared_rows(ours: Gathered, theirs: Gathered) -> tuple[Rows, Rows]:
    """The numbers of the test rows that are in both studies, text and label, in the order of the first."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, example in enumerate(theirs.data.test):
        places[example.text, example.label].append(i)
    found = [(i, here.pop(0)) for i, e in enumerate(ours.data.test) if (here := places[e.text, e.label])]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def record_of(found: Against) -> Mapping[str, object]:
    """against.json: the best arms first, then those that both studies have."""
    return {**asdict(found), "verdict": found.verdict}


def write_against(found: Against) -> Path:
    """against.json and against.html in the folder of the first study; the page."""
    folder = Path(found.here)
    write_file(folder / f"{FILE}.json", to_json(record_of(found), indent=1).encode())
    title = f"{folder.name} beside {Path(found.there).name}"
    page = environment().get_template("against.html.j2").render(title=title, found=found, table=table_of(found))
    write_file(folder / f"{FILE}.html", page.encode())
    return folder / f"{FILE}.html"


def table_of(found: Against) -> Table:
    columns = ["arm here", "labels", found.score, "arm there", "labels", found.score, "difference", "95 % interval"]
    rows = [
        [c.here.arm, f"{c.here.labels:,}", f"{c.here.mean:.3f}", c.there.arm, f"{c.there.labels:,}", f"{c.there.mean:.3f}",
         signed(100 * c.difference), f"{points(100 * c.interval[0])} to {points(100 * c.interval[1])}"]
        for c in (found.best, *found.arms)
    ]  # fmt: skip
    return Table(columns, rows, (1, 2, 4, 5, 6, 7))


def _best(study: Gathered, arms: Mapping[str, Taken], rows: Rows) -> Taken:
    return max(arms.values(), key=lambda t: float(study.scores(t, rows).mean()))


def _paired(x: Scores, y: Scores) -> tuple[Scores, Scores]:
    """As many seeds of each; what has one seed goes with every seed of the other."""
    if 1 in (len(x), len(y)):
        return x, y
    seeds = min(len(x), len(y))
    return x[:seeds], y[:seeds]


def _compared(
    ours: Gathered, theirs: Gathered, pair: tuple[Taken, Taken], scores: Sequence[Scores], found: Estimate
) -> Compared:
    here, there = (
        Side(t.arm.name, study.count(t), len(t.seeds), float(values.mean()))
        for study, t, values in zip((ours, theirs), pair, scores, strict=True)
    )
    return Compared(here, there, found.value, (found.low, found.high), found.clear)
