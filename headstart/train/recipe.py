"""What to pretrain with, for a user who names only the minutes. docs/pretraining.md has the measurements behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.config import PretrainConfig
from headstart.text.files import Reading
from headstart.text.read import read_corpus
from headstart.train.pretrain import COUNTED_FROM

MINUTES = 10.0  # if none are named
CHARACTERS = 4.5  # of a token, about
LITTLE = "no gain has been seen from so little, so more text, or a base such as minilm, is the better way"
CONTEXTS = (128, 256, 512)  # tokens
READ_WHOLE = 0.9  # of the texts are read to their end, unless they are longer than the longest context


@dataclass(frozen=True)
class Choice:
    value: Any
    why: str


Recipe = dict[str, Choice]  # by the dotted names of the settings


def recipe_for(cfg: PretrainConfig) -> Recipe:
    """The choice for the text of `cfg`; its objective is masked, or what a teacher or a preset ask for."""
    texts = read_corpus(cfg.data.paths, cfg.data.unit, cfg.data.text_column, Reading(cfg.data))
    learns = f"distilling {Path(cfg.teacher).name}" if cfg.teacher else cfg.objective
    return {"objective": Choice(cfg.objective, learns), **recipe([len(text) for text in texts])}


def recipe(lengths: list[int]) -> Recipe:
    """The choice for texts of so many characters each."""
    enough = sum(lengths) / CHARACTERS >= COUNTED_FROM
    long = float(np.quantile(lengths, READ_WHOLE)) / CHARACTERS
    whole = enough and long <= CONTEXTS[-1]
    context = next(size for size in CONTEXTS if long <= size) if whole else CONTEXTS[0]
    return {
        "start": (
            Choice("cooccurrence", "token vectors counted first, which pays most of all")
            if enough
            else Choice("random", f"from random, as the text has fewer than {COUNTED_FROM:,} tokens; {LITTLE}")
        ),
        "model.size": Choice("micro", "size micro"),
        "model.context": Choice(
            context, f"a context of {context}{', so that most texts are read whole' if whole else ''}"
        ),
    }
