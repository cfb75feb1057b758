"""How sure a language model was of every token of a text, and what it expected instead."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from headstart.show.picture import COLORS, INK, brief
from headstart.show.table import label, table
from headstart.show.view import Guess, View

COLUMNS = 8  # places beside each other in a figure
STRONGEST = 8.0  # nats; what surprises more is marked no more strongly


class BeliefData(TypedDict):
    temperature: float
    probability: float | None
    entropy: float
    top: list[float]


class PlaceData(TypedDict):
    """One token of a text; what is not required is missing where nothing was predicted."""

    token: str
    id: int | None
    generated: bool
    probability: NotRequired[float | None]
    surprise: NotRequired[float | None]
    rank: NotRequired[int | None]
    entropy: NotRequired[float]
    top: NotRequired[list[Guess]]
    temperatures: NotRequired[list[BeliefData]]


class ProbabilitiesData(TypedDict):
    temperature: float
    hidden_in_turn: bool
    predicted: int
    surprise: float | None
    perplexity: float | None
    tokens: list[PlaceData]


class BeliefPayload(TypedDict):
    p: float | None
    entropy: float
    top: tuple[float, ...]


class ProbabilitiesPayload(TypedDict):
    temperatures: tuple[float, ...]
    strongest: float
    places: list[list[BeliefPayload]]


@dataclass(frozen=True)
class Belief:
    """What a model believed of one place at one temperature."""

    probability: float | None  # of the token that stands there; None where there is none
    entropy: float  # nats
    top: tuple[float, ...]  # the probabilities of the most probable tokens


@dataclass(frozen=True)
class Place:
    """One token of a text, and what was expected in its place."""

    token: str  # empty: the place after the text
    id: int | None
    rank: int | None  # of the token among all, 1 = the most probable
    top: tuple[str, ...]  # the most probable tokens, most probable first
    beliefs: tuple[Belief, ...]  # one a temperature; none where nothing was predicted, as at the start of a text
    generated: bool = False


@dataclass(frozen=True, repr=False)
class TokenProbabilities(View):
    name = "probabilities"

    places: tuple[Place, ...]
    temperatures: tuple[float, ...]
    temperature: float  # the one that is shown; one of `temperatures`
    hidden: bool = False  # each token was hidden in turn and guessed from both sides

    def belief(self, place: Place) -> Belief | None:
        return place.beliefs[self.temperatures.index(self.temperature)] if place.beliefs else None

    def probability(self, place: Place) -> float | None:
        belief = self.belief(place)
        return belief.probability if belief else None

    @property
    def predicted(self) -> list[float]:
        """The probabilities of the tokens that were predicted."""
        return [p for p in map(self.probability, self.places) if p is not None]

    @property
    def surprise(self) -> float | None:
        """Nats per token, on average; None where no token was predicted."""
        found = [surprise(p) for p in self.predicted]
        return sum(found) / len(found) if found else None

    @property
    def perplexity(self) -> float | None:
        return None if self.surprise is None else math.exp(min(self.surprise, 700.0))

    @property
    def summary(self) -> str:
        way = "each token hidden in turn" if self.hidden else "each token from those before it"
        heat = "" if self.temperature == 1 else f", temperature {self.temperature:g}"
        if self.surprise is None:
            return f"nothing to predict{heat}"
        return (
            f"{len(self.predicted)} tokens predicted, {way}{heat}: {self.surprise:.3f} nats per token, "
            f"perplexity {self.perplexity:.2f}"
        )

    def data(self) -> ProbabilitiesData:
        return {
            "temperature": self.temperature,
            "hidden_in_turn": self.hidden,
            "predicted": len(self.predicted),
            "surprise": self.surprise,
            "perplexity": self.perplexity,
            "tokens": [self._place_data(place) for place in self.places],
        }

    def _place_data(self, place: Place) -> PlaceData:
        belief = self.belief(place)
        if belief is None:
            return {"token": place.token, "id": place.id, "generated": place.generated}
        p = belief.probability
        return {
            "token": place.token,
            "id": place.id,
            "generated": place.generated,
            "probability": p,
            "surprise": None if p is None else surprise(p),
            "rank": place.rank,
            "entropy": belief.entropy,
            "top": [{"token": t, "probability": q} for t, q in zip(place.top, belief.top, strict=True)],
            "temperatures": [
                {"temperature": t, "probability": b.probability, "entropy": b.entropy, "top": list(b.top)}
                for t, b in zip(self.temperatures, place.beliefs, strict=True)
            ],
        }

    def __str__(self) -> str:
        rows = []
        for place in self.places:
            belief = self.belief(place)
            if belief is None:
                rows.append([_name(place), "", "", "", "", ""])
                continue
            p = belief.probability
            cells = ["", "", ""] if p is None else [f"{p:.4f}", f"{surprise(p):.2f}", str(place.rank)]
            best = "  ".join(f"{label(t)} {q:.2f}" for t, q in zip(place.top, belief.top, strict=True))
            rows.append([_name(place), *cells, f"{belief.entropy:.2f}", best])
        header = ["token", "probability", "surprise", "rank", "entropy", "most probable"]
        return f"{self.summary}\n\n{table(header, rows, right=(1, 2, 3, 4))}"

    @property
    def columns(self) -> list[tuple[int, Place, Belief]]:
        """The places at which something was predicted, with their numbers."""
        return [(i, place, belief) for i, place in enumerate(self.places) if (belief := self.belief(place))]

    @property
    def most(self) -> int:
        return max((len(place.top) for place in self.places), default=0)

    def strength(self, probability: float) -> float:
        """How strongly a token is marked, 0 to 1."""
        return min(1.0, surprise(probability) / STRONGEST)

    def payload(self) -> ProbabilitiesPayload:
        return {
            "temperatures": self.temperatures,
            "strongest": STRONGEST,
            "places": [
                [{"p": b.probability, "entropy": b.entropy, "top": b.top} for b in place.beliefs]
                for place in self.places
            ],
        }

    @property
    def alt(self) -> str:
        return f"The most probable tokens at each place of a text; {self.summary}."

    @property
    def _bands(self) -> list[list[tuple[int, Place, Belief]]]:
        return [self.columns[i : i + COLUMNS] for i in range(0, len(self.columns), COLUMNS)]

    @property
    def size(self) -> tuple[float, float]:
        return 0.95 * min(COLUMNS, max(1, len(self.columns))) + 0.6, 0.23 * (self.most + 1.6) * len(self._bands) + 0.5

    def draw(self, figure: Any) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Rectangle

        figure.suptitle(self.summary, x=0.01, ha="left", fontsize=8.5)
        columns, rows = min(COLUMNS, max(1, len(self.columns))), self.most
        for axis, band in zip(
            figure.subplots(max(1, len(self._bands)), 1, squeeze=False)[:, 0], self._bands, strict=False
        ):
            for x, (_, place, belief) in enumerate(band):
                p = belief.probability
                head = _name(place) if p is None else f"{brief(_name(place), 10)} {p:.2f}"
                axis.text(x + 0.5, -0.5, head, ha="center", va="center", fontsize=7.5, fontweight="bold")
                for y, (token, q) in enumerate(zip(place.top, belief.top, strict=True)):
                    edge = {"edgecolor": INK, "linewidth": 1.0} if y + 1 == place.rank else {"linewidth": 0}
                    shade = (*to_rgb(COLORS[0]), 0.72 * q)
                    axis.add_patch(Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, facecolor=shade, **edge))
                    text = f"{brief(label(token), 10)} {q:.2f}"
                    axis.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7)
            axis.set(xlim=(0, columns), ylim=(rows, -1), xticks=[])
            axis.set_yticks([y + 0.5 for y in range(rows)], [str(y + 1) for y in range(rows)])
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)


def surprise(probability: float) -> float:
    """Nats: how unexpected the token was."""
    return -math.log(max(probability, sys.float_info.min))


def _name(place: Place) -> str:
    return label(place.token) if place.token else "(next)"
