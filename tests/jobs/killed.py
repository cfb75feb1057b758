"""Runs that are killed: their commands and data, the processes, the kill, and what a run leaves behind."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headstart.cli import app
from tests.clock import without
from tests.forked import Forked, headstart

COMMON = [
    "--threads",
    "1",
    "--seed",
    "3",
    "--quiet",
    "--json",
    "--set",
    "train.log_every=1",
    "--set",
    "train.tensorboard=false",
]
PRETRAIN = ["pretrain", "{corpus}", "--unit", "line", "--tokenizer", "word", "--size", "nano", "--steps", "120", "--batch-size", "8",
            "--set", "train.eval_every=20", "--set", "train.checkpoint_every=7"]  # fmt: skip
MASKED = [*PRETRAIN, "--objective", "masked", "--set", "train.accumulate=2"]
FINETUNE = ["finetune", "{labelled}", "--base", "gpt", "--init", "scratch", "--size", "nano", "--tokenizer", "word", "--epochs", "12",
            "--batch-size", "4", "--set", "train.checkpoint_every=7"]  # fmt: skip
CONTRASTIVE = [*FINETUNE, "--objective", "contrastive"]
NUMBERS, SEVERAL, STARS, TAGS, PAIRS = (
    [word.replace("labelled", task) for word in FINETUNE] for task in ("numbers", "several", "stars", "tags", "pairs")
)
SENTENCES = [f"{who} {verb} {what} {animal}." for who in ("I", "She", "He") for verb in ("hold", "rub", "see")
             for what in ("a", "the") for animal in ("dog", "cat", "bird", "fish")]  # fmt: skip
REVIEWS = [f"film {i} was {('dull', 'fine')[i % 2]} to the end,{('bad', 'good')[i % 2]}" for i in range(80)]
CLOCK = ("wall", "seconds", "preparing_seconds", "tokens_per_second", "run")


def start(command: list[str], out: Path, files: dict[str, str], resume: bool = False) -> Forked:
    return headstart(as_words(command, out, files, resume))


def as_words(command: list[str], out: Path, files: dict[str, str], resume: bool) -> list[str]:
    words = [word.format(**files) for word in command] + COMMON + ["--out", str(out)]
    return [*words, *(["--resume"] if resume else [])]


def finish(command: list[str], out: Path, files: dict[str, str], resume: bool = False) -> dict[str, Any]:
    """The same command in this process, which has torch loaded already."""
    done = CliRunner().invoke(app, as_words(command, out, files, resume))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines_of(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill_at_line(process: Forked, log: Path, lines: int) -> None:
    """Kill -9 once the log has that many lines, wherever the process then is."""
    while process.poll() is None:
        if lines_of(log) >= lines:
            process.kill()
            break
        time.sleep(0.001)
    process.communicate()


def what_remains(out: Path) -> dict[str, Any]:
    """Everything a run leaves behind, apart from what the clock decides."""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    result = json.loads((out / "result.json").read_text())
    remains: dict[str, Any] = {
        "weights": hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest(),
        "log": without(CLOCK, log),
        "result": without(CLOCK, result),
        "checkpoints": (out / "checkpoints").exists(),
    }
    for name in ("predictions.jsonl", "receipt.json"):
        if (out / name).exists():
            remains[name] = (out / name).read_text()
    return remains


def write_data(folder: Path) -> dict[str, str]:
    """What the commands read, by the names that stand for it in them."""
    (folder / "corpus.txt").write_text("\n".join(SENTENCES))
    (folder / "labelled.csv").write_text("\n".join(["text,label", *REVIEWS]))
    for task, label in (
        ("numbers", lambda i: i * 1.5 % 7),
        ("several", lambda i: ("", "a|b", "b|c", "a|c")[i % 4]),
        ("stars", lambda i: i % 5),
    ):
        rows = [f"film {i} was {('dull', 'fine', 'so')[i % 3]} to the end,{label(i)}" for i in range(80)]
        (folder / f"{task}.csv").write_text("\n".join([f"text,{'stars' if task == 'stars' else 'label'}", *rows]))
    sentences = [f"film O\n{i} B-NUM\nwas O\n{('dull', 'fine')[i % 2]} B-ADJ\n" for i in range(80)]
    (folder / "tags.conll").write_text("\n".join(sentences))
    pairs = [f"film {i} was {('dull', 'fine')[i % 2]},it was {('dull', 'fine')[i // 2 % 2]},{'yes' if i % 2 == i // 2 % 2 else 'no'}" for i in range(80)]  # fmt: skip
    (folder / "pairs.csv").write_text("\n".join(["sentence1,sentence2,label", *pairs]))
    tables = {name: str(folder / f"{name}.csv") for name in ("labelled", "numbers", "several", "stars", "pairs")}
    return {"corpus": str(folder / "corpus.txt"), "tags": str(folder / "tags.conll"), **tables}
