"""The figures of a grid of translators and of a grid of matchers, by matplotlib. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Any, Literal

from headstart.show.picture import COLORS, INK, Picture, axes, brief, style
from headstart.study.figures import DASHES
from headstart.study.grid_results import MatcherResults, TranslatorResults
from headstart.study.plots import bars

Varied = Literal["model", "hidden", "data"]
PANEL = 4.2  # inches
NAMED = {"model": "{}", "hidden": "hidden size {}", "data": "{}"}  # the title of a panel


def translator_pictures(results: TranslatorResults) -> Iterator[Picture]:
    yield loss_curves(results, "curves", "model", "hidden", "data")
    yield loss_curves(results, "by-hidden", "data", "hidden", "model")
    yield loss_curves(results, "by-data", "hidden", "data", "model")
    yield heatmap(results)


def matcher_pictures(results: MatcherResults) -> Iterator[Picture]:
    yield recalls(results)


@style()
def loss_curves(results: TranslatorResults, name: str, panel: Varied, color: Varied, dash: Varied) -> Picture:
    """Validation loss by step, one line per seed: a panel, a colour and dashes for what the grid varies."""
    panels, colors, dashes = (_values(results, key) for key in (panel, color, dash))
    figure, drawn = axes(len(panels), PANEL * len(panels), 3.8)
    named: set[tuple[Any, ...]] = set()
    for curve in results.curves:
        where, shade, line = (getattr(curve, key) for key in (panel, color, dash))
        label = None if (where, shade, line) in named else brief(f"{shade}, {line}")  # once for all seeds
        named.add((where, shade, line))
        look = COLORS[colors.index(shade) % len(COLORS)], DASHES[dashes.index(line) % len(DASHES)]
        axis = drawn[panels.index(where)]
        axis.plot(*zip(*curve.valid, strict=True), color=look[0], linestyle=look[1], label=label)
    for axis, value in zip(drawn, panels, strict=True):
        axis.set(xlabel="step", ylabel="validation loss (nats per token)", title=NAMED[panel].format(brief(str(value))))
        axis.legend(title=f"{color}, {dash}; a line per seed", fontsize=7, title_fontsize=7)
        axis.sharey(drawn[0])
    return Picture(name, f"Validation loss by step, a panel per {_word(panel)}, a line per seed.", figure)


def _values(results: TranslatorResults, key: Varied) -> list[Any]:
    return list(dict.fromkeys(getattr(curve, key) for curve in results.curves))


def _word(key: Varied) -> str:
    return {"model": "model", "hidden": "hidden size", "data": "data set"}[key]


@style()
def heatmap(results: TranslatorResults) -> Picture:
    """The lowest validation loss of every model (down) by data set and hidden size (across); means over seeds."""
    down = list(dict.fromkeys(row.model for row in results.table))
    across = list(dict.fromkeys((row.data, row.hidden) for row in results.table))
    losses = {(row.model, (row.data, row.hidden)): row.loss for row in results.table}
    figure, (axis,) = axes(1, 1.3 * len(across) + 2, 0.6 * len(down) + 1.6)
    axis.pcolormesh([[losses.get((m, a), nan) for a in across] for m in down], cmap="Blues", vmin=0)  # no bitmap
    for y, model in enumerate(down):
        for x, place in enumerate(across):
            loss = losses.get((model, place))
            dark = loss is not None and loss > 0.6 * max(losses.values())
            ink = "white" if dark else INK if loss is None else "black"  # on paper it is the page's
            axis.text(x + 0.5, y + 0.5, "-" if loss is None else f"{loss:.3f}", ha="center", va="center", color=ink)
    names = [f"{brief(data)}\nhidden {hidden}" for data, hidden in across]
    axis.set_xticks([x + 0.5 for x in range(len(across))], names)
    axis.set_yticks([y + 0.5 for y in range(len(down))], down)
    axis.invert_yaxis()
    axis.set_title("lowest validation loss (nats per target token)")
    return Picture("heatmap", "The lowest validation loss, in nats per target token: means over seeds.", figure)


@style()
def recalls(results: MatcherResults) -> Picture:
    """Recall at 1, 5 and 10, text to image: one group of bars for each, with their intervals."""
    figure, (axis,) = axes(1, 7.2, 3.8)
    kinds, chance = list(results.table[0].recalls), results.table[0].chance["text_to_image"]
    for i, row in enumerate(results.table):
        name = f"{row.text}, {row.image}, {'frozen' if row.trained == 'head' else 'fine-tuned'}"
        places = bars(axis, i, len(results.table), list(row.recalls.values()), brief(name, 60))
        for x, (at, height) in zip(places, row.recalls.items(), strict=True):
            axis.plot([x, x], row.intervals[at] or (height, height), color=INK, linewidth=1)
    for x, at in enumerate(kinds):
        axis.plot(
            [x - 0.42, x + 0.42], [chance[at]] * 2, color=INK, linestyle=":", label=None if x else "guessing"
        )  # fmt: skip
    axis.set(ylabel="share of captions whose image is found", ylim=(0, 1))
    axis.set_xticks(range(len(kinds)), kinds)
    axis.legend(fontsize=7)
    return Picture("recall", "Recall of the image of a caption, with 95 % intervals over splits.", figure)
