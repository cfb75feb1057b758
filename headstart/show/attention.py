"""Where each token looked: attention weights of every layer and head, their mean, and their rollout.

Shapes: L layers, H heads, T tokens that look (targets), S tokens that are looked at (sources).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from headstart.errors import UserError
from headstart.show.picture import COLORS, INK, brief
from headstart.show.table import label
from headstart.show.view import View

Weights = NDArray[np.float32]
SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.1, "░"), (-1.0, " "))
WIDEST = 60  # tokens that a map may have in a terminal
LABELLED = 40  # tokens that a map may have in a figure with their names beside it


class AttentionData(TypedDict):
    kind: str
    sources: list[str]
    targets: list[str]
    weights: list[list[list[list[float]]]]  # (L, H, T, S)
    mean: list[list[list[float]]]  # (L, T, S), over heads
    rollout: NotRequired[list[list[list[float]]]]  # (L, T, S); self-attention only


class AttentionPayload(TypedDict):
    """Thousandths, as whole numbers."""

    targets: list[str]
    sources: list[str]
    heads: list[list[list[list[int]]]]  # (L, H, T, S)
    mean: list[list[list[int]]]  # (L, T, S)
    rollout: NotRequired[list[list[list[int]]]]


@dataclass(frozen=True, repr=False)
class AttentionMaps(View):
    """Self-attention if sources and targets are the same tokens, cross-attention otherwise."""

    name = "attention"

    sources: Sequence[str]
    targets: Sequence[str]
    weights: Weights  # (L, H, T, S); each row sums to 1
    allowed: NDArray[np.bool_] | None = None  # (T, S), False = behind the mask; None = everything may be seen
    cross: bool = False
    layer: int = 0  # the map that is shown first: 1 to L; 0 = the last
    head: str = "mean"  # mean, rollout, or 1 to H
    part: str = ""  # of a model that has several: encoder, decoder

    def __post_init__(self) -> None:
        layers, heads, targets, sources = self.weights.shape
        assert (targets, sources) == (len(self.targets), len(self.sources)), "a row a target, a column a source"
        if not 0 <= self.layer <= layers:
            raise UserError(f"There is no layer {self.layer}: this model has {layers}.")
        if self.head not in self.ways:
            ways = ", ".join(way for way in self.ways if not way.isdigit())
            raise UserError(f"There is no head '{self.head}': give 1 to {heads}, or {ways}.")

    @property
    def kind(self) -> str:
        return "cross-attention" if self.cross else f"{self.part} attention".strip()

    @property
    def ways(self) -> list[str]:
        """What can be shown of a layer: the mean over its heads, where it means something the rollout, each head."""
        heads = [str(h + 1) for h in range(self.weights.shape[1])]
        return ["mean", *([] if self.cross else ["rollout"]), *heads]

    @property
    def drawn(self) -> list[str]:
        """What a figure has of each layer: the heads first, as they are made; the mean of one head is that head."""
        heads = [way for way in self.ways if way.isdigit()]
        return [*heads, *(way for way in self.ways if not way.isdigit() and (way != "mean" or len(heads) > 1))]

    def map(self, layer: int, way: str) -> Weights:
        """The (T, S) map of a layer, counted from 1: of a head, the mean over heads, or the rollout up to there."""
        if way == "mean":
            return self.weights[layer - 1].mean(0)
        return self.rollout()[layer - 1] if way == "rollout" else self.weights[layer - 1, int(way) - 1]

    def rollout(self) -> Weights:
        """How much of each source reached each target by each layer, (L, T, S) (Abnar and Zuidema, 2020).

        Half of a token is what it was before, the other half what it looked at, averaged over heads.
        """
        reached = np.eye(len(self.targets), dtype=np.float32)
        found = []
        for layer in self.weights:
            reached = (0.5 * layer.mean(0) + 0.5 * np.eye(len(reached), dtype=np.float32)) @ reached
            found.append(reached)
        return np.stack(found)

    @property
    def first(self) -> int:
        """The layer that is shown first."""
        return self.layer or len(self.weights)

    @property
    def cells(self) -> Any:
        """The map that is shown first, as lists."""
        return self.map(self.first, self.head).tolist()

    def title(self, layer: int, way: str) -> str:
        heads = self.weights.shape[1]
        names = {"mean": f"mean of {heads} heads" if heads > 1 else "one head", "rollout": "rollout from the input"}
        return f"layer {layer} of {len(self.weights)}, {names.get(way, f'head {way}')}"

    def data(self) -> AttentionData:
        found: AttentionData = {
            "kind": self.kind,
            "sources": list(self.sources),
            "targets": list(self.targets),
            "weights": _rounded(self.weights),
            "mean": _rounded(self.weights.mean(1)),
        }
        if not self.cross:
            found["rollout"] = _rounded(self.rollout())
        return found

    def __str__(self) -> str:
        title = f"{self.kind}, {self.title(self.first, self.head)}"
        if max(len(self.sources), len(self.targets)) > WIDEST:
            return f"{title}: {len(self.targets)} × {len(self.sources)} tokens are too many for a terminal"
        names = [label(token) for token in self.targets]
        width = max(map(len, names), default=0)
        lines = [
            f"{title}: each row looks at the columns (░ from 0.1, ▒ 0.25, ▓ 0.5, █ 0.75"
            f"{'' if self.allowed is None else '; · may not be seen'})",
            "",
            " " * (width + 5) + " ".join(str((s + 1) % 10) for s in range(len(self.sources))),
        ]
        for t, row in enumerate(self.map(self.first, self.head)):
            cells = [self._shade(t, s, float(w)) for s, w in enumerate(row)]
            lines.append(f"{t + 1:3d} {names[t]:{width}s} {' '.join(cells)}".rstrip())
        if self.cross:
            lines.append("columns: " + " ".join(f"{s + 1} {label(token)}" for s, token in enumerate(self.sources)))
        return "\n".join(lines)

    def _shade(self, target: int, source: int, weight: float) -> str:
        if self.allowed is not None and not self.allowed[target, source]:
            return "·"
        return next(shade for least, shade in SHADES if weight >= least)

    def payload(self) -> AttentionPayload:
        """Thousandths: a page of a long text stays small."""
        found: AttentionPayload = {
            "targets": [label(token) for token in self.targets],
            "sources": [label(token) for token in self.sources],
            "heads": [[_thousandths(head) for head in layer] for layer in self.weights],
            "mean": [_thousandths(layer.mean(0)) for layer in self.weights],
        }
        if not self.cross:
            found["rollout"] = _thousandths(self.rollout())
        return found

    @property
    def alt(self) -> str:
        layers, heads, targets, sources = self.weights.shape
        return f"Attention of {layers} layers and {heads} heads, {targets} tokens looking at {sources}."

    @property
    def size(self) -> tuple[float, float]:
        layers, _, targets, sources = self.weights.shape
        cell = 0.055 if max(targets, sources) > LABELLED else 0.11  # inches
        panel_width, panel_height = max(0.9, cell * sources), max(0.9, cell * targets)
        names = max((len(brief(label(t), 12)) for t in self.targets), default=0)
        return panel_width * len(self.drawn) * 1.08 + 0.075 * names + 0.3, (panel_height + 0.2) * layers + 0.9

    def draw(self, figure: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colors = LinearSegmentedColormap.from_list("headstart", ["#ffffff", COLORS[0]]).with_extremes(bad="#d8dbe0")
        ways = self.drawn
        grid = figure.subplots(len(self.weights), len(ways), squeeze=False)
        figure.suptitle(
            f"{self.kind}: rows look at columns" + ("" if self.allowed is None else "; grey may not be seen"),
            x=0.01, ha="left", fontsize=8.5,
        )  # fmt: skip
        few = max(len(self.targets), len(self.sources)) <= LABELLED
        for layer, row in enumerate(grid, start=1):
            for axis, way in zip(row, ways, strict=True):
                seen = np.ma.masked_array(self.map(layer, way), False if self.allowed is None else ~self.allowed)
                axis.imshow(seen, cmap=colors, vmin=0, vmax=1, interpolation="nearest", aspect="auto")
                for side in axis.spines.values():
                    side.set(visible=True, edgecolor=INK, linewidth=0.4)
                axis.set(xticks=[], yticks=[])
                if layer == 1:
                    axis.set_title(f"head {way}" if way.isdigit() else way, fontsize=7.5, loc="center")
                if layer == len(grid) and few:
                    axis.set_xticks(range(len(self.sources)), [brief(label(s), 12) for s in self.sources])
                    axis.tick_params(axis="x", labelsize=5.5, rotation=90, length=0)
            row[0].set_ylabel(f"layer {layer}", fontsize=7.5)
            if few:
                row[0].set_yticks(range(len(self.targets)), [brief(label(t), 12) for t in self.targets])
                row[0].tick_params(axis="y", labelsize=5.5, length=0)


def causal_mask(tokens: int) -> NDArray[np.bool_]:
    """The causal (square) mask: position t sees only positions up to t."""
    return np.tri(tokens, dtype=np.bool_)


def _rounded(weights: Weights) -> Any:
    return np.round(weights.astype(np.float64), 6).tolist()


def _thousandths(weights: Weights) -> Any:
    return np.rint(1000 * weights).astype(int).tolist()
