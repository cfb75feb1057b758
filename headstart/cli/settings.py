"""The settings of a job out of a file, flags and --set; the later wins. Defaults live in config.py alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.errors import ConfigError, UserError

if TYPE_CHECKING:
    from headstart.config import JobConfig


def nested_settings(
    given: dict[str, Any], settings: list[str] | None, from_file: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Tables of settings: those of the file, then `given` by dotted name (None is not given), then each `a.b=c`."""
    from headstart.schema import merge, nested, with_override

    tables = merge(from_file or {}, nested({name: value for name, value in given.items() if value is not None}))
    for assignment in settings or []:
        tables = with_override(tables, assignment)
    return tables


def placed(path: str) -> str:
    """Where a path or the name of a pack is, from wherever the run is resumed."""
    from headstart.hub.packs import located

    return str(Path(located(path)).absolute())


def placed_base(base: str) -> str:
    """A run by its whole path; a preset, or what is not there, as it stands."""
    from headstart.shapes import PRESETS

    return str(Path(base).absolute()) if base not in PRESETS and os.path.exists(base) else base


def placed_tokenizer(kind: str) -> str:
    """A file or a run by its whole path; a kind, or a pack, as it stands."""
    from headstart.hub.pack_contents import PACKS
    from headstart.text.vocabulary import KINDS

    return str(Path(kind).absolute()) if kind not in (*KINDS, *PACKS) and os.path.exists(kind) else kind


def label_count(word: str) -> int:
    """A number of labels; 0 is all of them."""
    if word != "all" and not word.isdecimal():
        raise UserError(f"--labels: '{word}' is neither a whole number nor all.")
    return 0 if word == "all" else int(word)


def template(word: str) -> str:
    """A prompt; a shell has no easy way to write a line break."""
    return word.replace("\\n", "\n")


def label_words(words: str) -> dict[str, str]:
    """
    >>> label_words("neg=bad, pos=good")
    {'neg': 'bad', 'pos': 'good'}
    """
    pairs = [pair.partition("=") for pair in words.split(",")]
    for label, sign, word in pairs:
        if not (sign and label.strip() and word.strip()):
            raise UserError(f"--label-words: '{label}{sign}{word}' is not LABEL=WORD. Example: neg=bad,pos=good.")
    return {label.strip(): word.strip() for label, _, word in pairs}


def rate(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UserError(f"--rates: '{word}' is not a number.") from None


def file_settings(kind: Any, file: str) -> dict[str, Any]:
    """The settings of a TOML file. Its paths mean what they would mean on the command line."""
    from headstart.schema import parse, read_toml

    settings = read_toml(Path(file))
    job = kind.model_fields["job"].default
    if settings.get("job", job) != job:
        raise ConfigError(f"{file} holds the settings of headstart {settings['job']}, not of headstart {job}.")
    train = settings.get("train")
    if "job" in settings and isinstance(train, dict) and train.get("eval_every") and train.get("checkpoint_every"):
        return _run_settings(parse(kind, settings, file), Path(file))  # only a run writes all of these
    _place_data(settings.get("data"))
    _place_bases(settings)
    return settings


def _run_settings(config: JobConfig, file: Path) -> dict[str, Any]:
    """What the run with this config.toml was asked for; env.json beside it knows what was left open, such as the pooling."""
    from headstart.runs.run import Run

    run = Run(file.parent)
    asked = run.asked(type(config)) if run.there and file.name == "config.toml" else config
    return config.asked_settings(name for name in type(config).model_fields if getattr(asked, name) is None)


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
