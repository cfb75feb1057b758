"""A finished language model put to work: text from it, and its loss on other text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

from headstart.config import PretrainConfig
from headstart.data import CorpusConfig
from headstart.errors import ConfigError, ModelError
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.runs.kinds import must_be
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.show.view import Guess
from headstart.tasks.language import Language, LanguageText
from headstart.tasks.metrics import LanguageScores
from headstart.text.files import PLAIN, Reading
from headstart.text.read import read_corpus


class GeneratedToken(Guess):
    id: int
    top: list[Guess]  # the most probable tokens in its place


class Generated(TypedDict):
    prompt: str
    text: str
    tokens: list[GeneratedToken]


class LanguageEvaluation(LanguageScores):
    tokens: int
    entropy: NotRequired[float]  # the least loss that any causal model of these rows can have


class LoadedLanguageModel:
    """The language model of a finished run; the estimator LanguageModel trains one."""

    def __init__(self, saved: Saved, config: PretrainConfig) -> None:
        self.saved, self.config = saved, config

    @classmethod
    def load(cls, path: str | Path) -> LoadedLanguageModel:
        run = Run.open(path)
        config = must_be(run.config, PretrainConfig, path)
        refuse_distilled(run, path)
        return cls(read_model(run.path / "model"), config)

    def generate(self, prompt: str, tokens: int, how: Sampling, top: int) -> Generated:
        """Text after `prompt`, with the probability of each new token and the `top` most probable in its place."""
        if not self.saved.config.causal:
            raise ModelError(
                "This model is bidirectional; only a causal one, which reads left to right, can continue a text."
            )
        tokenizer = self.saved.tokenizer
        ids = tokenizer.encode([prompt], self.config.data.boundaries, end=False)[0].tolist()
        if not ids:
            raise ConfigError("This model has no start token to begin from: give a prompt.")
        step = LanguageStep(self.saved.model)
        choices = list(generate(step, torch.tensor([ids]), tokens, tokenizer.end, how, top, tokenizer.suppressed))
        return {
            "prompt": prompt,
            "text": tokenizer.decode([*ids, *(c.id for c in choices)]),
            "tokens": [
                {
                    "token": tokenizer.piece(c.id),
                    "id": c.id,
                    "probability": c.probability,
                    "top": [{"token": tokenizer.piece(i), "probability": p} for i, p in c.top],
                }
                for c in choices
            ],
        }

    def evaluate(
        self, paths: Sequence[str | Path], unit: str | None, column: str | None, reading: Reading = PLAIN
    ) -> LanguageEvaluation:
        """Loss on the text of `paths`; for lines and sentences, beside the entropy of the text itself."""
        changes: dict[str, Any] = {"paths": tuple(map(str, paths)), "text_column": column}
        changes |= {"unit": unit} if unit else {}
        data = parse(CorpusConfig, {**self.config.data.model_dump(), **changes})
        texts = read_corpus(data.paths, data.unit, data.text_column, reading)
        text = LanguageText(texts, self.saved.tokenizer, self.config.model_copy(update={"data": data}))
        scores = Language(text.bytes).evaluate(self.saved.model, text.measured())
        entropy = text.entropy()
        found: LanguageEvaluation = {
            "loss": scores["loss"],
            "perplexity": scores["perplexity"],
            "bits_per_byte": scores["bits_per_byte"],
            "tokens": len(text.rows.ids),
        }
        if entropy is not None:
            found["entropy"] = entropy
        return found


def refuse_distilled(run: Run, name: str | Path) -> None:
    """What learned from a teacher has a language head that learned nothing."""
    if isinstance(run.config, PretrainConfig) and run.config.objective == "distill":
        raise ModelError(f"{name} was distilled and predicts no tokens. It is a --base to fine-tune.")
