"""The page of a study: one self-contained HTML file without script or network, its table and its figures. No torch.

Everything comes from the results. Jinja escapes every text; the only markup that passes is our own SVG, and what
users wrote into that has been escaped by matplotlib.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart import quantities
from headstart.runs.disk import write_file
from headstart.show.page import templates
from headstart.show.picture import INK, Picture, inline
from headstart.study.figures import looks, main_picture, pictures
from headstart.study.grid_results import GridFound
from headstart.study.results import ArmResult, Data, Disagreement, Results

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LONG_TEXT = 240  # characters; what is longer is folded
LONGEST_TEXT = 4000  # characters; what is longer is cut


def write_report(folder: Path, results: Results) -> Path:
    """report.html, table.csv and figures/ of a study of classifiers."""
    results = results.shown()
    drawn: dict[str, Markup] = {}
    files: set[str] = set()
    for picture in pictures(results):
        svg, file = picture.svg(), _file_name(picture.name, files)
        write_file(folder / "figures" / f"{file}.svg", svg.encode())
        write_file(folder / "figures" / f"{file}.png", picture.png())
        drawn[picture.name] = inline(svg, file, picture.alt)
    write_file(folder / "table.csv", table_csv(results).encode())
    several = {
        f"{kind}s": [svg for name, svg in drawn.items() if name.startswith(f"{kind} ")]
        for kind in ("confusion", "scatter")
    }
    page = environment().get_template("page.html.j2").render(_facts(results), pictures=drawn, **several)
    write_file(folder / "report.html", page.encode())
    return folder / "report.html"


@dataclass(frozen=True)
class Table:
    """Cells as text, by columns; numbers stand to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()  # columns of numbers


def write_grid_report(folder: Path, title: str, results: GridFound, table: Table, drawn: Iterable[Picture]) -> None:
    """report.html of a grid of translators or matchers, from results that are fit to be shown; and NAME.png of each figure."""
    figures: list[tuple[Markup, str]] = []
    for picture in drawn:
        svg = picture.svg()
        write_file(folder / f"{picture.name}.png", picture.png())
        figures.append((inline(svg, picture.name, picture.alt), picture.alt))
    page = environment().get_template("grid.html.j2")
    html = page.render(title=title, results=results, table=table, figures=figures)
    write_file(folder / "report.html", html.encode())


def study_html(results: Results) -> str:
    """The verdict, the table and the main figure as a fragment of HTML, for a notebook."""
    results = results.shown()
    mark = "h" + hashlib.sha256(repr(results).encode()).hexdigest()[:10]  # two studies on one page share no id
    picture = main_picture(results)
    drawn = inline(picture.svg(), mark, picture.alt) if picture else None
    return environment().get_template("fragment.html.j2").render(_facts(results), picture=drawn)


def table_csv(results: Results) -> str:
    """One line an arm and label count; scores as fractions of 1."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(
        ["arm", "kind", "base", "labels", "score", "mean", "sd", "low", "high", "over", "seeds", "accuracy", "macro_f1",
         "ece", "brier", "clean_mean", "clean_low", "clean_high", "rate", "seconds", "tokens", "trained_parameters",
         "trials"]
    )  # fmt: skip
    for arm in results.arms:
        low, high = arm.interval or (None, None)
        clean_low, clean_high = (arm.clean and arm.clean.interval) or (None, None)
        cells = [
            arm.name, arm.kind, arm.base, arm.labels, results.score, arm.mean, arm.sd, low, high, arm.over, arm.seeds,
            arm.accuracy and arm.accuracy.mean, arm.macro_f1 and arm.macro_f1.mean, arm.calibration.ece,
            arm.calibration.brier, arm.clean and arm.clean.mean, clean_low, clean_high, arm.rate, arm.cost.seconds,
            arm.cost.tokens, arm.cost.trained_parameters, arm.cost.trials,
        ]  # fmt: skip
        writer.writerow([harmless(cell) for cell in cells])
    return table.getvalue()


def harmless(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe; a number stays one."""
    if isinstance(cell, float):
        return round(cell, 6)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


@dataclass(frozen=True)
class Scale:
    """Where a score stands in the little pictures of a table, 0 to `width`."""

    low: float
    high: float
    width: float = 150

    @classmethod
    def over(cls, arms: list[ArmResult]) -> Scale:
        values = [v for arm in arms if arm.mean is not None for v in (arm.mean, *(arm.interval or ()))]
        low, high = math.floor(20 * min(values, default=0)) / 20, math.ceil(20 * max(values, default=1)) / 20
        return cls(low, high if high > low else low + 0.05)

    def __call__(self, value: float) -> str:
        return f"{self.width * (value - self.low) / (self.high - self.low):.1f}"


def _facts(results: Results) -> dict[str, Any]:
    """What the templates need beside the results."""
    return {
        "results": results,
        "scale": Scale.over(results.arms),
        "colors": {name: look.color.replace(INK, "currentColor") for name, look in looks(results).items()},
    }


def environment() -> Environment:
    """The templates of this floor, with what they need to write numbers."""
    made = templates("study")
    made.filters |= {
        "percent": percent, "points": points, "count": count, "about": about, "duration": duration,
        "probability": probability, "number": number, "folded": folded, "voices": voices, "labels_of": labels_of,
    }  # fmt: skip
    return made


NOTHING = "–"


def percent(share: float | None) -> str:
    """A score in percent, without the sign.

    >>> percent(0.7512), percent(-0.05), percent(-0.0001), percent(None)
    ('75.1', '−5.0', '0.0', '–')
    """
    return NOTHING if share is None else f"{round(100 * share, 1) + 0.0:.1f}".replace("-", "−")


def points(share: float) -> str:
    """A difference in percentage points with its sign.

    >>> points(0.0314), points(-0.0004)
    ('+3.1', '−0.04')
    """
    return quantities.signed(100 * share).replace("-", "−")


def count(number: float | None) -> str:
    return NOTHING if number is None else f"{number:,.0f}"


def about(number: float) -> str:
    """A count of which only the size is known.

    >>> about(9), about(5234)
    ('9', '5,200')
    """
    return f"{float(f'{number:.2g}'):,.0f}"


def duration(seconds: float | None) -> str:
    return NOTHING if seconds is None else quantities.duration(seconds)


def probability(p: float | None) -> str:
    return NOTHING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: float | None) -> str:
    """A score that is no share of 1, in its own unit.

    >>> number(0.51234), number(None)
    ('0.512', '–')
    """
    return NOTHING if value is None else f"{value:.3f}".replace("-", "−")


def folded(text: str) -> tuple[str, str]:
    """The beginning of a text, and the whole of it where that is longer.

    >>> folded("short")
    ('short', '')
    """
    if len(text) <= LONG_TEXT:
        return text, ""
    head = text[: LONG_TEXT - 40]
    whole = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"
    return head[: head.rfind(" ")] if " " in head[-40:] else head, whole


def voices(row: Disagreement) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Each label that was given to a row, the right one first, with the arms that gave it: seeds, and seeds in all."""
    said: dict[str, list[tuple[str, int, int]]] = {row.label: []}
    for arm, labels in row.said.items():
        for label, seeds in labels.items():
            said.setdefault(label, []).append((arm, seeds, sum(labels.values())))
    return [(label, arms) for label, arms in said.items() if arms]


def labels_of(data: Data) -> list[str]:
    return list(dict.fromkeys(label for labels in data.labels.values() for label in labels))


def _file_name(name: str, taken: set[str]) -> str:
    """A name for the files of a figure that every system takes, used once."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "figure"
    file = next(f for f in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if f not in taken)
    taken.add(file)
    return file
