"""Layer by layer: what a language model would predict if it ended early, and what a linear probe reads from each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from headstart.show.picture import COLORS, INK, brief
from headstart.show.table import label, table
from headstart.show.view import Guess, View


class LensLayer(TypedDict):
    layer: str
    top: list[Guess]  # the most probable next token after each token
    right: list[float | None]  # the probability of the token that does follow


class LensData(TypedDict):
    tokens: list[str]
    layers: list[LensLayer]


class ProbeData(TypedDict):
    layer: str
    accuracy: float
    interval: list[float]


class ProbesData(TypedDict):
    rows: int
    folds: int
    commonest: float  # the share of the majority class
    layers: list[ProbeData]


@dataclass(frozen=True, repr=False)
class LogitLens(View):
    """The head of a language model, put on every layer (nostalgebraist, 2020)."""

    name = "lens"

    tokens: Sequence[str]  # of the text
    next: Sequence[str]  # the token that does follow each; empty after the last
    guesses: Sequence[
        Sequence[tuple[str, float]]
    ]  # a row a layer, input first: the most probable next token, and how much
    right: Sequence[Sequence[float | None]]  # the probability of the token that does follow

    @property
    def layers(self) -> list[str]:
        return ["embedding", *(f"layer {n}" for n in range(1, len(self.guesses)))]

    def data(self) -> LensData:
        return {
            "tokens": list(self.tokens),
            "layers": [
                {
                    "layer": name,
                    "top": [{"token": t, "probability": p} for t, p in guesses],
                    "right": list(right),
                }
                for name, guesses, right in zip(self.layers, self.guesses, self.right, strict=True)
            ],
        }

    @property
    def summary(self) -> str:
        return "logit lens: what the model would predict next if it ended at each layer"

    def __str__(self) -> str:
        rows = [
            [label(token), *(f"{label(layer[t][0])} {layer[t][1]:.2f}" for layer in self.guesses), label(self.next[t]) if self.next[t] else ""]
            for t, token in enumerate(self.tokens)
        ]  # fmt: skip
        return f"{self.summary}\n\n" + table(["after", *self.layers, "in the text"], rows)

    @property
    def alt(self) -> str:
        return f"The most probable next token at {len(self.layers)} depths for {len(self.tokens)} tokens."

    @property
    def size(self) -> tuple[float, float]:
        return 0.9 * len(self.layers) + 1.2, 0.2 * len(self.tokens) + 0.8

    def draw(self, figure: Any) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Rectangle

        axis = figure.subplots()
        for x, layer in enumerate(self.guesses):
            for y, (token, p) in enumerate(layer):
                edge = {"edgecolor": INK, "linewidth": 0.9} if token == self.next[y] else {"linewidth": 0}
                shade = (*to_rgb(COLORS[0]), 0.72 * p)
                axis.add_patch(Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, facecolor=shade, **edge))
                axis.text(x + 0.5, y + 0.5, f"{brief(label(token), 9)} {p:.2f}", ha="center", va="center", fontsize=6.5)
        axis.set(xlim=(0, len(self.layers)), ylim=(len(self.tokens), 0))
        axis.set_xticks([x + 0.5 for x in range(len(self.layers))], self.layers)
        axis.set_yticks([y + 0.5 for y in range(len(self.tokens))], [brief(label(t), 14) for t in self.tokens])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        figure.suptitle(self.summary + "; framed: what does follow", x=0.01, ha="left", fontsize=8.5)


@dataclass(frozen=True)
class Probe:
    """How many held-out rows a linear classifier gets right from one layer."""

    layer: str
    accuracy: float
    interval: tuple[float, float]  # 95 %, Wilson's


@dataclass(frozen=True, repr=False)
class LayerProbes(View):
    name = "probes"

    probes: Sequence[Probe]
    rows: int  # all of them held out once, in folds
    folds: int
    commonest: float  # the share of the majority class

    @property
    def summary(self) -> str:
        return (
            f"linear probes: accuracy on {self.rows} rows, each held out once in {self.folds} folds; majority "
            f"class {self.commonest:.4f}"
        )

    def data(self) -> ProbesData:
        return {
            "rows": self.rows,
            "folds": self.folds,
            "commonest": self.commonest,
            "layers": [{"layer": p.layer, "accuracy": p.accuracy, "interval": list(p.interval)} for p in self.probes],
        }

    @property
    def table_rows(self) -> list[list[str]]:
        return [[p.layer, f"{p.accuracy:.4f}", f"{p.interval[0]:.4f} to {p.interval[1]:.4f}"] for p in self.probes]

    def __str__(self) -> str:
        return f"{self.summary}\n\n" + table(["layer", "accuracy", "95 % interval"], self.table_rows, right=(1,))

    @property
    def alt(self) -> str:
        return "Probe accuracy: " + ", ".join(f"{p.layer} {p.accuracy:.2f}" for p in self.probes) + "."

    @property
    def size(self) -> tuple[float, float]:
        return 6.0, 2.4

    def draw(self, figure: Any) -> None:
        axis = figure.subplots()
        places = range(len(self.probes))
        axis.plot(places, [p.accuracy for p in self.probes], "-o", color=COLORS[0])
        axis.vlines(places, [p.interval[0] for p in self.probes], [p.interval[1] for p in self.probes], color=COLORS[0])
        axis.axhline(self.commonest, color=INK, linestyle=(0, (1, 1.8)), label="majority class")
        axis.set_xticks(places, [p.layer for p in self.probes])
        axis.set(ylabel="held-out accuracy")
        axis.legend(loc="best")
