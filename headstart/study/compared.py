"""Which arms of a study are compared with which. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headstart.study.taken import Taken


def compared(here: Sequence[Taken]) -> list[tuple[Taken, Taken]]:
    """Each arm with scratch and with the linear baseline (TF-IDF, CRF), arms of one kind with each other, and an arm with what it adds something to.

    Arms with a base are compared with each other where there is neither scratch nor TF-IDF.
    """
    scratch = [t for t in here if t.arm.kind == "scratch"]
    learned = [t for t in here if t.arm.base and t.arm.kind != "scratch"]
    linear = [t for t in here if t.arm.row.linear]
    plain = [t for t in here if not t.arm.base and not t.arm.row.constant and not t.arm.row.linear]
    alone = not scratch and not linear
    pairs = [(t, s) for t in learned if not t.arm.row.joined for s in scratch if _same_shape(t, s)]
    pairs += [(t, b) for t in [*learned, *scratch, *plain] for b in linear]
    pairs += [(a, b) for a, b in combinations(learned, 2) if alone or a.arm.kind == b.arm.kind]
    pairs += [(a, b) for a in learned for b in learned if not alone and _same_but_for_one_thing(a, b)]
    return [(a, b) for a, b in pairs if not (a.random and b.random) or set(a.seeds) & set(b.seeds)]


def _same_but_for_one_thing(a: Taken, b: Taken) -> bool:
    """Whether `b` is `a` on the same base without TF-IDF, or, of what is asked in words, without labels."""
    return (a.arm.asked or a.arm.base) == b.arm.base and a.arm.row.partner == b.arm.kind


def _same_shape(a: Taken, b: Taken) -> bool:
    return a.arm.base is not None and b.arm.base is not None and a.arm.base.shape == b.arm.base.shape
