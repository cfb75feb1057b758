"""The verbs that train: pretrain and finetune here; translate train and match train go the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.cli.app import app, verb
from headstart.cli.flags import FLAGS, Given, flags_of
from headstart.cli.settings import file_settings, nested_settings
from headstart.cli.summary import SUMMARIES, show_estimate
from headstart.cli.terminal import show_json, show_notes
from headstart.errors import ConfigError, UserError


def train(job: str, given: Given) -> None:
    """Run a job with the settings that the flags give, and print what came out."""
    run(job_config(job, given, given.settings()), given)


def job_config(job: str, given: Given, settings: dict[str, Any]) -> Any:
    """The settings of a job: those given; with --resume, laid over those of the run, which has the last word."""
    from headstart.runs.kinds import KINDS
    from headstart.runs.run import Run
    from headstart.schema import is_given, merge, parse

    kind, file, assignments = KINDS[job].config, given["--config"], given["--set"]
    if given["--resume"] and file:
        raise UserError("A resumed run keeps its own settings. Leave out --config.")
    stored = file_settings(kind, file) if file else {}
    if isinstance(stored.get("train"), dict) and is_given(nested_settings(settings, assignments), "epochs"):
        stored["train"].pop("steps", None)  # --epochs beside a file says anew how long
    nested = nested_settings(settings, assignments, stored)
    if given["--resume"]:
        asked = Run(Path(given["--out"])).asked(kind).model_dump()
        return parse(kind, merge(asked, nested), "the settings", FLAGS)
    missing = [flag.needed for flag, _ in flags_of(given.verb) if flag.needed and not is_given(nested, flag.setting)]
    if missing:
        raise UserError(f"Missing {' and '.join(missing)}.")
    return parse(kind, nested, file or "the settings", FLAGS)


def run(config: Any, given: Given) -> None:
    """Train into --out, or report with --dry-run what that would cost."""
    if given["--dry-run"]:
        show_estimate(config, given["--resume"], given["--json"])
        return
    from headstart.cli.processes import train_here

    result = train_here(config, given["--out"], given["--resume"], given["--quiet"], given["--processes"])
    if given["--json"]:
        show_json(result)
    else:
        SUMMARIES[config.job](result, config)


@verb(app, "pretrain")
def pretrain(given: Given) -> None:
    """Train a tokenizer and a language model on CORPUS. Or continue training one."""
    from headstart.schema import is_given

    settings, minutes, resume = given.settings(), given["--minutes"], given["--resume"]
    if settings["base"]:
        settings["context"] = settings.pop("model.context")
    if minutes is not None and is_given(nested_settings(settings, given["--set"]), "train.steps"):
        raise UserError("--minutes and --steps both set the length of the run. Give one of them.")
    if settings["objective"] == "auto":
        config, minutes = _by_recipe(given, settings)
    else:
        config = job_config("pretrain", given, settings)
        if config.base and not resume:
            _refuse_settled(given, config.base)
    if minutes is not None and resume:
        show_notes(["A resumed run keeps its number of steps; --minutes has no effect."], given["--quiet"])
    elif minutes is not None:
        from headstart.jobs.estimate import within_minutes
        from headstart.runs.run import Run

        if not given["--dry-run"]:
            Run(Path(given["--out"])).must_be_free()
        preparing = f"Preparing everything once, to see how many steps fit into {minutes:g} minutes ..."
        show_notes([preparing], given["--quiet"])
        config = within_minutes(config, minutes)
    run(config, given)


def _by_recipe(given: Given, settings: dict[str, Any]) -> tuple[Any, float | None]:
    """The settings that --objective auto chooses beside those that are given, and the minutes to train."""
    from headstart.config import PretrainConfig
    from headstart.jobs.recipe import MINUTES, beside, objective_for, recipe_for
    from headstart.schema import is_given

    file = given["--config"]
    named = nested_settings(settings, given["--set"], file_settings(PretrainConfig, file) if file else None)
    settings["objective"] = objective_for(named)
    config = job_config("pretrain", given, settings)
    if given["--resume"]:
        return config, given["--minutes"]
    if config.base:
        _refuse_settled(given, config.base)
    chosen = beside(named, recipe_for(config))
    config = job_config("pretrain", given, settings | {name: choice.value for name, choice in chosen.items()})
    show_notes([f"Chosen: {'; '.join(choice.why for choice in chosen.values())}."], given["--quiet"])
    timed = given["--minutes"] is not None or is_given(named, "train.steps")
    return config, given["--minutes"] if timed else MINUTES


@verb(app, "finetune")
def finetune(given: Given) -> None:
    """Swap the head of a base for a classifier and train it on DATA."""
    from headstart.shapes import PRESETS

    settings = given.settings()
    if settings["base"] in PRESETS:
        settings["model.preset"] = settings["base"]
    else:
        settings["context"] = settings.pop("model.context")
    config = job_config("finetune", given, settings)
    if config.base not in PRESETS and not given["--resume"]:
        _refuse_settled(given, config.base)
    run(config, given)


def _refuse_settled(given: Given, base: str) -> None:
    """What a base has settled cannot be asked for."""
    if refused := given.settled():
        raise ConfigError(f"{', '.join(refused)}: the base {given['--base'] or base} settles this. Leave it out.")
