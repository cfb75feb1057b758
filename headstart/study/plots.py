"""Figures of runs and of generated text, by matplotlib. No torch."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.quantities import duration
from headstart.runs.disk import write_file
from headstart.show.picture import COLORS, WIDTH, Picture, axes, brief, style

if TYPE_CHECKING:
    from headstart.study.which import Ranking

MARKS = "osD^vPX*"


@style()
def plot_tokens(result: Mapping[str, Any], file: Path) -> None:
    """The most probable tokens at every generated position, one column per token, darker = more probable."""
    tokens = result["tokens"]
    height = max((len(t["top"]) for t in tokens), default=0)
    figure, (axis,) = axes(1, max(4.0, 1.15 * len(tokens)), 0.45 * height + 1.2)
    for x, token in enumerate(tokens):
        for y, best in enumerate(token["top"]):
            p = best["probability"]
            shade = 1 - 0.75 * p
            axis.add_patch(_cell(x, y, (shade, shade, 1.0), best["token"] == token["token"]))
            word = best["token"].replace("\n", "\\n")
            axis.text(x + 0.5, y + 0.5, f"{word.strip() or '␣'}  {p:.2f}", ha="center", va="center", fontsize=8)
    axis.set(xlim=(0, len(tokens)), ylim=(height, 0), yticks=[y + 0.5 for y in range(height)])
    axis.set_yticklabels([str(y + 1) for y in range(height)])
    axis.set_xticks([x + 0.5 for x in range(len(tokens))])
    axis.set_xticklabels([f"{x + 1}" for x in range(len(tokens))])
    axis.set_xlabel("generated token")
    axis.set_title(result["text"].replace("\n", " ")[:100], fontsize=9, loc="left")
    _save(figure, file)


@style()
def plot_data(report: Mapping[str, Any], file: Path) -> None:
    """Labels by split, lengths in words, and duplicates within and across the splits of a dataset."""
    figure, (left, middle, right) = axes(3, 11, 3.6)
    parts = report["splits"]
    labels = sorted({label for part in parts.values() for label in part["labels"]})[:12]
    for i, (name, part) in enumerate(parts.items()):
        shares = [part["labels"].get(label, 0) / max(1, part["rows"]) for label in labels]
        bars(left, i, len(parts), shares, f"{name} ({part['rows']})")
        marks = [part["words"][mark] for mark in ("min", "median", "p95", "max")]
        middle.plot(["least", "median", "95 %", "most"], marks, marker="o", label=name)
    left.set(xticks=range(len(labels)), ylabel="share of rows", title="labels")
    left.set_xticklabels([(label or "(none)") for label in labels], rotation=30, ha="right")
    middle.set(ylabel="words", yscale="symlog", title="lengths")
    kinds = [kind for kind in ("exact", "contained", "near") if report[kind]]
    compared = [(f"in {name}", "within", name) for name in parts] + [
        (f"{n} in earlier", "leaked", n) for n in list(parts)[1:]
    ]
    for i, (name, where, part) in enumerate(compared):
        bars(right, i, len(compared), [report[kind][where][part] for kind in kinds], name)
    right.set(xticks=range(len(kinds)), ylabel="rows", title="duplicates")
    right.set_xticklabels(kinds)
    for axis in (left, middle, right):
        axis.legend()
    _save(figure, file)


@style()
def ranking_picture(ranking: Ranking) -> Picture:
    """Scores with their intervals against seconds; a colour for each base."""
    figure, (axis,) = axes(1, WIDTH, 3.6)
    bases = list(dict.fromkeys(pair.base for pair in ranking.pairs))
    routes = list(dict.fromkeys(pair.route for pair in ranking.pairs))
    for pair in ranking.pairs:
        color, mark = COLORS[bases.index(pair.base) % len(COLORS)], MARKS[routes.index(pair.route) % len(MARKS)]
        reach = [[pair.score - pair.interval[0]], [pair.interval[1] - pair.score]]
        name = brief(f"{Path(pair.base).name} {pair.route}" if pair.base else pair.route)
        axis.errorbar([pair.seconds], [pair.score], yerr=reach, fmt=mark, capsize=2, color=color, label=name)
    axis.set(xscale="log", xlabel="time to read the rows and to fit", ylabel=ranking.score_name)
    axis.xaxis.set_major_formatter(lambda seconds, _: duration(seconds))
    axis.xaxis.set_minor_formatter(lambda seconds, _: "")
    axis.set_title(f"cross-validated on {ranking.rows:,} training rows, with 95 % intervals")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Picture("ranking", ranking.verdict, figure)


def _save(figure: Any, file: Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:] or "png", dpi=120)
    write_file(file, picture.getvalue())


def bars(axis: Any, i: int, of: int, heights: Sequence[float], name: str) -> list[float]:
    """The i-th of `of` bars side by side at 0, 1, 2 ...; where they stand."""
    width = 0.8 / of
    places = [x + (i - (of - 1) / 2) * width for x in range(len(heights))]
    axis.bar(places, heights, width=width, color=COLORS[i % len(COLORS)], label=name)
    return places


def _cell(x: int, y: int, color: tuple[float, float, float], chosen: bool) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x, y), 1, 1, facecolor=color, edgecolor="black" if chosen else "white", linewidth=2 if chosen else 1,
        zorder=2 if chosen else 1,
    )  # fmt: skip
