"""A class head that starts from label words: what a language model knows of the labels is in the rows of its output matrix.

`label_word_rows` are those rows. `prompted_probe` is a linear probe that knows them: their scores stand beside the features
of the prompted text, so that few labelled rows correct the words instead of starting from nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.bases.linear_probe import Probe, Rows, as_head, must_be_finite
from headstart.bases.regression import Standard, fit_regression
from headstart.errors import ConfigError
from headstart.models.heads import ClassHead, LanguageHead, Model
from headstart.prompts import Prompt
from headstart.text.prompted import word_tokens
from headstart.text.tokenizer import Tokenizer

CS = (0.001, 0.01, 0.1, 1.0)  # inverse regularization, of standardized features
USUAL_C = 0.001  # of few rows; the scores of the words are hardly regularized
WORD_SCALE = 30.0  # standard deviation of the scores of the words as features; that of the others is 1 (docs/log.md)


def start_from_words(model: Model, language: Model, prompt: Prompt, tokenizer: Tokenizer) -> None:
    """Give the class head of `model` the rows of the label words in the output matrix of `language`."""
    head, source = model.head, language.head
    assert isinstance(head, ClassHead)
    if not isinstance(source, LanguageHead):
        raise ConfigError("A prompt needs a base with a language head.")
    weight, bias = label_word_rows(source, word_tokens(prompt, tokenizer))
    with torch.no_grad():
        head.linear.weight.copy_(weight)
        if head.linear.bias is not None:
            head.linear.bias.copy_(bias)
        if head.transform is not None:
            head.transform.load_state_dict(source.transform.state_dict())


def label_word_rows(head: LanguageHead, words: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    """Weight (C, D) and bias (C,) that score each word at the prompt's end; of a word of several tokens, their mean.

    What all words share changes no probability: without it the numbers are small, and a probe can be added to them.
    """
    weight = torch.stack([head.weight[list(word)].mean(0) for word in words]).detach()
    bias = torch.stack([head.bias[list(word)].mean() for word in words]) if head.bias is not None else weight.new_zeros(len(words))  # fmt: skip
    return weight - weight.mean(0), (bias - bias.mean()).detach()


def prompted_probe(head: ClassHead, train: Rows, valid: Rows) -> Probe:
    """A linear probe on prompted features, beside the scores of `head`, which starts from label words."""
    features, held_out = train[0].cpu().numpy(), valid[0].cpu().numpy()
    words = head.linear.weight.detach().cpu().numpy().astype(np.float64)  # (C, D)
    words = words - words.mean(0)
    standard = Standard.of(features)
    mean = standard.mean
    spread = max(float(((features - mean) @ words.T).std()), 1e-6) / WORD_SCALE

    def beside(rows: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.hstack([standard(rows), (rows - mean) @ words.T / spread])  # (rows, D + C)

    must_be_finite(standard.scale, features, held_out)
    found = fit_regression(
        (beside(features), np.array(train[1])),
        (beside(held_out), np.array(valid[1])) if len(valid[1]) else None,
        CS,
        USUAL_C,
        dict(enumerate(head.weights.tolist())),
    )
    weight, bias = as_head(found.model)
    weight = weight[:, : len(mean)] / standard.scale + weight[:, len(mean) :] @ words / spread
    return Probe("last", found.c, weight, bias - weight @ mean, found.hits)
