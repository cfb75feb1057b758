"""What a classifier used: how much each token spoke for a label, in one text and over the texts of a class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from headstart.show.picture import COLORS, INK, brief
from headstart.show.table import label as visible
from headstart.show.table import table
from headstart.show.view import View

BAR = 12  # characters of the longest bar in a terminal
STRONGEST = 8  # tokens shown for a label, and as many against it


class TokenAttributionData(TypedDict):
    token: str
    evidence: float
    occlusion: float


class AttributionData(TypedDict):
    label: str
    log_odds: float
    baseline: str
    difference: float
    gap: float
    steps: int
    complete: bool
    agreement: float | None
    tokens: list[TokenAttributionData]


class TokenEvidenceData(TypedDict):
    token: str
    mean: float
    places: int


class ClassEvidenceData(TypedDict):
    texts: int
    widest_gap: float
    steps: int
    incomplete: int
    tokens: list[TokenEvidenceData]


@dataclass(frozen=True, repr=False)
class Attribution(View):
    """Log-odds of a label, shared out among the tokens of a text; what is above 0 speaks for the label."""

    name = "attribution"

    label: str
    tokens: Sequence[str]
    evidence: Sequence[float]  # by integrated gradients; sums to `difference`, but for `gap`
    occlusion: Sequence[float]  # what the label loses when just this token is replaced
    log_odds: float  # of the label for this text
    baseline: str  # the token that stands for no token
    difference: float  # log-odds of the text less those of the text with every token replaced
    gap: float  # how far the evidence is from summing to the difference
    steps: int  # points on the way from one to the other
    unit: str = "log-odds"

    @property
    def agreement(self) -> float | None:
        """The correlation of evidence and occlusion over tokens; None where one of them does not vary."""
        return _correlation(self.evidence, self.occlusion)

    @property
    def complete(self) -> bool:
        return abs(self.gap) < tolerance(self.difference)

    @property
    def summary(self) -> str:
        agreement = "" if self.agreement is None else f"; correlation with occlusion {self.agreement:.2f}"
        return (
            f"evidence for '{self.label}' in {self.unit}, by integrated gradients from {self.log_odds - self.difference:+.3f} "
            f"(every token {self.baseline}) to {self.log_odds:+.3f}: sum {sum(self.evidence):+.3f}, gap {self.gap:+.4f} "
            f"after {self.steps} steps"
            f"{'' if self.complete else ' (too large to be relied on)'}{agreement}"
        )

    def data(self) -> AttributionData:
        return {
            "label": self.label,
            "log_odds": self.log_odds,
            "baseline": self.baseline,
            "difference": self.difference,
            "gap": self.gap,
            "steps": self.steps,
            "complete": self.complete,
            "agreement": self.agreement,
            "tokens": [
                {"token": t, "evidence": e, "occlusion": o}
                for t, e, o in zip(self.tokens, self.evidence, self.occlusion, strict=True)
            ],
        }

    @property
    def most(self) -> float:
        """The strongest evidence, for or against."""
        return max(map(abs, self.evidence), default=0.0) or 1.0

    def __str__(self) -> str:
        rows = [
            [visible(t), f"{e:+.3f}", f"{o:+.3f}", _bar(e / self.most)]
            for t, e, o in zip(self.tokens, self.evidence, self.occlusion, strict=True)
        ]
        header = ["token", "evidence", "occlusion", f"{'against':>{BAR}s} | for"]
        return f"{self.summary}\n\n{table(header, rows, right=(1, 2))}"

    @property
    def alt(self) -> str:
        ranked = sorted(zip(self.evidence, self.tokens, strict=True), reverse=True)
        best = ", ".join(f"{visible(t)} {e:+.2f}" for e, t in ranked[:3])
        return f"Evidence of each token for {self.label}; the strongest: {best}."

    @property
    def size(self) -> tuple[float, float]:
        return 6.0, 0.9 + 0.16 * len(self.tokens)

    def draw(self, figure: Any) -> None:
        axis = figure.subplots()
        places = range(len(self.tokens))
        axis.barh(places, self.evidence, color=[COLORS[0] if e > 0 else COLORS[1] for e in self.evidence], height=0.75)
        axis.plot(self.occlusion, places, "|", color=INK, markersize=7, label="occlusion")
        axis.axvline(0, color=INK, linewidth=0.6)
        axis.set_yticks(places, [brief(visible(t), 20) for t in self.tokens])
        axis.set(ylim=(len(self.tokens) - 0.4, -0.6), xlabel=f"evidence for {brief(self.label)}, {self.unit}")
        axis.legend(loc="best")


@dataclass(frozen=True)
class TokenEvidence:
    token: str
    mean: float  # evidence for the label, averaged over where it stands
    places: int


@dataclass(frozen=True)
class ClassEvidence:
    """The tokens that spoke for and against a label in the texts that have it."""

    label: str
    texts: int
    tokens: Sequence[TokenEvidence]  # strongest evidence for the label first
    widest_gap: float
    steps: int  # most that a text took
    incomplete: int = 0  # texts whose gap was too large
    unit: str = "log-odds"

    @property
    def strongest(self) -> list[TokenEvidence]:
        """The strongest tokens for the label and against it."""
        return [t for t in self.tokens if t.mean > 0][:STRONGEST] + [t for t in self.tokens if t.mean <= 0][-STRONGEST:]

    @property
    def rows(self) -> list[list[str]]:
        return [[visible(t.token), f"{t.mean:+.3f}", str(t.places)] for t in self.strongest]

    @property
    def summary(self) -> str:
        beyond = f" (too large in {self.incomplete} of them)" if self.incomplete else ""
        return (
            f"mean evidence for '{self.label}' in {self.texts} texts that have this label, {self.unit} per token; widest gap "
            f"{self.widest_gap:.4f}{beyond}, {self.steps} steps at most"
        )


@dataclass(frozen=True, repr=False)
class ClassAttribution(View):
    """What a classifier used for each label, averaged over the texts of a data set that have it."""

    name = "classes"

    classes: Sequence[ClassEvidence]

    def data(self) -> dict[str, ClassEvidenceData]:
        return {
            found.label: {
                "texts": found.texts,
                "widest_gap": found.widest_gap,
                "steps": found.steps,
                "incomplete": found.incomplete,
                "tokens": [{"token": t.token, "mean": t.mean, "places": t.places} for t in found.tokens],
            }
            for found in self.classes
        }

    def __str__(self) -> str:
        header = ["token", "evidence", "places"]
        return "\n\n".join(f"{found.summary}\n\n{table(header, found.rows, right=(1, 2))}" for found in self.classes)

    @property
    def alt(self) -> str:
        return f"The tokens that spoke most for and against {', '.join(found.label for found in self.classes)}."

    @property
    def size(self) -> tuple[float, float]:
        longest = max((len(found.strongest) for found in self.classes), default=0)
        return 3.4 * len(self.classes), 0.9 + 0.16 * longest

    def draw(self, figure: Any) -> None:
        for axis, found in zip(figure.subplots(1, len(self.classes), squeeze=False)[0], self.classes, strict=True):
            means = [t.mean for t in found.strongest]
            axis.barh(range(len(means)), means, color=[COLORS[0] if m > 0 else COLORS[1] for m in means], height=0.75)
            axis.axvline(0, color=INK, linewidth=0.6)
            axis.set_yticks(range(len(means)), [f"{brief(visible(t.token), 16)} ×{t.places}" for t in found.strongest])
            axis.set(ylim=(len(means) - 0.4, -0.6), xlabel=f"mean evidence, {found.unit}", title=brief(found.label))


def tolerance(difference: float) -> float:
    """How wide a gap may be: 1 % of the difference, or of 0.1 where that is smaller."""
    return 0.01 * max(abs(difference), 0.1)


def _bar(share: float) -> str:
    """A bar of up to BAR characters to the left or right of a middle."""
    length = round(abs(share) * BAR)
    return f"{'█' * length:>{BAR}s} |" if share < 0 else f"{'':{BAR}s} | {'█' * length}"


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / spread if spread else None
