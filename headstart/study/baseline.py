"""What an arm without a run predicts of the test rows. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.targets.target import Encoded, Outputs, Target, Written


@dataclass(frozen=True)
class Baseline:
    name: str
    target: Target  # what decides
    outputs: Outputs  # of the test rows
    seconds: float
    c: float | None = None
    parameters: int = 0
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what else was chosen or fitted, for result.json

    @property
    def answers(self) -> Encoded:
        return self.target.answers(self.outputs)

    @property
    def predictions(self) -> list[Written]:
        return [self.target.written(answer) for answer in self.answers]

    @property
    def probabilities(self) -> list[dict[str, float]]:
        """Of the test rows, by name."""
        return [self.target.probabilities(row) for row in self.outputs.tolist()]
