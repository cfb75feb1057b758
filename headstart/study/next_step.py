"""What to do with the labels that there are, where a prompt was among the arms. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from headstart.quantities import signed
from headstart.study.arms import ArmKind
from headstart.study.results import ArmResult, Results


def mean_of(arm: ArmResult) -> float:
    assert arm.mean is not None, f"{arm.name} was gathered from finished cells"
    return arm.mean


def next_step(results: Results, kinds: Mapping[str, ArmKind]) -> str:
    """The arm to use: of those that give a model, the one with the highest mean; another that is higher is named too."""
    here = results.at(results.all_labels)
    highest = max(here, key=mean_of)
    best = max((arm for arm in here if kinds[arm.name].keeps_model), key=mean_of)
    without = (
        "" if highest.name == best.name else f"{highest.name} has the highest mean, but gives no model; of the others, "
    )
    if not best.labels:
        reason = "" if without else "; the mean of no arm that was trained on these labels is higher"
        return f"Next: {without}use {best.name}{reason}"
    said = f"Next: {without}use {best.name}" + ("" if without else ", which has the highest mean")
    curve = sorted((arm.labels, mean_of(arm)) for arm in results.arms if arm.name == best.name)
    if len(curve) > 1:
        (fewer, before), (_, now) = curve[-2:]
        said += f"; with {fewer:,} labels it had {signed(100 * (before - now))} points"
    return said
