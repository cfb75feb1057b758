"""--objective auto: what is chosen for whom, and that flags win over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.jobs.recipe import Recipe, recipe
from headstart.runs.kinds import load_run_config

WORDS = "of the film " * 75  # 900 characters


def values(chosen: Recipe) -> dict[str, Any]:
    return {key: choice.value for key, choice in chosen.items()}


def test_much_text_is_counted_in_words_and_then_masked() -> None:
    chosen = recipe([WORDS] * 6000)
    assert values(chosen) == {
        "start": "cooccurrence", "tokenizer.kind": "wordpiece", "tokenizer.vocab": 16_384, "tokenizer.lower": True,
        "model.size": "micro", "model.context": 256,
    }  # fmt: skip
    assert "most texts are read whole" in chosen["model.context"].why


def test_in_little_text_rare_words_are_unknown() -> None:
    assert values(recipe([WORDS] * 1000))["tokenizer.kind"] == "word"
    assert values(recipe([WORDS] * 4999))["tokenizer.kind"] == "word"
    assert values(recipe([WORDS] * 5000))["tokenizer.kind"] == "wordpiece"  # a million tokens of 4.5 characters


def test_where_words_are_known_beforehand_little_text_is_counted_too(sentences: Path, tmp_path: Path) -> None:
    (tmp_path / "known.vec").write_text("the 1 2\ncat 2 1\n")
    words = [
        "pretrain",
        str(sentences),
        "--objective",
        "auto",
        "--unit",
        "line",
        "--vectors",
        str(tmp_path / "known.vec"),
    ]
    done = CliRunner().invoke(app, [*words, "--minutes", "0", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "token vectors counted first" in done.stderr
    config = load_run_config(tmp_path / "run" / "config.toml")
    assert isinstance(config, PretrainConfig)
    assert (config.start, config.train.steps) == ("cooccurrence", 0)


@pytest.mark.parametrize("text", ["的" * 900, "的" * 2700 + WORDS])  # signs, and an English word now and then
def test_words_that_no_space_parts_are_cut_anywhere(text: str) -> None:
    chosen = values(recipe([text] * (720_000 // len(text))))
    assert chosen["tokenizer.kind"] == "bpe"
    assert chosen["tokenizer.vocab"] == 7_200, "little text feeds few entries"


def test_a_model_that_writes_keeps_capitals() -> None:
    assert not any(name.startswith("tokenizer") for name in recipe([WORDS] * 2000, writes=True))


def test_little_text_begins_random_and_is_told_so() -> None:
    chosen = recipe([WORDS] * 20)
    assert chosen["start"].value == "random"
    assert "tokenizer.kind" not in chosen
    assert "no gain has been seen from so little" in chosen["start"].why


@pytest.mark.parametrize(("characters", "context"), [(100, 128), (570, 128), (580, 256), (2000, 512), (90_000, 128)])
def test_the_context_is_as_long_as_nine_texts_in_ten_unless_these_are_books(characters: int, context: int) -> None:
    lengths = [10] * 80 + [characters] * 12 + [10**6] * 8
    assert recipe(["a" * length for length in lengths])["model.context"].value == context


@pytest.mark.parametrize(
    ("more", "tokenizer", "told"),
    [
        ([], ("word", 10, True), "the most frequent words; a vocabulary of 10; no capitals"),
        (["--vocab", "600"], ("word", 600, True), "the most frequent words; no capitals"),
        (["--set", "tokenizer.lower=false"], ("word", 10, False), "the most frequent words; a vocabulary of 10;"),
        (["--tokenizer", "word"], ("word", 0, False), "counted first, which pays most of all; size micro"),
        (["--preset", "gpt"], ("bpe", 0, False), "counted first, which pays most of all; size micro"),
    ],
)
def test_what_is_named_of_a_tokenizer_stays(
    more: list[str], tokenizer: tuple[str, int, bool], told: str, sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[PretrainConfig] = []
    monkeypatch.setattr("headstart.cli.learn.show_estimate", lambda config, *others: found.append(config))
    monkeypatch.setattr("headstart.jobs.recipe.FEWEST_TOKENS", 1)
    monkeypatch.setattr("headstart.jobs.recipe.COUNTED_ENTRIES", 10)
    words = ["pretrain", str(sentences), "--objective", "auto", "--steps", "2", "--dry-run", "--unit", "line"]
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, done.output
    assert (found[0].tokenizer.kind, found[0].tokenizer.vocab, found[0].tokenizer.lower) == tokenizer
    assert told in done.stderr


@pytest.mark.parametrize(
    ("more", "objective", "told"),
    [
        ({}, "masked", "masked"),
        ({"--preset": "gpt"}, "causal", "causal"),
        ({"--teacher": "minilm"}, "distill", "distilling minilm"),
    ],
)
def test_a_teacher_or_a_preset_settles_the_objective(
    more: dict[str, str], objective: str, told: str, sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[PretrainConfig] = []
    monkeypatch.setattr("headstart.cli.learn.show_estimate", lambda config, *others: found.append(config))
    words = ["pretrain", str(sentences), "--objective", "auto", "--steps", "2", "--dry-run", "--unit", "line"]
    done = CliRunner().invoke(app, [*words, *(word for flag in more.items() for word in flag)])
    assert done.exit_code == 0, done.output
    assert found[0].objective == objective
    assert f"Chosen: {told}; from random" in done.stderr


def test_a_folder_that_is_taken_is_told_before_anything_is_timed(sentences: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    words = ["pretrain", str(sentences), "--minutes", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "already exists" in done.stderr
    assert "Preparing" not in done.stderr


def test_flags_win_over_what_is_chosen(sentences: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", str(sentences), "--objective", "auto", "--size", "nano", "--steps", "2", "--unit", "line",
             "--out", str(run)]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Chosen: masked; from random" in done.stderr
    assert "size micro" not in done.stderr
    config = load_run_config(run / "config.toml")
    assert isinstance(config, PretrainConfig)
    assert (config.objective, config.start, config.model.layers, config.train.steps) == ("masked", "random", 3, 2)
    again = CliRunner().invoke(app, [*words, "--resume"])
    assert again.exit_code == 0, again.output
    quiet = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "other"), "--preset", "bert", "--quiet"])
    assert quiet.exit_code == 0, quiet.output
    assert "Chosen" not in quiet.stderr


def test_the_settings_of_a_file_win_over_what_is_chosen(sentences: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'objective = "causal"\n[model]\nsize = "nano"\ncontext = 40\n[train]\nsteps = 2\n', "utf-8"
    )
    words = ["pretrain", str(sentences), "--objective", "auto", "--config", str(tmp_path / "own.toml"),
             "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    config = load_run_config(tmp_path / "run" / "config.toml")
    assert isinstance(config, PretrainConfig)
    assert config.objective == "masked"  # that is what auto was asked for
    assert (config.model.layers, config.model.context, config.train.steps) == (3, 40, 2)


def test_auto_has_ten_minutes_unless_others_are_named(
    sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.jobs.recipe.MINUTES", 0.0)
    done = CliRunner().invoke(app, ["pretrain", str(sentences), "--objective", "auto", "--out", str(tmp_path / "run")])
    assert done.exit_code == 4
    assert "--minutes 0: preparing alone takes" in done.stderr
