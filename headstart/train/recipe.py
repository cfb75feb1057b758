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
CONTEXTS = (128, 256, 512)  # tokens
READ_WHOLE = 0.9  # of the texts are read to their end, unless they are longer than the longest context


@dataclass(frozen=True)
class Recipe:
    settings: dict[str, Any]  # by their dotted names
    why: str


def recipe_for(cfg: PretrainConfig) -> Recipe:
    """The choice for the text, and for the teacher, of `cfg`."""
    texts = read_corpus(cfg.data.paths, cfg.data.unit, cfg.data.text_column, Reading(cfg.data))
    return recipe([len(text) for text in texts], cfg.teacher)


def recipe(lengths: list[int], teacher: str | None) -> Recipe:
    """The choice for texts of so many characters each."""
    enough = sum(lengths) / CHARACTERS >= COUNTED_FROM
    long = float(np.quantile(lengths, READ_WHOLE)) / CHARACTERS
    whole = enough and long <= CONTEXTS[-1]
    context = next(size for size in CONTEXTS if long <= size) if whole else CONTEXTS[0]
    settings = {
        "objective": "distill" if teacher else "masked",
        "start": "cooccurrence" if enough else "random",
        "model.size": "micro",
        "model.context": context,
    }
    learns = f"distilling {Path(teacher).name}" if teacher else "masked"
    begins = (
        "token vectors counted first, which pays most of all"
        if enough
        else f"from random, since the text has fewer than {COUNTED_FROM:,} tokens: nothing has been seen to pay there"
    )
    read = ", so that most texts are read whole" if whole else ""
    return Recipe(settings, f"Chosen: {learns}, {begins}; size micro; a context of {context}{read}.")
