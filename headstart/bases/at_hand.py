"""The bases at hand: packs in the cache and finished pretraining runs, without a download."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headstart.bases.pretrained import MODELS, open_base
from headstart.config import PretrainConfig
from headstart.errors import ConfigError
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import pack_folder
from headstart.runs.model_dir import Saved
from headstart.runs.run import Run, runs_in
from headstart.shapes import PRESETS

RUNS = "runs"  # where runs are looked for
MEGABYTES = {
    "minilm": 84,
    "smollm2": 95,
    "mpnet": 404,
    "use-multilingual": 32,
    "english-vectors": 34,
    "vader": 0.1,
}  # of the downloads


def bases_at_hand(folder: str = RUNS) -> list[str]:
    """Packs in the cache, then finished pretraining runs below a folder, by name; an error if there is none."""
    found = found_bases(folder)
    if not found:
        raise ConfigError(
            f"There is no base at hand: no pack of a model is in the cache, and no pretraining run below {folder}/. Give one with "
            f"--base RUN, or download {', '.join(MODELS)} with --packs."
        )
    return found


def found_bases(folder: str = RUNS) -> list[str]:
    """The same, or nothing."""
    packs = [name for name in MODELS if pack_folder(name).exists()]
    runs = runs_in(folder) if os.path.isdir(folder) else []
    return [*packs, *(str(run.path) for run in runs if run.finished and run.job == "pretrain")]


def must_have_weights(bases: Sequence[str]) -> None:
    """Refuse a preset by its name."""
    if presets := [base for base in bases if base in PRESETS]:
        raise ConfigError(
            f"The preset '{presets[0]}' has no pretrained weights. Give --base a pretrained run or model, such as "
            f"{MODELS[0]}."
        )


def missing_packs() -> dict[str, str]:
    """The packs of models, word vectors and the lexicon that are not in the cache, with the sizes of their downloads."""
    names = dict.fromkeys([*MODELS, *MEGABYTES])
    sizes = {name: f"{MEGABYTES[name]:g} MB" if name in MEGABYTES else PACKS[name].about for name in names}
    return {name: size for name, size in sizes.items() if not pack_folder(name).exists()}


def has_language_head(base: str, allow_pickle: bool = False) -> bool:
    """Whether a pretrained base has an output over the vocabulary, which can be asked for label words."""
    return knows_words(open_base(base, allow_pickle), base)


def knows_words(saved: Saved, base: str) -> bool:
    """The same of a base that is open."""
    return not saved.fresh and not is_distilled(base)


def is_distilled(base: str) -> bool:
    """Whether a base is a run of the objective distill, whose language head was never trained."""
    run = Run(Path(base))
    if not run.there:
        return False
    config = run.config
    return isinstance(config, PretrainConfig) and config.objective == "distill"
