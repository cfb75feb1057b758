"""Which bases of a study can be asked for label words: those with a language head. Torch is loaded where an arm asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.errors import ConfigError
from headstart.runs.watch import Watch
from headstart.study.arms import arm_kind
from headstart.study.plan import BaseRun, StudyConfig


def asking_arms(cfg: StudyConfig) -> list[str]:
    return [arm for arm in cfg.trained if arm_kind(arm).asks]


def with_language_heads(cfg: StudyConfig, bases: Sequence[BaseRun]) -> list[BaseRun]:
    """The bases, with whether each has a language head, where an arm needs to know."""
    if not asking_arms(cfg):
        return list(bases)
    from headstart.bases.at_hand import has_language_head

    trusted = bool(cfg.finetune.get("allow_pickle"))
    return [replace(base, language_head=has_language_head(str(base.path), trusted)) for base in bases]


def refuse_without_language_head(cfg: StudyConfig, bases: Sequence[BaseRun], watch: Watch) -> None:
    """An error if an arm asks for label words and no base has any; a note of the bases that are not asked."""
    asking, without = asking_arms(cfg), ", ".join(base.name for base in bases if not base.language_head)
    if asking and not any(base.language_head for base in bases):
        raise ConfigError(
            f"No base has a language head ({without}), which the arm {asking[0]} needs. Leave out the arm, or add a "
            "language model to the bases, such as --base smollm2."
        )
    if without:
        watch.note(f"Note: {', '.join(asking)} left out for {without}: no language head.")
