"""VADER's rules give the scores of the package that its authors published."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headstart.text.vader import Vader

package = pytest.importorskip("vaderSentiment.vaderSentiment", reason="vaderSentiment is in the extra dev")
FOLDER = Path(package.__file__).parent if package.__file__ else Path()
SENTENCES = [
    "", "...", "VADER is smart, handsome, and funny!", "VADER is VERY SMART, uber handsome, and FRIGGIN FUNNY!!!", "The book was only kind of good.",
    "At least it isn't a horrible book.", "The plot was good, but the characters are uncompelling and the dialog is not great.",
    "Make sure you :) or :D today!", "Catch utf-8 emoji such as 💘 and 💋 and 😁", "Not bad at all", "no fun or joy", "without a doubt excellent",
    "never so good", "It was the least bad of all", "the kiss of death", "to die for", "Sentiment??? really??", "TODAY ONLY: I HATE IT",
]  # fmt: skip
WORDS = [
    "no",
    "not",
    "never",
    "so",
    "this",
    "without",
    "doubt",
    "very",
    "VERY",
    "kind",
    "of",
    "sort",
    "good",
    "GOOD",
    "bad",
    "awful",
    "great",
    "least",
    "at",
    "but",
    "the",
    "bomb",
    "shit",
    "bus",
    "stop",
    "isn't",
    "or",
    "nor",
    "love",
    "hate",
    "!",
    "??",
    "😀",
    "horrible",
    "BUT",
    "yeah",
    "right",
    "to",
    "die",
    "for",
    "just",
    "enough",
    "💔:)",
    ":(",
    "kiss",
    "death",
    "almost",
    "fun.",
    "(nice)",
]


def sentences() -> list[str]:
    """The published examples, and words that rules are about, in any order."""
    rng = random.Random(0)
    return [*SENTENCES, *(" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(1000))]


def test_every_score_is_that_of_the_package() -> None:
    ours, theirs = Vader(FOLDER), package.SentimentIntensityAnalyzer()
    found = {text: ours.compound(text) for text in sentences()}
    assert found == {text: theirs.polarity_scores(text)["compound"] for text in found}
    assert len({score for score in found.values() if score}) > 300
