"""Pictures of runs and of generated text, by matplotlib. No torch."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.runs.disk import write_file
from headstart.runs.run import Run
from headstart.show.picture import axes


def curve(run: Run, split: str, score: str) -> tuple[list[int], list[float]]:
    """Steps and values of one score in a run's log."""
    records = [r for r in run.read_lines("log.jsonl") if r.get("split") == split and r.get(score) is not None]
    return [r["step"] for r in records], [r[score] for r in records]


def plot_curves(run: Run, file: Path) -> None:
    """Loss on the training and validation rows, and the validation accuracy, by step."""
    figure, (left, right) = _axes(2, (9, 3.6))
    left.plot(*curve(run, "train", "loss"), alpha=0.4, linewidth=1, label="training")
    left.plot(*curve(run, "valid", "loss"), marker="o", markersize=3, label="validation")
    right.plot(*curve(run, "valid", "accuracy"), marker="o", markersize=3)
    left.set(xlabel="step", ylabel="loss (nats)")
    right.set(xlabel="step", ylabel="validation accuracy")
    left.legend(frameon=False, fontsize=8)
    _save(figure, file)


def plot_tokens(result: Mapping[str, Any], file: Path) -> None:
    """The most probable tokens at every generated position, one column a token, darker = more probable."""
    tokens = result["tokens"]
    height = max((len(t["top"]) for t in tokens), default=0)
    figure, (axis,) = _axes(1, (max(4.0, 1.15 * len(tokens)), 0.45 * height + 1.2))
    for x, token in enumerate(tokens):
        for y, best in enumerate(token["top"]):
            p = best["probability"]
            shade = 1 - 0.75 * p
            axis.add_patch(_cell(x, y, (shade, shade, 1.0), best["token"] == token["token"]))
            word = best["token"].replace("\n", "\\n").replace("$", "\\$")
            axis.text(x + 0.5, y + 0.5, f"{word.strip() or '␣'}  {p:.2f}", ha="center", va="center", fontsize=8)
    axis.set(xlim=(0, len(tokens)), ylim=(height, 0), yticks=[y + 0.5 for y in range(height)])
    axis.set_yticklabels([str(y + 1) for y in range(height)])
    axis.set_xticks([x + 0.5 for x in range(len(tokens))])
    axis.set_xticklabels([f"{x + 1}" for x in range(len(tokens))])
    axis.set_xlabel("generated token")
    axis.set_title(result["text"].replace("$", "\\$").replace("\n", " ")[:100], fontsize=9, loc="left")
    _save(figure, file)


LADDER = {"model": "{}", "hidden": "hidden size {}", "data": "{}"}  # what a grid varies, as a panel is called


def plot_ladder_curves(results: Mapping[str, Any], file: Path, panel: str, color: str, line: str) -> None:
    """Validation loss by step, one line a seed; the three keys of LADDER in the order of the call."""
    curves = results["curves"]
    panels, colors, lines = (list(dict.fromkeys(c[key] for c in curves)) for key in (panel, color, line))
    figure, axes = _axes(len(panels), (4.2 * len(panels), 3.8))
    named: set[tuple[Any, ...]] = set()
    for c in curves:
        axis, kind = axes[panels.index(c[panel])], (c[panel], c[color], c[line])
        style = {
            "color": f"C{colors.index(c[color])}",
            "linestyle": ("-", "--", ":", "-.")[lines.index(c[line]) % 4],
        }
        label = None if kind in named else f"{c[color]}, {c[line]}"  # of the first seed that came to its end
        axis.plot(*zip(*c["valid"], strict=True), **style, label=label)
        named.add(kind)
    for axis, name in zip(axes, panels, strict=True):
        axis.set(xlabel="step", ylabel="validation loss (nats a token)", title=LADDER[panel].format(name))
        axis.legend(frameon=False, fontsize=7, title=f"{color}, {line}; a line a seed", title_fontsize=7)
        axis.sharey(axes[0])
    _save(figure, file)


def plot_ladder_heatmap(results: Mapping[str, Any], file: Path) -> None:
    """The lowest validation loss of every model (down) by data set and hidden size (across); means over seeds."""
    table = results["table"]
    down = list(dict.fromkeys(row["model"] for row in table))
    across = list(dict.fromkeys((row["data"], row["hidden"]) for row in table))
    losses = {(row["model"], (row["data"], row["hidden"])): row["loss"] for row in table}
    figure, (axis,) = _axes(1, (1.3 * len(across) + 2, 0.6 * len(down) + 1.6))
    nothing = float("nan")
    axis.imshow([[losses.get((m, a), nothing) for a in across] for m in down], cmap="Blues", aspect="auto", vmin=0)
    for y, model in enumerate(down):
        for x, place in enumerate(across):
            loss = losses.get((model, place))
            dark = loss is not None and loss > 0.6 * max(losses.values())
            axis.text(
                x,
                y,
                "-" if loss is None else f"{loss:.3f}",
                ha="center",
                va="center",
                color="white" if dark else "black",
            )
    axis.set_xticks(range(len(across)), [f"{data}\nhidden {hidden}" for data, hidden in across], fontsize=8)
    axis.set_yticks(range(len(down)), down, fontsize=8)
    axis.set_title("lowest validation loss (nats a target token)", fontsize=9)
    _save(figure, file)


def plot_recalls(results: Mapping[str, Any], file: Path) -> None:
    """How often the right picture is among the first 1, 5 and 10: one group of bars for each, with their intervals."""
    figure, (axis,) = _axes(1, (7, 3.8))
    table = results["table"]
    kinds = list(table[0]["intervals"])
    for i, row in enumerate(table):
        heights = [row[at] for at in kinds]
        name = f"{row['text']}, {row['image']}, {'frozen' if row['trained'] == 'head' else 'tuned'}"
        places = _bars(axis, i, len(table), heights, name)
        for x, height, at in zip(places, heights, kinds, strict=True):
            low, high = row["intervals"][at] or (height, height)
            axis.plot([x, x], [low, high], color="black", linewidth=1)
    for x, at in enumerate(kinds):
        chance = table[0]["chance"]["text_to_image"][at]
        axis.plot([x - 0.42, x + 0.42], [chance, chance], color="black", linestyle=":", label=None if x else "guessing")
    axis.set(xticks=range(len(kinds)), ylabel="captions whose picture is found", ylim=(0, 1))
    axis.set_xticklabels(kinds)
    axis.legend(frameon=False, fontsize=7)
    _save(figure, file)


def plot_data(report: Mapping[str, Any], file: Path) -> None:
    """Labels by part, lengths in words, and copies inside and across the parts of a data set."""
    figure, (left, middle, right) = _axes(3, (11, 3.6))
    parts = report["splits"]
    labels = sorted({label for part in parts.values() for label in part["labels"]})[:12]
    for i, (name, part) in enumerate(parts.items()):
        shares = [part["labels"].get(label, 0) / max(1, part["rows"]) for label in labels]
        _bars(left, i, len(parts), shares, f"{name} ({part['rows']})")
        marks = [part["words"][mark] for mark in ("min", "median", "p95", "max")]
        middle.plot(["least", "median", "95 %", "most"], marks, marker="o", label=name)
    left.set(xticks=range(len(labels)), ylabel="share of rows", title="labels")
    left.set_xticklabels([(label or "(none)").replace("$", "\\$") for label in labels], rotation=30, ha="right")
    middle.set(ylabel="words", yscale="symlog", title="lengths")
    kinds = [kind for kind in ("exact", "contained", "near") if report[kind]]
    bars = [(f"in {name}", "within", name) for name in parts] + [
        (f"{n} in earlier", "leaked", n) for n in list(parts)[1:]
    ]
    for i, (name, where, part) in enumerate(bars):
        _bars(right, i, len(bars), [report[kind][where][part] for kind in kinds], name)
    right.set(xticks=range(len(kinds)), ylabel="rows", title="copies")
    right.set_xticklabels(kinds)
    for axis in (left, middle, right):
        axis.legend(frameon=False, fontsize=7)
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:] or "png", dpi=120)
    write_file(file, picture.getvalue())


def _bars(axis: Any, i: int, of: int, heights: Sequence[float], name: str) -> list[float]:
    """The i-th of `of` bars side by side at 0, 1, 2 ...; where they stand."""
    width = 0.8 / of
    places = [x + (i - (of - 1) / 2) * width for x in range(len(heights))]
    axis.bar(places, heights, width=width, label=name)
    return places


def _axes(count: int, size: tuple[float, float]) -> tuple[Any, Sequence[Any]]:
    figure, drawn = axes(count, *size)
    for axis in drawn:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, drawn


def _cell(x: int, y: int, color: tuple[float, float, float], chosen: bool) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x, y), 1, 1, facecolor=color, edgecolor="black" if chosen else "white", linewidth=2 if chosen else 1,
        zorder=2 if chosen else 1,
    )  # fmt: skip
