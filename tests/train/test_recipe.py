"""--objective auto: what is chosen for whom, and that flags win over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig, load_run_config
from headstart.train.recipe import recipe


def test_much_text_is_counted_and_then_masked() -> None:
    chosen = recipe([900] * 2000, None)
    assert chosen.settings == {
        "objective": "masked", "start": "cooccurrence", "model.size": "micro", "model.context": 256,
    }  # fmt: skip
    assert "most texts are read whole" in chosen.why


def test_little_text_begins_random_and_is_told_so() -> None:
    chosen = recipe([900] * 20, None)
    assert chosen.settings["start"] == "random"
    assert "nothing has been seen to pay there" in chosen.why


@pytest.mark.parametrize(("characters", "context"), [(100, 128), (570, 128), (580, 256), (2000, 512), (90_000, 128)])
def test_the_context_is_as_long_as_nine_texts_in_ten_unless_these_are_books(characters: int, context: int) -> None:
    assert recipe([10] * 80 + [characters] * 12 + [10**6] * 8, None).settings["model.context"] == context


def test_a_teacher_is_learned_from() -> None:
    chosen = recipe([900] * 2000, "some/folder/minilm")
    assert chosen.settings["objective"] == "distill"
    assert "distilling minilm" in chosen.why


def test_flags_win_over_what_is_chosen(sentences: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", str(sentences), "--objective", "auto", "--size", "nano", "--steps", "2", "--unit", "line",
             "--out", str(run)]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Chosen: masked, from random" in done.stderr
    config = load_run_config(run / "config.toml")
    assert isinstance(config, PretrainConfig)
    assert (config.objective, config.start, config.model.layers, config.train.steps) == ("masked", "random", 3, 2)
    again = CliRunner().invoke(app, [*words, "--resume"])
    assert again.exit_code == 0, again.output


def test_auto_has_ten_minutes_unless_others_are_named(
    sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.train.recipe.MINUTES", 0.0)
    done = CliRunner().invoke(app, ["pretrain", str(sentences), "--objective", "auto", "--out", str(tmp_path / "run")])
    assert done.exit_code == 4
    assert "--minutes 0: preparing alone takes" in done.stderr
