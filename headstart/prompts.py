"""Prompts: a template that makes classification a word to predict, and the word that stands for each label. No torch.

The template has {text} and, after it, {label}: the place of the label word. Without {label} the word follows at the end.
A causal model reads what is before {label}; a masked one has its mask token there, and reads what follows too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import model_validator

from headstart.errors import ConfigError
from headstart.schema import Frozen

AUTO = "auto"  # in place of a template: those of the family that the label names belong to; of a base: the best at hand
MOST_CHARACTERS = 10_000
CALIBRATED_ON = 400  # training texts, without their labels


class Prompt(Frozen):
    """A template, and the word that stands for each label."""

    template: str
    words: dict[str, str]  # by label

    @model_validator(mode="after")
    def has_its_places(self) -> Self:
        must_be_template(self.template)
        if any(not word.strip() for word in self.words.values()):
            raise ValueError("a label word is empty")
        words = [word.strip() for word in self.words.values()]
        if twice := sorted({word for word in words if words.count(word) > 1}):
            raise ValueError(f"two labels have the word '{twice[0]}'; give each its own with --label-words")
        return self

    @property
    def parts(self) -> tuple[str, str, str]:
        """What is before the text, between text and label word, and after the label word."""
        before, after = self.template.split("{text}")
        between, _, tail = (after if "{label}" in after else f"{after} {{label}}").partition("{label}")
        return before, between, tail


def must_be_template(template: str) -> None:
    """Raise a ValueError that names what is wrong with a template."""
    if template.count("{text}") != 1:
        raise ValueError(f"the prompt '{template[:60]}' must have {{text}} once: 'Review: {{text}}\\nSentiment:'")
    before, _, after = template.partition("{text}")
    if "{label}" in before or after.count("{label}") > 1:
        raise ValueError(f"the prompt '{template[:60]}' must have {{label}} once, after {{text}}, or not at all")
    if len(template) > MOST_CHARACTERS:
        raise ValueError(f"the prompt has {len(template):,} characters; {MOST_CHARACTERS:,} are the most")


@dataclass(frozen=True)
class Family:
    """Labels that belong together, with their words and templates; the first template is the one that is tuned."""

    words: Mapping[str, str]  # of each label that it knows, lower-case
    templates: tuple[str, ...]
    masked_words: Mapping[str, str] | None = None  # where a masked model has others
    masked_templates: tuple[str, ...] = ()


_NEGATIVE, _POSITIVE, _NEUTRAL = ("negative", "neg", "bad"), ("positive", "pos", "good"), ("neutral", "neu", "mixed")


def _alike(*groups: tuple[Sequence[str], str]) -> dict[str, str]:
    return {name: word for names, word in groups for name in names}


FAMILIES = (
    Family(
        _alike((_NEGATIVE, "negative"), (_POSITIVE, "positive"), (_NEUTRAL, "neutral")),
        ("Review: {text}\nSentiment: {label}", "Review: {text}\nThe sentiment of this review is {label}"),
        _alike((_NEGATIVE, "terrible"), (_POSITIVE, "great"), (_NEUTRAL, "okay")),
        ("{text} It was {label}.",),
    ),
    Family(
        {f"{n}{s}": word for n, word in enumerate(("terrible", "bad", "okay", "good", "great"), 1)
         for s in (" star", " stars")},
        ("Review: {text}\nIn one word, it was {label}", "{text}\nOverall it was {label}"),
        masked_templates=("{text} It was {label}.",),
    ),
    Family(
        {name: name for name in ("joy", "sadness", "anger", "fear", "love", "surprise", "disgust", "neutral")},
        ("Text: {text}\nEmotion: {label}", "{text}\nThe writer of this text feels {label}"),
        masked_templates=("{text} I feel {label}.",),
    ),
    Family(
        {"spam": "spam", "ham": "normal", "not spam": "normal"},
        ("Message: {text}\nThis message is {label}", "Message: {text}\nKind of message: {label}"),
    ),
    Family(
        {"subjective": "subjective", "objective": "objective"},
        ("Sentence: {text}\nThis sentence is {label}",),
    ),
    Family(
        {"abbr": "abbreviation", "enty": "thing", "desc": "description", "hum": "person", "loc": "place", "num": "number"},
        ("Question: {text}\nThe answer is a {label}", "Question: {text}\nType of answer: {label}"),
    ),
)  # fmt: skip
OTHER = Family({}, ("Text: {text}\nTopic: {label}", "{text}\nThis text is about {label}", "{text}\nCategory: {label}"))
MASKED = ("{text} This is about {label}.",)


def prompts_for(
    labels: Sequence[str], causal: bool, templates: Sequence[str] = (), words: Mapping[str, str] | None = None
) -> tuple[Prompt, ...]:
    """The prompts for these labels: with the templates and words that are given, and those of their family for the rest."""
    given = dict(words or {})
    if strange := sorted(given.keys() - set(labels)):
        raise ConfigError(f"--label-words: there is no label '{strange[0]}'. The labels are {', '.join(labels[:20])}.")
    family = family_of([given.get(label, label) for label in labels])
    known = family.words if causal else family.masked_words or family.words
    found = {label: given.get(label) or known.get(_plain(label)) or readable(label) for label in labels}
    if wordless := [label for label in labels if not re.search(r"[^\W\d_]", found[label])]:
        example = ",".join(f"{label}={word}" for label, word in zip(labels, ("negative", "positive"), strict=False))
        raise ConfigError(
            f"The label '{wordless[0]}' is not a word, which a prompt needs. Give words: --label-words {example}."
        )
    own = family.templates if causal else family.masked_templates or MASKED
    try:
        return tuple(Prompt(template=template, words=found) for template in templates or own)
    except ValueError as error:
        raise ConfigError(str(error.errors()[0]["msg"]).removeprefix("Value error, ") + ".") from None  # type: ignore[attr-defined]


def family_of(labels: Sequence[str]) -> Family:
    """The first family that knows all labels, under distinct words."""
    names = [_plain(label) for label in labels]
    for family in FAMILIES:
        if all(name in family.words for name in names) and len({family.words[n] for n in names}) == len(names):
            return family
    return OTHER


def readable(label: str) -> str:
    """A label as words.

    >>> readable("card_arrival"), readable("sci.space"), readable("ScienceAndTech")
    ('card arrival', 'sci space', 'science and tech')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label)
    return " ".join(re.sub(r"[\W_]+", " ", apart).split()).lower()


def _plain(label: str) -> str:
    return " ".join(label.lower().replace("_", " ").split())
