"""What to pretrain with, for a user who names only the minutes. docs/pretraining.md has the measurements behind it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.bases.cooccurrence_start import FEWEST_TOKENS
from headstart.config import PretrainConfig
from headstart.jobs.estimate import within_minutes
from headstart.runs.watch import Watch
from headstart.schema import is_given, merge, nested, parse
from headstart.text.cooccurrence import LITTLE as LITTLE_TEXT
from headstart.text.corpus_stream import corpus_texts
from headstart.text.files import Reading
from headstart.text.stretches import Text, stretches_of

MINUTES = 10.0  # if none are named
CHARACTERS = 4.5  # of a token, about
LITTLE = "no gain has been seen from so little, so more text, or a base such as minilm, is the better way"
CONTEXTS = (128, 256, 512)  # tokens
READ_WHOLE = 0.9  # of the texts are read to their end, unless they are longer than the longest context
COUNTED_ENTRIES = 16_384  # at most; a head that is applied to masked tokens alone can afford more than others
CHARACTERS_PER_COUNTED = (
    100  # about twenty occurrences of an entry: enough for co-occurrence counts, if not for training
)
KINDS = {"word": "the most frequent words", "wordpiece": "words and subwords", "bpe": "subwords"}
SPACED = 0.1  # spaces among the characters of a text, if they part its words: English has 0.17, Chinese none


@dataclass(frozen=True)
class Choice:
    value: Any
    why: str


Recipe = dict[str, Choice]  # by the dotted names of the settings


def pretraining(named: Mapping[str, Any], minutes: float | None = None, watch: Watch | None = None) -> PretrainConfig:
    """The settings `named`, as in config.toml. Objective "auto" and `minutes` are resolved for their text, on this machine."""
    if named.get("objective") != "auto":
        cfg = parse(PretrainConfig, named)
    else:
        cfg = parse(PretrainConfig, {**named, "objective": objective_for(named)})
        chosen = beside(named, recipe_for(cfg))
        cfg = parse(PretrainConfig, merge(named, nested({name: choice.value for name, choice in chosen.items()})))
        minutes = MINUTES if minutes is None and not is_given(named, "train.steps") else minutes
        if watch:
            watch.note(f"Chosen: {'; '.join(choice.why for choice in chosen.values())}.")
    return cfg if minutes is None else within_minutes(cfg, minutes)


def objective_for(named: Mapping[str, Any]) -> str:
    """What "auto" is, beside the settings that are named."""
    if is_given(named, "teacher"):
        return "distill"
    return "causal" if is_given(named, "model.preset") and named["model"]["preset"] != "bert" else "masked"


def beside(named: Mapping[str, Any], chosen: Recipe) -> Recipe:
    """What remains of a choice beside the settings that are named: those win."""
    own_tokenizer = is_given(named, "tokenizer.kind")  # which then has entries and capitals of its own
    return {
        name: choice
        for name, choice in chosen.items()
        if name == "objective" or not (is_given(named, name) or (own_tokenizer and name.startswith("tokenizer.")))
    }


def recipe_for(cfg: PretrainConfig) -> Recipe:
    """The choice for the text of `cfg`; its objective is masked, or what a teacher or a preset ask for."""
    texts = corpus_texts(cfg.data, Reading(cfg.data))
    learns = f"distilling {Path(cfg.teacher).name}" if cfg.teacher else cfg.objective
    chosen = recipe(texts, writes=cfg.objective == "causal", known=bool(cfg.vectors))
    return {"objective": Choice(cfg.objective, learns), **chosen}


def recipe(texts: Iterable[Text], writes: bool = False, known: bool = False) -> Recipe:
    """The choice for these texts; a model that `writes` keeps capitals and spaces, and words may be `known` beforehand."""
    lengths, spaces = array("q"), 0
    for text in texts:
        lengths.append(0)
        for stretch in stretches_of(text):
            lengths[-1] += len(stretch)
            spaces += stretch.count(" ")
    if sum(lengths) / CHARACTERS < FEWEST_TOKENS and not known:
        return {
            "start": Choice("random", f"from random, as the text has fewer than {FEWEST_TOKENS:,} tokens; {LITTLE}"),
            "model.size": Choice("micro", "size micro"),
            "model.context": Choice(CONTEXTS[0], f"a context of {CONTEXTS[0]}"),
        }
    return {
        "start": Choice("cooccurrence", "token vectors counted first, which pays most of all"),
        **({} if writes else _vocabulary(sum(lengths), spaces)),
        "model.size": Choice("micro", "size micro"),
        "model.context": _context(lengths),
    }


def _vocabulary(characters: int, spaces: int) -> Recipe:
    """Words where spaces part them: what is counted of a word says more than what is counted of its pieces.

    In little text, rare words are better unknown than cut into pieces.
    """
    little = characters / CHARACTERS < LITTLE_TEXT
    kind = "bpe" if spaces < SPACED * characters else "word" if little else "wordpiece"
    entries = min(COUNTED_ENTRIES, characters // CHARACTERS_PER_COUNTED)
    return {
        "tokenizer.kind": Choice(kind, KINDS[kind]),
        "tokenizer.vocab": Choice(entries, f"a vocabulary of {entries:,}"),
        "tokenizer.lower": Choice(True, "no capitals"),
    }


def _context(lengths: Sequence[int]) -> Choice:
    """The shortest that most texts fit into; of books, which fit into none, the shortest of all."""
    long = float(np.quantile(lengths, READ_WHOLE)) / CHARACTERS
    fits = next((size for size in CONTEXTS if long <= size), None)
    whole = ", so that most texts are read whole" if fits else ""
    return Choice(fits or CONTEXTS[0], f"a context of {fits or CONTEXTS[0]}{whole}")
