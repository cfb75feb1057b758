"""The settings of a job out of a file, flags and --set; the later wins. Defaults live in config.py alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The flag that gives a setting. Messages name it, and a test holds what --help says of it against config.py.
FLAGS = {
    "objective": "--objective",
    "teacher": "--teacher",
    "start": "--start",
    "vectors": "--vectors",
    "samples": "--sample",
    "base": "--base",
    "allow_pickle": "--allow-pickle",
    "init": "--init",
    "scope": "--train",
    "pool": "--pool",
    "long": "--long",
    "epochs": "--epochs",
    "class_weights": "--class-weights",
    "strict_leakage": "--strict-leakage",
    "data.paths": "CORPUS",
    "data.unit": "--unit",
    "data.train": "DATA",
    "data.valid": "--valid",
    "data.test": "--test",
    "data.labels": "--labels",
    "data.text_column": "--text-column",
    "data.label_column": "--label-column",
    "data.skip_blank": "--skip-blank",
    "data.clean_labels": "--clean-labels",
    "data.any_labels": "--any-labels",
    "split": "--split",
    "data.pairs": "PAIRS",
    "beam": "--beam",
    "data.source_column": "--source-column",
    "data.target_column": "--target-column",
    "data.hold_out": "--hold-out",
    "source.kind": "--level",
    "target.kind": "--target-level",
    "model.kind": "--model",
    "model.hidden": "--hidden",
    "text": "--text",
    "image": "--image",
    "data.images": "--images",
    "data.file_column": "--file-column",
    "data.caption_column": "--caption-column",
    "data.group_column": "--group-column",
    "data.strict": "--strict",
    "data.encoding": "--encoding",
    "data.on_bad_bytes": "--on-bad-bytes",
    "data.strip_nul": "--strip-nul",
    "data.max_line_bytes": "--max-line-bytes",
    "tokenizer.kind": "--tokenizer",
    "tokenizer.vocab": "--vocab",
    "model.preset": "--preset",
    "model.size": "--size",
    "model.context": "--context",
    "context": "--context",
    "train.steps": "--steps",
    "train.batch_size": "--batch-size",
    "train.lr": "--lr",
    "train.seed": "--seed",
    "train.device": "--device",
    "train.threads": "--threads",
}


def nested_settings(
    given: dict[str, Any], settings: list[str] | None, from_file: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Tables of settings: those of the file, then `given` by dotted name (None is not given), then each `a.b=c`."""
    from headstart.schema import merge, with_override

    nested: dict[str, Any] = from_file or {}
    for name, value in given.items():
        if value is not None:
            for part in reversed(name.split(".")):
                value = {part: value}
            nested = merge(nested, value)
    for assignment in settings or []:
        nested = with_override(nested, assignment)
    return nested


def has(settings: dict[str, Any], name: str) -> bool:
    """Whether a setting is given, by its dotted name."""
    first, _, rest = name.partition(".")
    value = settings.get(first)
    return has(value, rest) if rest and isinstance(value, dict) else value is not None and not rest


def placed(path: str) -> str:
    """Where a path or the name of a pack is, from wherever the run is resumed."""
    from headstart.hub.packs import located

    return str(Path(located(path)).absolute())


def placed_base(base: str) -> str:
    """A run by its whole path; a preset, or what is not there, as it stands."""
    from headstart.shapes import PRESETS

    return str(Path(base).absolute()) if base not in PRESETS and os.path.exists(base) else base


def file_settings(kind: Any, file: str) -> dict[str, Any]:
    """The settings of a TOML file. Its paths mean what they would mean on the command line."""
    from headstart.errors import ConfigError
    from headstart.schema import parse, read_toml

    settings = read_toml(Path(file))
    job = kind.model_fields["job"].default
    if settings.get("job", job) != job:
        raise ConfigError(f"{file} holds the settings of headstart {settings['job']}, not of headstart {job}.")
    model, data = settings.get("model"), settings.get("data")
    if isinstance(model, dict) and model.get("vocab"):  # only a run knows that: this file is one's config.toml
        return own_settings(parse(kind, settings, file))
    _place_data(data)
    _place_bases(settings)
    return settings


def study_settings(file: Path) -> dict[str, Any]:
    """The settings of a study in a TOML file, its paths as `file_settings` has them."""
    from headstart.schema import read_toml

    settings = read_toml(file)
    pretraining = settings.get("pretrain")
    _place_data(settings.get("data"))
    if isinstance(pretraining, dict):
        _place_data(pretraining.get("data"))
        _place_bases(pretraining)
    if isinstance(settings.get("bases"), list):
        settings["bases"] = [placed_base(base) if isinstance(base, str) else base for base in settings["bases"]]
    return settings


def _place_bases(settings: dict[str, Any]) -> None:
    for name in ("base", "teacher", "text", "image", "vectors"):
        if isinstance(settings.get(name), str):
            settings[name] = placed_base(settings[name])


def _place_data(data: Any) -> None:
    if not isinstance(data, dict):
        return
    for name in ("train", "valid", "test", "pairs", "images"):
        if isinstance(data.get(name), str):
            data[name] = placed(data[name])
    for name in ("paths", "pairs", "valid", "test"):
        if isinstance(data.get(name), list):
            data[name] = [placed(path) if isinstance(path, str) else path for path in data[name]]


def own_settings(config: Any) -> dict[str, Any]:
    """The settings of a run without all that followed from its data and its other settings.

    Another run with them is the same run; and --size, --epochs or --objective beside them change what depends on
    these too.
    """
    from headstart.config import usual_rate
    from headstart.shapes import PRESETS, usual_pool

    settings = config.model_dump(exclude_none=True)
    train, model = settings["train"], settings["model"]
    steps, every = train["steps"], train["eval_every"]
    del model["vocab"]
    if train["checkpoint_every"] == every:
        del train["checkpoint_every"]
    if config.job == "pretrain" and every == max(1, steps // 10):
        del train["eval_every"]
    if config.job == "translate":
        del model["target_vocab"], model["longest"]
        if steps == config.epochs * every:
            del train["steps"], train["eval_every"]
        if config.target == config.source:
            del settings["target"]
    if config.job == "finetune":
        if steps == config.usual_steps(every):
            del train["steps"], train["eval_every"]
        if train["lr"] == usual_rate(config.model, config.scope):
            del train["lr"]
        if config.pool == usual_pool(config.model):
            del settings["pool"]
    if config.base and config.base not in PRESETS:
        del settings["model"]
    whole = type(config).model_validate(settings)
    for names in list(_leaves(settings)):
        less = _without(settings, names)
        if _is(type(config), less, whole):
            settings = less
    return settings


def _leaves(settings: dict[str, Any]) -> Iterator[list[str]]:
    for key, value in settings.items():
        yield from ([key, *rest] for rest in _leaves(value)) if isinstance(value, dict) else [[key]]


def _without(settings: dict[str, Any], names: list[str]) -> dict[str, Any]:
    first, *rest = names
    return {
        key: _without(value, rest) if rest and key == first else value
        for key, value in settings.items()
        if rest or key != first
    }


def _is(kind: Any, settings: dict[str, Any], whole: Any) -> bool:
    from pydantic import ValidationError

    try:
        return bool(kind.model_validate(settings) == whole)
    except ValidationError:
        return False
