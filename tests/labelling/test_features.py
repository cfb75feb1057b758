"""One vector for each text, and the zero-shot answers of a base with a language head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.config import PretrainConfig
from headstart.errors import ConfigError, DataError
from headstart.jobs.job import run_job
from headstart.labelling.features import chosen_base, features_of
from headstart.labelling.start import start
from headstart.runs.watch import Watch
from headstart.schema import parse
from tests.labelling.conftest import WORDS, texts


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model of the texts."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "corpus.txt").write_text("\n".join(f"{text} {topic}" for text, topic in texts(150)), "utf-8")
    train = {"steps": 20, "lr": 0.003, "batch_size": 8, "threads": 1, "tensorboard": False}
    settings: dict[str, Any] = {"data": {"paths": [str(folder / "corpus.txt")], "unit": "line"}, "tokenizer": {"kind": "word"}, "samples": []}  # fmt: skip
    run_job(
        parse(PretrainConfig, {**settings, "model": {"size": "nano", "context": 32}, "train": train}), folder / "run"
    )
    return folder / "run"


def test_a_language_model_brings_its_zero_shot_answers(base: Path, file: Path, tmp_path: Path) -> None:
    found = start(file, list(WORDS), tmp_path / "out", str(base))
    classifier = found.classifier
    assert classifier.words.shape == (150, 3)
    assert np.allclose(classifier.words.sum(1), 1, atol=1e-5)
    assert classifier.inputs.shape[0] == 150
    assert found.status().zero_shot
    assert len(found.next(10)) == 10


def test_the_vectors_are_those_of_the_texts_in_their_order(base: Path) -> None:
    some = [text for text, _ in texts(20)] + ["one", "a much longer text than all of the others here"]
    together = features_of(some, ["a", "b"], str(base), Watch()).vectors
    backwards = features_of(some[::-1], ["a", "b"], str(base), Watch()).vectors[::-1]
    assert np.allclose(together, backwards, atol=1e-4)
    assert np.isclose((together**2).sum(1).mean(), 1, atol=1e-3)


def test_texts_of_no_words_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="hardly a word in common"):
        features_of(["?!", "...", "—"] * 10, ["a", "b"], "tfidf", Watch())


def test_auto_is_a_base_in_the_cache_or_tfidf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    assert chosen_base("auto") == "tfidf"
    assert chosen_base("runs/base") == "runs/base"
    with pytest.raises(ConfigError, match="no pretrained weights"):
        chosen_base("gpt")
