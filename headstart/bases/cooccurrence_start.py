"""Token embeddings that start from co-occurrence counts (PPMI-SVD), instead of random numbers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.config import PretrainConfig
from headstart.models.heads import Model
from headstart.tasks.language import LanguageText
from headstart.text.cooccurrence import token_vectors

SCALE = 0.1  # of the numbers in an embedding; random ones have 0.02, as have the positions added to them
FEWEST_TOKENS = 100_000  # in less text, words of opposite meaning have the same neighbours


def starts_from_cooccurrence(cfg: PretrainConfig, text: LanguageText) -> bool:
    """Whether the settings and the length of the text ask for it."""
    long_enough = len(text.rows.ids) >= FEWEST_TOKENS
    return not cfg.base and (cfg.counted or (cfg.start == "auto" and long_enough))


def start_from_cooccurrence(model: Model, text: LanguageText, known: NDArray[np.float32] | None) -> None:
    """Give every token that has neighbours its embedding; `known` word vectors take up to half of each."""
    tokens = model.base.get_parameter("tokens.weight")
    vectors = token_vectors(text.rows, tokens.shape[0], tokens.shape[1], known)
    seen = torch.from_numpy(vectors.any(1))
    with torch.no_grad():
        tokens[seen] = SCALE * torch.from_numpy(vectors)[seen].to(tokens)
