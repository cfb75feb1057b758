"""Before and after: what training moved in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from headstart.show.picture import COLORS, brief
from headstart.show.table import label, table
from headstart.show.view import Guess, View


class LayerChangeData(TypedDict):
    name: str
    weights: float
    similarity: float | None
    attention: float | None


class TokenChangeData(TypedDict):
    token: str
    before: Guess
    after: Guess
    divergence: float


class ChangeData(TypedDict):
    before: str
    after: str
    texts: int
    places: int
    layers: list[LayerChangeData]
    tokens: list[TokenChangeData]


@dataclass(frozen=True)
class LayerChange:
    """How far one layer is from what it was."""

    name: str  # embedding, layer 1, ..., final
    weights: float  # |after - before| / |before|
    similarity: float | None  # linear CKA of what comes out of it, 1 = the same up to rotation and scale
    attention: (
        float | None
    )  # how much of the weight of a token's look went elsewhere, 0 to 1; mean over heads and tokens


@dataclass(frozen=True)
class TokenChange:
    """What the language head of the model before reads, in both, of what follows a token."""

    token: str
    before: tuple[str, float]  # the most probable next token and its probability
    after: tuple[str, float]
    divergence: float  # Jensen and Shannon's, nats; 0 to ln 2


@dataclass(frozen=True, repr=False)
class Change(View):
    name = "change"

    before: str
    after: str
    layers: Sequence[LayerChange]
    tokens: Sequence[TokenChange]  # of one text; none where no language head is left
    texts: int  # over which similarity and attention are averaged
    places: int  # tokens in them

    @property
    def moved(self) -> list[str]:
        return [layer.name for layer in self.layers if layer.weights]

    @property
    def summary(self) -> str:
        moved = ", ".join(self.moved) or "nothing"
        return f"from {self.before} to {self.after}: {moved} moved; similarity over {self.places} tokens of {self.texts} texts"

    def data(self) -> ChangeData:
        return {
            "before": self.before,
            "after": self.after,
            "texts": self.texts,
            "places": self.places,
            "layers": [
                {"name": c.name, "weights": c.weights, "similarity": c.similarity, "attention": c.attention}
                for c in self.layers
            ],
            "tokens": [
                {
                    "token": c.token,
                    "before": {"token": c.before[0], "probability": c.before[1]},
                    "after": {"token": c.after[0], "probability": c.after[1]},
                    "divergence": c.divergence,
                }
                for c in self.tokens
            ],
        }

    @property
    def layer_rows(self) -> list[list[str]]:
        return [[c.name, f"{100 * c.weights:.2f} %", _number(c.similarity), _number(c.attention)] for c in self.layers]

    @property
    def token_rows(self) -> list[list[str]]:
        return [[label(c.token), _guess(c.before), _guess(c.after), f"{c.divergence:.3f}"] for c in self.tokens]

    def __str__(self) -> str:
        text = f"{self.summary}\n\n{table(LAYER_HEADER, self.layer_rows, right=(1, 2, 3))}"
        if not self.tokens:
            return text
        return f"{text}\n\n{table(TOKEN_HEADER, self.token_rows, right=(3,))}"

    @property
    def layer_header(self) -> list[str]:
        return LAYER_HEADER

    @property
    def token_header(self) -> list[str]:
        return TOKEN_HEADER

    @property
    def alt(self) -> str:
        moved = ", ".join(f"{c.name} {100 * c.weights:.1f} %" for c in self.layers)
        return f"How far each layer moved: {moved}."

    @property
    def size(self) -> tuple[float, float]:
        return 7.2, 1.1 + 0.2 * len(self.layers)

    def draw(self, figure: Any) -> None:
        left, middle, right = figure.subplots(1, 3, sharey=True)
        places, names = range(len(self.layers)), [brief(c.name) for c in self.layers]
        left.barh(places, [100 * c.weights for c in self.layers], color=COLORS[0])
        middle.barh(places, [0 if c.similarity is None else 1 - c.similarity for c in self.layers], color=COLORS[2])
        right.barh(places, [c.attention or 0 for c in self.layers], color=COLORS[1])
        left.set_yticks(places, names)
        left.set(ylim=(len(names) - 0.4, -0.6), xlabel="weights, % of their norm")
        middle.set(xlabel="states, 1 − CKA")
        right.set(xlabel="attention moved")
        figure.suptitle(brief(f"{self.before} → {self.after}", 90), x=0.01, ha="left", fontsize=8.5)


LAYER_HEADER = ["layer", "weights moved", "similarity", "attention moved"]
TOKEN_HEADER = ["after", "next, before", "next, after", "divergence"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _guess(guess: tuple[str, float]) -> str:
    return f"{label(guess[0])} {guess[1]:.2f}"
