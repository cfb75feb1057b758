"""The baseline of a sentiment lexicon: VADER's score of a text read as a label. It learns nothing. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headstart.errors import ConfigError
from headstart.text.vader import Vader

NAMES = {  # labels that have one meaning only; 0 and 1 have not
    "negative": ("negative", "neg", "bad", "-1"),
    "neutral": ("neutral", "neu"),
    "positive": ("positive", "pos", "good"),
}
NEUTRAL = 0.05  # VADER's authors take a score nearer to 0 than this for neutral
STEEPNESS = 4.0  # of the probabilities: nothing is fitted, so they are ordered rather than calibrated


def polarities(labels: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Which polarity each label has, by its name or its label word: negative and positive, and neutral where there are three.

    >>> polarities(["Neg", "pos"], {})
    {'Neg': 'negative', 'pos': 'positive'}
    """
    by_name = {name: polarity for polarity, names in NAMES.items() for name in names}
    words = {label: given.get(label, label).strip().lower() for label in labels}
    found = {label: by_name.get(word, "") for label, word in words.items()}
    if sorted(found.values()) in (["negative", "positive"], ["negative", "neutral", "positive"]):
        return found
    shown = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
    raise ConfigError(
        f"The arm lexicon needs the labels negative and positive, and at most neutral besides; here they are {shown}. If they mean that, "
        f"give --label-words {labels[0]}=negative and so on, for each label; otherwise leave lexicon out of --arms."
    )


def lexicon_probabilities(texts: Sequence[str], polarity: Mapping[str, str]) -> list[dict[str, float]]:
    """The probability of each label for each text; its most probable label is what VADER's score says.

    Without a neutral label a text with the score 0 counts as positive, as most texts are.
    """
    vader = Vader()
    three = "neutral" in polarity.values()
    rows = []
    for text in texts:
        score = vader.compound(text)
        # The rule for neutral is "nearer to 0 than", and a tie goes to positive.
        logits = {"negative": -score, "neutral": NEUTRAL - 1e-9, "positive": score + (0.0 if three else 1e-9)}
        weights = {label: float(np.exp(STEEPNESS * logits[kind])) for label, kind in polarity.items()}
        total = sum(weights.values())
        rows.append({label: weight / total for label, weight in weights.items()})
    return rows
