"""A small session: short texts about three things, which TF-IDF can tell apart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headstart.labelling.session import Session
from headstart.labelling.start import start

WORDS = {
    "food": ["soup", "bread", "fish", "cake", "salt", "oven", "lunch", "plate", "sugar", "dinner"],
    "sport": ["goal", "match", "team", "coach", "ball", "league", "score", "player", "win", "race"],
    "tech": ["phone", "chip", "software", "screen", "network", "code", "laptop", "data", "robot", "cloud"],
}
EVERYWHERE = ["today", "people", "said", "with", "year", "more", "people", "after", "new", "very"]


def texts(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with their topics; no two are the same."""
    rng, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        topic = rng.choice(list(WORDS))
        words = rng.sample(WORDS[topic], 2) + rng.sample(EVERYWHERE, 4)
        rng.shuffle(words)
        found[" ".join(words)] = topic
    return list(found.items())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("text\n" + "".join(f"{text}\n" for text, _ in texts(150)), "utf-8")
    return path


@pytest.fixture
def session(file: Path, tmp_path: Path) -> Session:
    return start(file, list(WORDS), tmp_path / "session", "tfidf")


MANY = 6000  # texts, more than a fast machine labels between fifty kills
TRUTH = {row: topic for row, (_, topic) in enumerate(texts(MANY), start=1)}
