"""The probability of each label for a text; or the number that is predicted for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.show.picture import COLORS, brief
from headstart.show.table import table
from headstart.show.view import View


@dataclass(frozen=True, repr=False)
class LabelProbabilities(View):
    name = "labels"

    probabilities: Mapping[str, float]  # most probable first
    measure: str = "probability"  # or "prediction", of a number

    def data(self) -> dict[str, float]:
        return dict(self.probabilities)

    def __str__(self) -> str:
        return table(
            ["label", self.measure], [[name, f"{p:.4f}"] for name, p in self.probabilities.items()], right=(1,)
        )

    @property
    def alt(self) -> str:
        return "Labels: " + ", ".join(f"{name} {p:.2f}" for name, p in self.probabilities.items()) + "."

    @property
    def size(self) -> tuple[float, float]:
        return 5.0, 0.5 + 0.2 * len(self.probabilities)

    def draw(self, figure: Any) -> None:
        axis = figure.subplots()
        names = list(self.probabilities)
        axis.barh(range(len(names)), list(self.probabilities.values()), color=COLORS[0], height=0.7)
        axis.set_yticks(range(len(names)), [f"{brief(n, 30)} {p:.2f}" for n, p in self.probabilities.items()])
        axis.set(ylim=(len(names) - 0.5, -0.5), xlabel=self.measure)
        if self.measure == "probability":
            axis.set_xlim(0, 1)
