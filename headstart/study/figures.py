"""The figures of a study, by matplotlib: one text of SVG and one PNG each. No torch.

A colour stands for a kind of arm, and so does a marker, for those who cannot tell the colours apart; dashes tell bases
apart. Baselines are drawn in ink.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.show.picture import COLORS, INK, PAPER, WIDTH, Picture, axes, brief, style
from headstart.study.arms import BASELINES, arm_kind
from headstart.study.results import ArmResult, Curves, Difference, Results

MARKERS = ("o", "^", "s", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
SHORTEST = 0.001  # minutes; what took less, a majority is counted in no time, has no place on a logarithmic axis
MOST_NUMBERED = 12  # labels; in a larger confusion table only the diagonal has numbers


@dataclass(frozen=True)
class Look:
    color: str
    marker: str
    dash: Any


def looks(results: Results) -> dict[str, Look]:
    """How each arm is drawn, everywhere."""
    learned = [arm for arm in results.arms if arm.kind not in BASELINES]
    kinds = list(dict.fromkeys(arm.kind or arm.name for arm in learned))
    bases = list(dict.fromkeys(arm.base for arm in learned))
    look: dict[str, Look] = {}
    for arm in results.arms:
        if arm.kind in BASELINES:
            look[arm.name] = Look(INK, "", arm_kind(arm.kind).dash)
        else:
            kind, base = kinds.index(arm.kind or arm.name), bases.index(arm.base)
            marker = MARKERS[kind % len(MARKERS)]
            look[arm.name] = Look(COLORS[kind % len(COLORS)], marker, DASHES[base % len(DASHES)])
    return look


def pictures(results: Results) -> Iterator[Picture]:
    """Every figure for which there is data."""
    if results.leading_differences:
        yield differences(results, results.leading_differences, "differences")
    for labels, found in results.other_differences.items():
        yield differences(results, found, f"differences {labels}")
    if len(results.label_counts) > 1 or (results.at(0) and results.all_labels):
        yield labels_needed(results)
    if results.curves:
        yield epochs(results)
    if results.pretraining:
        yield costs(results, results.all_labels)
    if any(arm.abstention.coverage and arm.kind != "majority" for arm in results.at(results.all_labels)):
        yield abstention(results)
    for arm in results.at(results.all_labels):
        if arm.points and arm.kind != "constant":
            yield scatter(results, arm)
        if arm.confusion and len(arm.confusion) == len(results.label_names):
            yield confusion(results, arm)


def main_picture(results: Results) -> Picture | None:
    """The one figure to show where there is room for one."""
    return next((p for p in pictures(results) if p.name == "labels"), next(pictures(results), None))


@style()
def differences(results: Results, shown: Sequence[Difference], name: str) -> Picture:
    """A forest plot: differences with their intervals, filled where they are clear."""
    figure, (axis,) = axes(1, WIDTH, 0.75 + 0.235 * len(shown))
    look = looks(results)
    for y, d in enumerate(shown):
        style = look.get(d.a, Look(INK, "o", "-"))
        axis.plot([100 * x for x in d.interval], [y, y], color=style.color, solid_capstyle="butt")
        axis.plot(
            100 * d.difference, y, style.marker or "o", color=style.color, markersize=6, markeredgewidth=1.3,
            markerfacecolor=style.color if d.clear else PAPER,
        )  # fmt: skip
    axis.axvline(0, color=INK, linewidth=0.8, zorder=0)
    axis.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
    names = [f"{brief(d.a)} − {brief(d.b)}" for d in shown]
    axis.set_yticks(range(len(shown)), names)
    for label, d in zip(axis.get_yticklabels(), shown, strict=True):
        label.set_fontweight("bold" if d.clear else "normal")
    axis.set(
        ylim=(len(shown) - 0.4, -0.6),
        xlabel=f"difference in {results.score_name}, points, with {shown[0].labels:,} labels",
    )
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    told = "; ".join(f"{n}: {100 * d.difference:+.1f} points" for n, d in zip(names, shown, strict=True))
    return Picture(name, f"Differences in {results.score_name} with {shown[0].labels:,} labels. {told}.", figure)


@style()
def labels_needed(results: Results) -> Picture:
    """The score against the number of labels, with bands; of an arm that uses none, a level line from 0 on."""
    figure, (axis,) = axes(1, WIDTH, 3.7)
    look, counts = looks(results), results.label_counts
    none = counts[0] / 2  # the place of 0 on a logarithmic axis
    for name in results.arm_names:
        style, arms = look[name], sorted((a for a in results.arms if a.name == name), key=lambda a: a.labels)
        if not arms[0].labels:
            arms = [arms[0].model_copy(update={"labels": n}) for n in (none, *counts)]
        points = [(a.labels, 100 * a.mean) for a in arms if a.mean is not None]
        axis.plot([n for n, _ in points], [score for _, score in points], **_line(style), label=brief(name))
        banded = [(a.labels, *a.interval) for a in arms if a.interval]
        if style.color != INK and banded:
            n, low, high = zip(*banded, strict=True)
            axis.fill_between(n, [100 * v for v in low], [100 * v for v in high], **_band(style, len(look)))
    axis.set_xscale("log")
    ticks = {none: "0"} if results.at(0) else {}
    ticks |= {n: f"{n:,}" for n in counts}
    axis.set_xticks(list(ticks), list(ticks.values()))
    axis.set_xticks([], minor=True)
    axis.set(xlabel="labels, training and validation together", ylabel=f"test {results.score_name}, %")
    axis.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    _legend(figure, axis)
    first = 0 if results.at(0) else counts[0]
    alt = f"Test {results.score_name} against the number of labels, from {first:,} to {counts[-1]:,}: " + "; ".join(
        f"{a.name} ends at {100 * a.mean:.1f} %" for a in results.at(results.all_labels) if a.mean is not None
    )
    return Picture("labels", alt + ".", figure)


@style()
def epochs(results: Results) -> Picture:
    """Accuracy and loss while learning: the mean over seeds, in a band from the lowest to the highest."""
    figure, (left, right) = axes(2, WIDTH, 3.1)
    look = looks(results)
    for name, curves in results.curves.items():
        style = look.get(name, Look(INK, "", "-"))
        for axis, rows, scale in ((left, curves.valid_accuracy, 100), (right, curves.valid_loss, 1)):
            x, mean, low, high = _over_seeds(curves, rows, scale)
            axis.plot(x, mean, **_line(style), markevery=max(1, len(x) // 10), label=brief(name))
            axis.fill_between(x, low, high, **_band(style, len(results.curves)))
        x, mean, _, _ = _over_seeds(curves, curves.train_loss, 1)
        right.plot(x, mean, color=style.color, linewidth=0.9, alpha=0.65)
    score = "accuracy" if results.task == "classify" else results.score_name
    left.set(xlabel="epoch", ylabel="%", title=f"validation {score}")
    right.set(xlabel="epoch", ylabel="" if results.numeric else "nats", title="loss (thin: training)")
    for axis in (left, right):
        axis.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
        axis.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, left)
    return Picture("epochs", f"Validation {score} and loss by epoch of {', '.join(results.curves)}.", figure)


@style()
def costs(results: Results, labels: int) -> Picture:
    """The score against the minutes that it took, pretraining and one training; hollow where it was pretrained elsewhere."""
    figure, (axis,) = axes(1, WIDTH, max(4.2, 0.14 * len(results.at(labels))))
    look, before = looks(results), {p.run: p.minutes for p in results.pretraining}
    told, points = [], []
    for arm in results.at(labels):
        if arm.mean is None or arm.cost.seconds is None:
            continue
        pretrained = arm.kind not in (*BASELINES, "scratch")
        known = not pretrained or arm.base in before
        minutes = max(SHORTEST, arm.cost.seconds / 60) + (before.get(arm.base or "", 0) if pretrained else 0)
        style = look[arm.name]
        low, high = arm.interval or (arm.mean, arm.mean)
        axis.plot([minutes, minutes], [100 * low, 100 * high], color=style.color, linewidth=0.9, alpha=0.5)
        axis.plot(
            minutes, 100 * arm.mean, style.marker or "_", color=style.color, markersize=6,
            markerfacecolor=style.color if known else PAPER,
        )  # fmt: skip
        points.append((100 * arm.mean, minutes, arm.name))
        elsewhere = "" if known else " and its pretraining elsewhere"
        told.append(f"{arm.name} {100 * arm.mean:.1f} % in {minutes:.1f}{elsewhere}")
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda minutes, _: f"{minutes:g}")
    _name_beside(axis, points)
    axis.set(
        xlabel=f"minutes of pretraining and of one training with {labels:,} labels",
        ylabel=f"test {results.score_name}, %",
    )
    axis.grid(color=INK, alpha=0.12, linewidth=0.6)
    return Picture("costs", f"Test {results.score_name} by minutes: {'; '.join(told)}.", figure)


@style()
def abstention(results: Results) -> Picture:
    """Accuracy against coverage: each arm on the test rows that it is surest of."""
    figure, (axis,) = axes(1, WIDTH, 3.4)
    look, told = looks(results), []
    for arm in results.at(results.all_labels):
        if arm.kind == "majority" or not arm.abstention.coverage:  # always equally sure
            continue
        x, y = ([100 * share for share in part] for part in (arm.abstention.coverage, arm.abstention.accuracy))
        axis.plot(x, y, **_line(look[arm.name]), markevery=4, label=brief(arm.name))
        told.append(f"{arm.name} {y[len(y) // 2 - 1]:.1f} % on half of the rows, {y[-1]:.1f} % on all")
    axis.set(xlabel="coverage, % of the test rows, the surest first", ylabel="accuracy on these rows, %")
    axis.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    _legend(figure, axis)
    return Picture("abstention", f"Accuracy against coverage: {'; '.join(told)}.", figure)


@style()
def confusion(results: Results, arm: ArmResult) -> Picture:
    """What an arm said for each true label, as shares of that label's rows."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    side, names = len(arm.confusion), [brief(name, 18) for name in results.label_names]
    cell = 0.6 if side <= 3 else 0.42 if side <= 6 else 0.33  # inches
    longest = max(map(len, names), default=0)
    figure, (axis,) = axes(1, side * cell + 0.5 + 0.06 * longest, side * cell + 0.6 + 0.045 * longest)
    for y, row in enumerate(arm.confusion):
        for x, rows in enumerate(row):
            share = rows / max(1, sum(row))
            edge = {"edgecolor": INK, "linewidth": 0.9} if x == y else {"linewidth": 0}
            # Never so dark that ink could not be read on it, on a light page or a dark one.
            shade = Rectangle((x + 0.03, y + 0.03), 0.94, 0.94, facecolor=(*to_rgb(COLORS[0]), 0.72 * share), **edge)
            axis.add_patch(shade).set_in_layout(False)
            if x == y or (share >= 0.005 and side <= MOST_NUMBERED):
                size = 9 if side <= 3 else 7
                text = axis.text(x + 0.5, y + 0.5, f"{100 * share:.0f}", ha="center", va="center", fontsize=size)
                text.set_in_layout(False)
    centres, upright = [i + 0.5 for i in range(side)], side <= 3 and longest <= 8
    axis.set_xticks(
        centres, names, rotation=0 if upright else 40, ha="center" if upright else "right", rotation_mode="anchor"
    )
    axis.set_yticks(centres, names)
    axis.set(xlim=(0, side), ylim=(side, 0), xlabel="said", ylabel="true", title=brief(arm.name), aspect="equal")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    told = "; ".join(
        f"of the rows that are {name}, {100 * row[i] / max(1, sum(row)):.0f} % were labelled so"
        for i, (name, row) in enumerate(zip(names, arm.confusion, strict=True))
    )
    return Picture(f"confusion {arm.name}", f"Confusion of {arm.name}: {told}.", figure)


@style()
def scatter(results: Results, arm: ArmResult) -> Picture:
    """Predicted against true numbers, with the line on which both are equal; the axes are those of every arm."""
    figure, (axis,) = axes(1, 3.4, 3.4)
    every = [v for a in results.at(results.all_labels) for point in a.points for v in point if math.isfinite(v)]
    low, high = min(every), max(every)
    margin = 0.04 * (high - low) or 1.0
    ends = low - margin, high + margin
    axis.axline((low, low), slope=1, color=INK, linewidth=0.8, dashes=(4, 2))
    look = looks(results)[arm.name]
    true, said = zip(*arm.points, strict=True)
    axis.plot(true, said, look.marker or "o", color=look.color, markersize=3, alpha=0.45, markeredgewidth=0)
    axis.set(xlim=ends, ylim=ends, xlabel="true", ylabel="predicted", title=brief(arm.name), aspect="equal")
    axis.grid(color=INK, alpha=0.12, linewidth=0.6)
    mean = f", {results.score_name} {arm.mean:.3f}" if arm.mean is not None else ""
    told = f"Predicted against true numbers, {arm.name}{mean}: true {min(true):.3g} to {max(true):.3g}, predicted {min(said):.3g} to {max(said):.3g}."
    return Picture(f"scatter {arm.name}", told, figure)


def _name_beside(axis: Any, points: Sequence[tuple[float, float, str]]) -> None:
    """Names of points (y, x, name) in a column at the right, each tied to its point, none over another."""
    bottom, top = axis.get_ylim()
    gap, ordered = (top - bottom) / max(30, len(points)), sorted(points)
    places = [y for y, _, _ in ordered]
    lowest, highest = bottom, top
    for i in range(len(places)):  # up, off the name below
        places[i] = max(places[i], lowest)
        lowest = places[i] + gap
    for i in reversed(range(len(places))):  # down again, where that went over the top
        places[i] = min(places[i], highest)
        highest = places[i] - gap
    for place, (y, x, name) in zip(places, ordered, strict=True):
        axis.annotate(
            brief(name), (x, y), (1.02, place), textcoords=("axes fraction", "data"), va="center", fontsize=7,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "color": INK, "alpha": 0.25, "linewidth": 0.5},
        )  # fmt: skip


def _line(look: Look) -> dict[str, Any]:
    return {"color": look.color, "linestyle": look.dash, "marker": look.marker}


def _band(look: Look, bands: int) -> dict[str, Any]:
    return {"color": look.color, "alpha": min(0.14, 0.6 / bands), "linewidth": 0}  # many bands, each one fainter


def _legend(figure: Any, axis: Any) -> None:
    """Above the axes, in as many columns as fit, so that it never covers data."""
    handles, names = axis.get_legend_handles_labels()
    columns = max(1, min(len(names), int(105 / (max(map(len, names), default=0) + 9))))
    figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=2.6, columnspacing=1.6)


def _over_seeds(
    curves: Curves, rows: Sequence[Sequence[float | None]], scale: float
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Epochs with the mean, the least and the most over the seeds that were measured there."""
    points = []
    for i, epoch in enumerate(curves.epoch):
        values = [scale * v for row in rows if i < len(row) and (v := row[i]) is not None and math.isfinite(v)]
        if values:
            points.append((epoch, sum(values) / len(values), min(values), max(values)))
    x, mean, low, high = ([point[i] for point in points] for i in range(4))
    return x, mean, low, high
