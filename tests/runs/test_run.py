"""The run directory: one owner at a time, a log that survives being cut, and settings that hold."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import PretrainConfig, TrainConfig
from headstart.errors import BusyError, ConfigError, ModelError, ResourceError, Stopped, UserError
from headstart.models.heads import Model
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.run import Run, runs_in
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.tasks.language import Language
from headstart.text.batch import Batch

CONFIG = parse(PretrainConfig, {"data": {"paths": ["unused.txt"]}})

RACE = """
import os, sys
from pathlib import Path
from headstart.config import PretrainConfig
from headstart.schema import parse
from headstart.errors import UserError
from headstart.runs.run import Run

config = parse(PretrainConfig, {"data": {"paths": ["unused.txt"]}})
begin, results = os.pipe(), os.pipe()

def contend(path, gives_up):
    os.close(begin[1])
    os.read(begin[0], 1)  # until the parent closes its end
    try:
        with Run.start(path, False, config, 1) as run:
            assert run.read_json("env.json")["asked"]["job"] == "pretrain"
            if gives_up:
                raise KeyError  # nothing was learned, so it leaves nothing behind
            run.log({"pid": os.getpid()})
            os.write(results[1], b"won ")
            os.read(hold[0], 1)
    except UserError as error:
        os.write(results[1], error.code.encode() + b" ")
    except KeyError:
        os.write(results[1], b"gave_up ")
    os._exit(0)

for round in range(int(sys.argv[2])):
    path = Path(sys.argv[1]) / f"run-{round}"
    begin, hold = os.pipe(), os.pipe()
    children = []
    for i in range(8):
        child = os.fork()
        if not child:
            os.close(hold[1])
            contend(path, gives_up=round % 2 and i % 2)
        children.append(child)
    os.close(begin[0]), os.close(begin[1])
    said = b""
    while said.count(b" ") < 8:
        said += os.read(results[0], 1000)
    os.close(hold[0]), os.close(hold[1])
    for child in children:
        os.waitpid(child, 0)
    sys.stdout.write(said.decode() + "\\n")
"""


def test_of_eight_processes_at_once_never_two_have_the_run(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RACE, str(tmp_path), "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rounds = [line.split() for line in done.stdout.splitlines()]
    assert len(rounds) == 20
    for number, said in enumerate(rounds):
        assert set(said) <= {"won", "RUN_BUSY", "RUN_EXISTS", "gave_up"}
        assert said.count("won") == 1 or (number % 2 and said.count("won") == 0)
        if "won" in said:
            assert len(list(Run(tmp_path / f"run-{number}").read_lines("log.jsonl"))) == 1


def test_a_run_that_came_and_went_before_the_lock_was_taken_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "run", fcntl.flock

    def late(*args: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        (path / "env.json").write_text("theirs")
        flock(*args)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UserError, match="already exists"):
        Run.start(path, False, CONFIG, 1)
    assert (path / "env.json").read_text() == "theirs"


def test_the_lock_of_a_folder_that_was_just_removed_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "run", fcntl.flock

    def late(*args: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        shutil.rmtree(path)
        flock(*args)

    monkeypatch.setattr(fcntl, "flock", late)
    with Run.start(path, False, CONFIG, 1) as run:
        with pytest.raises(BusyError, match="in use by pid"):
            Run.start(path, True, CONFIG, 1)
        run.log({})


RECORDS = [{"step": i, "text": "naïve \u2028 日本 \U0001f600\r\n", "split": "sample"} for i in range(4)]


def test_a_log_cut_at_any_byte_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    with Run.start(tmp_path / "run", False, CONFIG, 1) as run:
        for record in RECORDS:
            run.log(record)
    whole = (run.path / "log.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == len(RECORDS)
    for cut in range(len(whole) + 1):
        (run.path / "log.jsonl").write_bytes(whole[:cut])
        assert list(run.read_lines("log.jsonl")) == RECORDS[: sum(end <= cut for end in ends)]
        again, whole_lines = Run(run.path), max((end for end in ends if end <= cut), default=0)
        again.cut_log(whole_lines)
        again.log({"step": 9})
        again.close()
        assert (run.path / "log.jsonl").read_bytes() == whole[:whole_lines] + b'{"step": 9}\n'


def test_a_damaged_line_within_the_log_is_named(tmp_path: Path) -> None:
    with Run.start(tmp_path / "run", False, CONFIG, 1) as run:
        run.log({"step": 1})
    for damage in (b"{\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"):
        (run.path / "log.jsonl").write_bytes(b'{"step": 1}\n' + damage + b'{"step": 2}\n')
        with pytest.raises(ModelError, match=r"log\.jsonl, line 2: damaged") as e:
            list(run.read_lines("log.jsonl"))
        assert e.value.exit_code == 5


@pytest.mark.parametrize("seed", range(4))
def test_kills_anywhere_in_a_chain_of_resumes_lose_nothing(
    seed: int, bench: Any, disk: Any, tmp_path: Path, log_of: Any
) -> None:
    with disk.counting() as operations:
        whole, run = bench.train(tmp_path / "whole")
    total, dice, path = len(operations), random.Random(seed), tmp_path / "killed"
    for _ in range(5):
        try:
            with disk.killing(dice.randrange(total // 2)):
                bench.train(path, resume=(path / "env.json").exists())
        except disk.Killed:
            continue
        break
    again, resumed = bench.train(path, resume=(path / "env.json").exists())
    assert fingerprint(weights(again)) == fingerprint(weights(whole))
    assert log_of(resumed) == log_of(run)
    assert not list(path.rglob(".*.tmp"))


def test_a_signal_in_the_middle_of_an_evaluation_is_heeded_there(bench: Any, tmp_path: Path, log_of: Any) -> None:
    class Interrupted(Language):
        seen = 0

        def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
            self.seen += 1
            if self.seen == 2:
                batches = iter(batches)
                next(batches)
                signal.raise_signal(signal.SIGTERM)
                next(batches)
                pytest.fail("the evaluation went on")
            return super().evaluate(model, batches)

    whole, run = bench.train(tmp_path / "whole")
    with pytest.raises(Stopped, match="Stopped at step 6 of 12; everything is saved") as e:
        bench.train(tmp_path / "run", task=Interrupted(None))
    assert e.value.exit_code == 143
    again, resumed = bench.train(tmp_path / "run", resume=True)
    assert fingerprint(weights(again)) == fingerprint(weights(whole))
    assert log_of(resumed) == log_of(run)


class At(Watch):
    """Does something after a step."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.step, self.action = step, action

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        if done == self.step:
            self.action()


def test_a_hangup_saves_unless_it_is_ignored_as_nohup_asks(bench: Any, tmp_path: Path) -> None:
    hangup = At(3, lambda: signal.raise_signal(signal.SIGHUP))
    with pytest.raises(Stopped, match="Stopped at step 3 of 12; everything is saved") as e:
        bench.train(tmp_path / "run", watch=hangup)
    assert e.value.exit_code == 129
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        bench.train(tmp_path / "ignored", watch=hangup)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "ignored" / "checkpoints" / "step-0000012").exists()


@pytest.mark.parametrize("stop", [True, False])
def test_a_run_directory_that_is_gone_is_not_said_to_be_saved(stop: bool, bench: Any, tmp_path: Path) -> None:
    def remove() -> None:
        shutil.rmtree(tmp_path / "run")
        if stop:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(
        ResourceError, match=r"run was removed or renamed while .* step \d is lost\. Begin a new run\.$"
    ) as e:
        bench.train(tmp_path / "run", watch=At(3, remove))
    assert (e.value.exit_code, e.value.code) == (6, "RUN_GONE")
    assert not (tmp_path / "run").exists()


def test_settings_that_changed_on_disk_are_not_gone_on_with(bench: Any, tmp_path: Path) -> None:
    """Were they taken, training would end another time, or learn at another rate, without a word."""
    bench.train(tmp_path / "run", steps=2)
    env = json.loads((tmp_path / "run" / "env.json").read_text())
    env["asked"]["train"]["steps"] = 2_000_000
    (tmp_path / "run" / "env.json").write_text(json.dumps(env))
    with pytest.raises(
        ModelError, match=r"env\.json is damaged \(its settings are not those that the run began with\)"
    ):
        Run(tmp_path / "run").asked(PretrainConfig)


def test_a_damaged_run_is_listed_as_damaged_and_hides_no_other(bench: Any, tmp_path: Path) -> None:
    for name in ("cut", "folder", "list", "number", "pipe", "whole"):
        bench.train(tmp_path / name, steps=1)
    for name, harm in (("cut", b'{"format": 1, "vers'), ("list", b"[]"), ("number", b'{"format": 1, "seed": "x"}')):
        (tmp_path / name / "env.json").write_bytes(harm)
    for name, make in (("folder", os.mkdir), ("pipe", os.mkfifo)):
        (tmp_path / name / "env.json").unlink()
        make(tmp_path / name / "env.json")
    states = {Path(run.path).name: run.summary() for run in runs_in(tmp_path)}
    assert {name: found["state"] for name, found in states.items()} == {
        **dict.fromkeys(("cut", "folder", "list", "number", "pipe"), "damaged"),
        "whole": "unfinished",
    }
    assert "env.json is damaged (seed: Input should be a valid integer)" in states["number"]["problem"]
    done = CliRunner().invoke(app, ["runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.count(" damaged ") == 5
    assert done.stdout.count("\n! ") == 5


def test_a_second_interrupt_does_not_wait(bench: Any, tmp_path: Path, log_of: Any) -> None:
    class Impatient(Language):
        def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
            if (tmp_path / "run" / "checkpoints" / "step-0000004").exists():
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                pytest.fail("it waited")
            return super().evaluate(model, batches)

    whole, run = bench.train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        bench.train(tmp_path / "run", task=Impatient(None))
    again, resumed = bench.train(tmp_path / "run", resume=True)
    assert fingerprint(weights(again)) == fingerprint(weights(whole))
    assert log_of(resumed) == log_of(run)


def changed(cfg: PretrainConfig, name: str, value: Any) -> PretrainConfig:
    table, _, key = name.rpartition(".")
    if not table:
        return cfg.model_copy(update={key: value})
    return cfg.model_copy(update={table: getattr(cfg, table).model_copy(update={key: value})})


OTHER: dict[str, Any] = {
    **{f"train.{name}": 7 for name in TrainConfig.model_fields},
    "train.device": "mps",
    "train.gradients": "all-reduce",
    "train.precision": "bf16",
    "train.checkpoint_layers": True,
    "train.compile": True,
    "train.shard": True,
    "train.tensorboard": False,
    "train.keep_checkpoints": True,
    "data.paths": ("other.txt",),
    "data.unit": "line",
    "tokenizer.kind": "word",
    "tokenizer.vocab": 9,
    "model.width": 8,
    "model.vocab": 4,
    "objective": "masked",
    "samples": ("a", "b"),
}


MAY = [
    *("train.threads", "train.device"),
    *("train.log_every", "train.checkpoint_every", "train.keep_checkpoints", "train.tensorboard"),
    *("train.skip_nonfinite", "train.gradients", "train.checkpoint_layers", "train.shard"),
]


@pytest.mark.parametrize("name", OTHER)
def test_a_resumed_run_keeps_every_setting_but_those_that_may_change(name: str, tmp_path: Path) -> None:
    with Run.start(tmp_path / "run", False, CONFIG, 1) as run:
        run.log({})
    other = changed(CONFIG, name, OTHER[name])
    if name in MAY:
        Run.start(run.path, True, other, 1).close()
        assert Run(run.path).asked(PretrainConfig) == other, "the next resume goes on from here"
        return
    with pytest.raises(ConfigError) as e:
        Run.start(run.path, True, other, 1)
    message = str(e.value)
    before, _, may = message.partition("Only these may change: ")
    assert f"other settings: {name}: " in before
    assert may.rstrip(".").split(", ") == MAY
    assert Run(run.path).asked(PretrainConfig) == CONFIG


def test_what_costs_the_last_bits_is_told_and_kept(bench: Any, notes: Any, tmp_path: Path) -> None:
    bench.train(tmp_path / "run", steps=4)
    env = json.loads((tmp_path / "run" / "env.json").read_text())
    env["threads"], env["versions"]["torch"] = 8, "1.0"
    (tmp_path / "run" / "env.json").write_text(json.dumps(env))
    _, run = bench.train(tmp_path / "run", resume=True, watch=notes, steps=4)
    now = run.read_json("env.json")
    changes = ["threads 8 -> 1", f"torch 1.0 -> {now['versions']['torch']}"]
    assert [note for note in notes.notes if "bit" in note] == [f"Note: not bit-identical: {c}." for c in changes]
    assert (now["threads"], now["not_bit_identical"]) == (1, changes)
    bench.train(run.path, resume=True, watch=notes, steps=4)  # the same again: nothing new to tell
    assert run.read_json("env.json") == now
    assert run.finish({"steps": 4})["not_bit_identical"] == changes
    assert json.loads((run.path / "result.json").read_text())["not_bit_identical"] == changes


def test_runs_and_checkpoints_are_ordered_by_name_and_step_whatever_the_clock_says(bench: Any, tmp_path: Path) -> None:
    for name in ("b", "a"):
        bench.train(tmp_path / name, steps=4)
    newest = max((tmp_path / "a" / "checkpoints").iterdir())
    for path in [newest, *newest.iterdir(), tmp_path / "a" / "log.jsonl", tmp_path / "b" / "env.json"]:
        os.utime(path, (0, 0))  # the clock was set back in between
    at = bench.open(tmp_path / "a")
    at.run.close()
    assert at.now.step == 4
    assert [run.path.name for run in runs_in(tmp_path)] == ["a", "b"]


def test_a_run_killed_while_it_wrote_its_first_file_can_be_begun_again(disk: Any, tmp_path: Path) -> None:
    with disk.counting() as operations:
        Run.start(tmp_path / "count", False, CONFIG, 1).close()
    for at in range(len(operations)):
        path = tmp_path / f"run-{at}"
        try:
            with disk.killing(at):
                Run.start(path, False, CONFIG, 1)
        except disk.Killed:
            pass
        Run.start(path, (path / "env.json").exists(), CONFIG, 1).close()
        assert sorted(p.name for p in path.iterdir()) == [".lock", "env.json"]
        shutil.rmtree(path)
