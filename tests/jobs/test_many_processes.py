"""Processes that train one model are killed and stopped: the run goes on, on any number of them, to the same bits."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headstart.cli import app
from tests.forked import Forked, headstart

SENTENCES = [f"{who} {verb} {what} {animal}." for who in ("I", "She", "He") for verb in ("hold", "rub", "see")
             for what in ("a", "the") for animal in ("dog", "cat", "bird", "fish")]  # fmt: skip
JOB = ["pretrain", "corpus.txt", "--unit", "line", "--tokenizer", "word", "--size", "nano", "--steps", "50", "--batch-size", "2", "--threads",
       "1", "--quiet", "--set", "train.accumulate=4", "--set", "train.eval_every=20", "--set", "train.checkpoint_every=7", "--set",
       "train.log_every=1", "--set", "train.tensorboard=false"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "corpus.txt").write_text("\n".join(SENTENCES))
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> str:
    """The weights of the run that nothing happens to, in one process."""
    return finish(folder, "whole")


def finish(folder: Path, name: str) -> str:
    """Begin or go on in this process, which has torch loaded already; the SHA-256 of the weights."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, [*JOB, "--out", name, *(["--resume"] if (folder / name).exists() else [])])
    assert done.exit_code == 0, done.output
    assert "not_bit_identical" not in json.loads((folder / name / "result.json").read_text())
    return hashlib.sha256((folder / name / "model" / "model.safetensors").read_bytes()).hexdigest()


def start(folder: Path, name: str, processes: int, *more: str) -> Forked:
    words = [
        *JOB,
        *more,
        "--out",
        name,
        "--processes",
        str(processes),
        *(["--resume"] if (folder / name).exists() else []),
    ]
    return headstart(words, folder)


def wait_for_line(process: Forked, log: Path, lines: int) -> None:
    while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= lines):
        time.sleep(0.001)


def children(process: Forked) -> list[int]:
    """The processes that it started, in the order of their ranks."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def kill_one(process: Forked, log: Path, line: int, rank: int) -> None:
    """Kill one of them once the log has that many lines; all end soon, and the exit code says why."""
    wait_for_line(process, log, line)
    pids = children(process)
    os.kill(pids[rank], signal.SIGKILL)
    began = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert time.monotonic() - began < 60
    assert process.returncode == 137, told
    assert told.startswith("error[PROCESS_LOST]: Process ")
    assert "--resume" in told
    assert not any(
        Path(f"/proc/{pid}/cmdline").exists() and b"headstart" in Path(f"/proc/{pid}/cmdline").read_bytes()
        for pid in pids
    )


def test_a_killed_process_ends_the_job_which_goes_on_with_any_number(folder: Path, whole: str) -> None:
    log = folder / "killed" / "log.jsonl"
    kill_one(start(folder, "killed", 2), log, 20, rank=1)
    kill_one(start(folder, "killed", 3), log, 35, rank=0)
    assert finish(folder, "killed") == whole


def test_a_signal_saves_everything_first(folder: Path, whole: str) -> None:
    process = start(folder, "stopped", 2, "--set", "train.checkpoint_every=1000")  # so that only the signal saves
    wait_for_line(process, folder / "stopped" / "log.jsonl", 15)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert told.count("error[") == 1
    assert "--resume" in told
    kept = [int(path.name.removeprefix("step-")) for path in (folder / "stopped" / "checkpoints").iterdir()]
    assert max(kept) > 5
    assert finish(folder, "stopped") == whole


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_kills_of_a_random_process_lose_nothing(folder: Path, whole: str) -> None:
    dice, kills, chains = random.Random(0), 0, 0
    while kills < 20:
        name, chains = f"chain-{chains}", chains + 1
        for part in range(dice.randint(1, 3)):
            count = dice.choice((2, 3, 4))
            process = start(folder, name, count)
            kill_one(
                process,
                folder / name / "log.jsonl",
                dice.randrange(15 * part + 1, 15 * part + 16),
                dice.randrange(count),
            )
            kills += 1
        assert finish(folder, name) == whole, name
