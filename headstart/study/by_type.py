"""F1 of each type of what is predicted, where a row may have several: entities, tags, labels. No torch."""

from __future__ import annotations

import numpy as np

from headstart.study.taken import Taken
from headstart.targets.target import Encoded, Target


def f1_by_type(target: Target, truth: Encoded, t: Taken) -> dict[str, float | None]:
    """The mean over seeds, for each type of entity, tag or label that the test rows have."""
    seeds = [target.by_type(truth, said) for said in t.said]
    names = sorted({name for found in seeds for name, score in found.items() if score["rows"]})
    scores = {name: [found[name]["f1"] or 0.0 for found in seeds if name in found] for name in names}
    return {name: float(np.mean(of_seeds)) for name, of_seeds in scores.items()}
