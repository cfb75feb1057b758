"""A run that was killed and resumed is, to the last bit, the run that was not."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig
from headstart.errors import ConfigError, DataError, ModelError
from headstart.jobs.pretrain import pretrain
from headstart.runs.run import Run
from tests.jobs.killed import (
    COMMON,
    CONTRASTIVE,
    FINETUNE,
    MASKED,
    NUMBERS,
    PAIRS,
    PRETRAIN,
    SENTENCES,
    SEVERAL,
    STARS,
    TAGS,
    as_words,
    finish,
    kill_at_line,
    lines_of,
    start,
    what_remains,
    write_data,
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the pretraining run leaves when nothing happens to it."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole") / "run"
    finish(PRETRAIN, out, files)
    return what_remains(out)


@pytest.fixture(scope="module")
def killed(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, killed on its way."""
    out = tmp_path_factory.mktemp("killed") / "run"
    process = start(PRETRAIN, out, files)
    kill_at_line(process, out / "log.jsonl", 60)
    assert not (out / "result.json").exists()
    return out


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be harmed."""
    return Path(shutil.copytree(killed, tmp_path / "stopped"))


def test_a_killed_pretraining_run_resumes_to_the_same_bits(
    stopped: Path, whole: dict[str, Any], files: dict[str, str]
) -> None:
    finish(PRETRAIN, stopped, files, resume=True)
    assert what_remains(stopped) == whole


@pytest.mark.parametrize(
    "command",
    [MASKED, FINETUNE, CONTRASTIVE, NUMBERS, SEVERAL, STARS, TAGS, PAIRS],
    ids=["masked", "finetune", "contrastive", "regression", "multilabel", "ordinal", "tag", "pairs"],
)
def test_a_killed_run_of_another_kind_resumes_to_the_same_bits(
    command: list[str], files: dict[str, str], tmp_path: Path
) -> None:
    finish(command, tmp_path / "whole", files)
    out = tmp_path / "killed"
    kill_at_line(start(command, out, files), out / "log.jsonl", 48)
    assert not (out / "result.json").exists()
    finish(command, out, files, resume=True)
    assert what_remains(out) == what_remains(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_random_kills_in_chains_lose_nothing(
    whole: dict[str, Any], files: dict[str, str], tmp_path: Path
) -> None:
    """A kill waits for a line of the log, not for a time: on a slow machine most of the time is the start."""
    dice, kills, chains, landed, steps = random.Random(0), 0, 0, set(), len(whole["log"])
    while kills < 20:
        out = tmp_path / f"killed-{chains}"
        log, chains = out / "log.jsonl", chains + 1
        for _ in range(dice.randint(1, 3)):
            words = as_words(PRETRAIN, out, files, resume=(out / "env.json").exists())
            command = [sys.executable, "-m", "headstart", *words]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            line = dice.randrange(-steps // 5, steps)
            if line > lines_of(log):
                while process.poll() is None and lines_of(log) < line:
                    time.sleep(0.001)
                time.sleep(dice.uniform(0, 0.05))
            else:
                time.sleep(dice.uniform(0, 3))  # while it starts
            if process.poll() is None:
                process.kill()
                kills += 1
                landed.add(lines_of(log))
            process.communicate()
        finish(PRETRAIN, out, files, resume=(out / "env.json").exists())
        assert what_remains(out) == whole, f"chain {chains}"
    assert len(landed) > 5, f"the kills did not spread over the run: {sorted(landed)}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_saves_everything_first(number: int, code: int, files: dict[str, str], tmp_path: Path) -> None:
    command = [*PRETRAIN, "--set", "train.checkpoint_every=1000"]  # so that only the signal saves
    out = tmp_path / "run"
    process = start(command, out, files)
    while lines_of(out / "log.jsonl") < 20:
        time.sleep(0.001)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "--resume" in err
    assert max(p.name for p in (out / "checkpoints").iterdir()) > "step-0000015"


def test_a_terminal_that_goes_away_saves_everything_too(files: dict[str, str], tmp_path: Path) -> None:
    """Its progress can no longer be drawn, which is no reason to fail."""
    out, (ours, theirs) = tmp_path / "run", os.openpty()
    words = [word.format(**files) for word in [*PRETRAIN, "--set", "train.checkpoint_every=1000"]]
    command = [sys.executable, "-m", "headstart", *words, *COMMON, "--out", str(out)]
    command = [word for word in command if word not in ("--quiet", "--json")]
    process = subprocess.Popen(command, preexec_fn=lambda: os.login_tty(theirs))
    os.close(theirs)
    reader = threading.Thread(target=drained, args=(ours,), daemon=True)
    reader.start()
    while lines_of(out / "log.jsonl") < 20:
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)  # so that the terminal goes while the bar is at work
    os.close(ours)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 129
    assert max(p.name for p in (out / "checkpoints").iterdir()) > "step-0000005"


def drained(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    harm: str, stopped: Path, whole: dict[str, Any], files: dict[str, str]
) -> None:
    newest = max((stopped / "checkpoints").glob("step-*"))
    file = newest / ("MANIFEST.json" if harm == "manifest" else "model.safetensors")
    data = bytearray(file.read_bytes())
    if harm == "delete":
        file.unlink()
    elif harm == "truncate":
        file.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    finish(PRETRAIN, stopped, files, resume=True)
    assert what_remains(stopped) == whole


def test_when_every_checkpoint_is_damaged_nothing_starts_over(stopped: Path) -> None:
    for file in (stopped / "checkpoints").glob("*/state.json"):
        file.write_text("{}")
    before = (stopped / "log.jsonl").read_bytes()
    with pytest.raises(ModelError, match="no checkpoint can be used"):
        resume_again(stopped)
    assert (stopped / "log.jsonl").read_bytes() == before


def test_a_changed_corpus_is_noticed(stopped: Path, files: dict[str, str]) -> None:
    corpus = Path(files["corpus"])
    before = corpus.read_text()
    corpus.write_text(before + "\nOne more.")
    try:
        with pytest.raises(DataError, match="changed since") as caught:
            resume_again(stopped)
    finally:
        corpus.write_text(before)
    assert caught.value.code == "DATA_CHANGED"


def test_a_file_that_is_gone_from_a_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.txt").write_text("\n".join(SENTENCES[i * 20 : i * 20 + 20]))
    process = start(PRETRAIN, tmp_path / "run", {"corpus": str(folder)})
    kill_at_line(process, tmp_path / "run" / "log.jsonl", 20)
    (folder / "1.txt").unlink()
    with pytest.raises(DataError, match=r"1\.txt: changed since"):
        resume_again(tmp_path / "run")


def resume_again(out: Path) -> None:
    pretrain(Run(out).asked(PretrainConfig), out, resume=True)


def test_resuming_a_finished_run_gives_its_result_again(files: dict[str, str], tmp_path: Path) -> None:
    command = [*PRETRAIN, "--steps", "5"]
    first = finish(command, tmp_path / "run", files)
    assert finish(command, tmp_path / "run", files, resume=True) == first


def test_resuming_with_other_settings_is_refused(stopped: Path, files: dict[str, str]) -> None:
    words = [word.format(**files) for word in PRETRAIN] + ["--seed", "4", "--out", str(stopped), "--resume"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4
    assert "train.seed: 3, not 4" in done.stderr
    asked = Run(stopped).asked(PretrainConfig)
    other = asked.model_copy(update={"train": asked.train.model_copy(update={"lr": 0.5})})
    with pytest.raises(ConfigError, match=r"train\.lr: 0\.001, not 0\.5"):
        pretrain(other, stopped, resume=True)


def test_a_run_may_go_on_with_other_threads_and_says_that_its_bits_may_differ(stopped: Path, tmp_path: Path) -> None:
    words = ["pretrain", "--out", str(stopped), "--resume", "--json", "--threads", "2", "--set", "train.log_every=5"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "not bit-identical: threads 1 -> 2." in done.stderr
    assert json.loads(done.stdout)["not_bit_identical"] == ["threads 1 -> 2"]
    assert Run.open(stopped).read_json("env.json")["not_bit_identical"] == ["threads 1 -> 2"]


def test_a_run_killed_as_it_began_is_simply_begun_again(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    finish([*PRETRAIN, "--steps", "3"], tmp_path / "run", files)


def test_checkpoints_left_by_a_kill_at_the_very_end_are_cleared_away(files: dict[str, str], tmp_path: Path) -> None:
    command = [*PRETRAIN, "--steps", "5"]
    finish(command, tmp_path / "run", files)
    (tmp_path / "run" / "checkpoints" / "step-0000005").mkdir(parents=True)
    finish(command, tmp_path / "run", files, resume=True)
    assert not (tmp_path / "run" / "checkpoints").exists()
