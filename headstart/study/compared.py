"""Which arms of a study are compared with which. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headstart.study.plan import PROMPTED_ARMS, WITHOUT_LABELS
from headstart.study.taken import Taken


def compared(here: Sequence[Taken]) -> list[tuple[Taken, Taken]]:
    """Each arm with scratch and with TF-IDF, arms of one kind with each other, a tuned prompt with the prompt alone.

    Arms with a base are compared with each other where there is neither scratch nor TF-IDF.
    """
    scratch = [t for t in here if t.arm.kind == "scratch"]
    learned = [t for t in here if t.arm.base and t.arm.kind != "scratch"]
    linear = [t for t in here if t.arm.kind == "tfidf"]
    alone = not scratch and not linear
    pairs = [(t, s) for t in learned for s in scratch if _same_shape(t, s)]
    pairs += [(t, b) for t in [*learned, *scratch] for b in linear]
    pairs += [(a, b) for a, b in combinations(learned, 2) if alone or a.arm.kind == b.arm.kind]
    pairs += [(t, z) for t in learned for z in learned if not alone and _prompt_and_its_start(t, z)]
    return [(a, b) for a, b in pairs if not (a.random and b.random) or set(a.seeds) & set(b.seeds)]


def _prompt_and_its_start(a: Taken, b: Taken) -> bool:
    """Whether `a` is a prompt that was tuned on labels, and `b` the same base without any."""
    return a.arm.kind in PROMPTED_ARMS and b.arm.kind in WITHOUT_LABELS and a.arm.base == b.arm.base


def _same_shape(a: Taken, b: Taken) -> bool:
    return a.arm.base is not None and b.arm.base is not None and a.arm.base.shape == b.arm.base.shape
