"""The sentiment of an English text by VADER's lexicon and rules (Hutto and Gilbert, 2014). It needs no labels and no training.

The rules are those of the package vaderSentiment 3.3.2 (MIT, C. J. Hutto), its peculiarities included: the scores are the same.
A word of the lexicon has a valence from -4 to 4, which the three words before it can negate, boost or dampen, and capitals
raise; what stands before "but" counts half, what stands after it half more; "!" and "??" add to the sum.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from pathlib import Path

from headstart.hub.packs import get_pack

BOOST, CAPITALS, NEGATION = 0.293, 0.733, -0.74  # measured by its authors on ratings of pairs of sentences
FADE = (1.0, 0.95, 0.9)  # of a booster one, two and three words before
NORM = 15.0  # makes a sum a score between -1 and 1

NEGATIONS = frozenset(
    [
        "aint",
        "arent",
        "cannot",
        "cant",
        "couldnt",
        "darent",
        "didnt",
        "doesnt",
        "ain't",
        "aren't",
        "can't",
        "couldn't",
        "daren't",
        "didn't",
        "doesn't",
        "dont",
        "hadnt",
        "hasnt",
        "havent",
        "isnt",
        "mightnt",
        "mustnt",
        "neither",
        "don't",
        "hadn't",
        "hasn't",
        "haven't",
        "isn't",
        "mightn't",
        "mustn't",
        "neednt",
        "needn't",
        "never",
        "none",
        "nope",
        "nor",
        "not",
        "nothing",
        "nowhere",
        "oughtnt",
        "shant",
        "shouldnt",
        "uhuh",
        "wasnt",
        "werent",
        "oughtn't",
        "shan't",
        "shouldn't",
        "uh-uh",
        "wasn't",
        "weren't",
        "without",
        "wont",
        "wouldnt",
        "won't",
        "wouldn't",
        "rarely",
        "seldom",
        "despite",
    ]
)
_MORE = (
    "absolutely amazingly awfully completely considerable considerably decidedly deeply effing enormous enormously entirely especially "
    "exceptional exceptionally extreme extremely fabulously flipping flippin frackin fracking fricking frickin frigging friggin fully fuckin "
    "fucking fuggin fugging greatly hella highly hugely incredible incredibly intensely major majorly more most particularly purely quite "
    "really remarkably so substantially thoroughly total totally tremendous tremendously uber unbelievably unusually utter utterly very"
)
_LESS = (
    "almost barely hardly kinda kindof kind-of less little marginal marginally occasional occasionally partly scarce scarcely slight "
    "slightly somewhat sorta sortof sort-of"
)
BOOSTERS = {
    **dict.fromkeys(_MORE.split(), BOOST),
    **dict.fromkeys([*_LESS.split(), "just enough", "kind of", "sort of"], -BOOST),
}
PHRASES = {
    "the shit": 3.0,
    "the bomb": 3.0,
    "bad ass": 1.5,
    "badass": 1.5,
    "bus stop": 0.0,
    "yeah right": -2.0,
    "kiss of death": -1.5,
    "to die for": 3.0,
    "beating heart": 3.5,
}


class Vader:
    def __init__(self, folder: Path | None = None) -> None:
        """From a folder with the two files of the pack vader."""
        folder = folder or get_pack("vader")
        lines = (line.split("\t") for line in _lines(folder / "vader_lexicon.txt"))
        self.lexicon = {word: float(valence) for word, valence, *_ in lines}
        self.emoji = dict(line.split("\t")[:2] for line in _lines(folder / "emoji_utf8_lexicon.txt"))

    def compound(self, text: str) -> float:
        """The sentiment of a text, from -1 (most negative) to 1; 0 where no word of it is in the lexicon."""
        text = self._named(text)
        words = [_bare(word) for word in text.split()]
        if not words:
            return 0.0
        low = [word.lower() for word in words]
        shouting = 0 < sum(word.isupper() for word in words) < len(words)
        valences = [self._valence(words, low, i, shouting) for i in range(len(words))]
        total = float(sum(_around_but(low, valences)))
        emphasis = 0.292 * min(4, text.count("!")) + _questions(text.count("?"))
        total += math.copysign(emphasis, total) if total else 0.0
        return round(total / math.sqrt(total * total + NORM), 4)

    def _named(self, text: str) -> str:
        """`text` with the names of its emoji in their place."""
        found, spaced = "", True
        for letter in text:
            if letter in self.emoji:
                found += ("" if spaced else " ") + self.emoji[letter]
                spaced = False
            else:
                found += letter
                spaced = letter == " "
        return found.strip()

    def _valence(self, words: Sequence[str], low: Sequence[str], i: int, shouting: bool) -> float:
        """The valence of one word, after what the words around it do to it."""
        word, before = low[i], [low[i - k] if i >= k else "" for k in (1, 2, 3)]
        if word in BOOSTERS or low[i : i + 2] == ["kind", "of"] or word not in self.lexicon:
            return 0.0
        valence = self.lexicon[word]
        if word == "no" and i + 1 < len(low) and low[i + 1] in self.lexicon:
            valence = 0.0
        if "no" in before[:2] or (before[2] == "no" and before[0] in ("or", "nor")):
            valence = self.lexicon[word] * NEGATION
        if words[i].isupper() and shouting:
            valence += CAPITALS if valence > 0 else -CAPITALS
        for distance in range(min(3, i)):
            if before[distance] in self.lexicon:
                continue
            valence += FADE[distance] * _boost(words[i - distance - 1], valence, shouting)
            valence *= _negation(before, distance)
            if distance == 2:
                valence = _phrases(low, i, valence)
        if before[0] == "least" and "least" not in self.lexicon and before[1] not in ("at", "very"):
            valence *= NEGATION
        return valence


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text("utf-8").rstrip("\n").split("\n") if line]


def _bare(word: str) -> str:
    """A word without the punctuation around it; what is then two letters or fewer was an emoticon, and stays.

    >>> _bare("(good)"), _bare(":)")
    ('good', ':)')
    """
    stripped = word.strip(string.punctuation)
    return stripped if len(stripped) > 2 else word


def _boost(word: str, valence: float, shouting: bool) -> float:
    """What a word before another adds to its valence."""
    if word.lower() not in BOOSTERS:
        return 0.0
    boost = BOOSTERS[word.lower()] * (-1 if valence < 0 else 1)
    if word.isupper() and shouting:
        boost += CAPITALS if valence > 0 else -CAPITALS
    return boost


def _negation(before: Sequence[str], distance: int) -> float:
    """By what the word so far before another multiplies its valence; `before` are the three before it, the nearest first."""
    never, doubt = before[distance] == "never", before[distance] == "without"
    if distance == 1 and never and before[0] in ("so", "this"):
        return 1.25
    if distance == 2 and ((never and before[1] in ("so", "this")) or before[0] in ("so", "this")):
        return 1.25
    if distance and doubt and "doubt" in before[:distance]:
        return 1.0
    return NEGATION if before[distance] in NEGATIONS or "n't" in before[distance] else 1.0


def _phrases(low: Sequence[str], i: int, valence: float) -> float:
    """The valence of a word in a phrase that has one of its own, or after a booster of several words."""

    def joined(start: int, end: int) -> str:
        return " ".join(low[i + start : i + end + 1])

    before = [joined(-1, 0), joined(-2, 0), joined(-2, -1), joined(-3, -1), joined(-3, -2)]
    valence = next((PHRASES[phrase] for phrase in before if phrase in PHRASES), valence)
    for after in (1, 2):
        if i + after < len(low):
            valence = PHRASES.get(joined(0, after), valence)
    return valence + sum(BOOSTERS.get(phrase, 0.0) for phrase in (joined(-3, -1), joined(-3, -2), joined(-2, -1)))


def _around_but(low: Sequence[str], valences: list[float]) -> list[float]:
    """Less of what stands before the first "but", more of what stands after it.

    The package looks for the place of each valence by its value, so that the first of two equal ones is changed twice.
    """
    found = list(valences)
    if "but" in low:
        turn = low.index("but")
        for valence in found:  # of the list as it is by then
            place = found.index(valence)
            found[place] = valence * (0.5 if place < turn else 1.5 if place > turn else 1.0)
    return found


def _questions(count: int) -> float:
    return 0.0 if count < 2 else 0.18 * count if count <= 3 else 0.96
