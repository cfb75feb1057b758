"""A disk that is full, fails or forbids costs an interval at most, and says so in one sentence."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headstart.config import PretrainConfig
from headstart.errors import ResourceError
from headstart.jobs.pretrain import pretrain
from headstart.runs.checkpoint import Saver, fingerprint, weights
from headstart.runs.disk import write_file
from headstart.runs.watch import Watch
from headstart.schema import parse


@pytest.fixture(scope="module")
def trained(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with the checkpoints of steps 2 and 4."""
    path = tmp_path_factory.mktemp("trained") / "run"
    bench.train(path, steps=4)
    return path


@pytest.fixture
def whole(bench: Any, tmp_path_factory: pytest.TempPathFactory, log_of: Any) -> tuple[str, list[Any]]:
    """The weights and the log of a run that nothing happens to."""
    model, run = bench.train(tmp_path_factory.mktemp("whole") / "run")
    return fingerprint(weights(model)), log_of(run)


def about_to_save(bench: Any, path: Path, watch: Watch | None = None) -> tuple[Any, Any]:
    at = bench.open(path)
    at.now.step = 6
    at.run.log({"step": 6})
    return at, Saver(at.run, at.model, at.optimizer, watch or Watch(), saved=4)


@pytest.mark.parametrize(
    ("error", "kept_up"),
    [(errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, False), (errno.EIO, True), (errno.EROFS, True)],
    ids=["full once", "full for good", "faulty once", "faulty for good", "read-only for good"],
)
def test_a_fault_at_every_operation_of_a_save_leaves_the_checkpoint_before(
    error: int, kept_up: bool, trained: Path, bench: Any, disk: Any, tmp_path: Path
) -> None:
    trial = Path(shutil.copytree(trained, tmp_path / "trial"))
    old = bench.open(trial)
    old.run.close()
    at, saver = about_to_save(bench, trial)
    with disk.counting() as operations:
        saver.save(at.now, at.best, insist=True)
    at.run.close()
    new, outcomes = at.state(), []
    for k in range(len(operations)):
        shutil.rmtree(trial)
        shutil.copytree(trained, trial)
        at, saver = about_to_save(bench, trial)
        refused = None
        kinds = (*disk.WRITES, *disk.OTHERS) if error == errno.EIO else disk.WRITES
        with disk.failing(error, k, times=10**9 if kept_up else 1, kinds=kinds):
            try:
                saver.save(at.now, at.best, insist=True)
            except ResourceError as refusal:
                refused = refusal
        at.run.close()
        if error != errno.EIO:  # a disk that fails at everything cannot be cleaned either, until later
            assert not list(trial.rglob(".*.tmp"))
        again = bench.open(trial)
        again.run.close()
        assert again.passed_over == []
        assert again.state() in ((old.state(), new) if refused else (new,)), f"failed at operation {k}"
        assert not list(trial.rglob(".*.tmp"))
        outcomes.append(refused and (refused.exit_code, refused.code))
    if error == errno.EIO and not kept_up:
        assert set(outcomes) == {None}, "one fault that passes is not even told"
        assert disk.slept, "it is tried again after a moment"
    else:
        told = "DISK_FULL" if error == errno.ENOSPC else "DISK_DENIED"
        assert set(outcomes) == {None, (6, told)}, "only the removal of old checkpoints may fail and be no error"


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A real limit of the kernel: the write that crosses it is cut there, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_files_really_cut_short_are_cleared_away(trained: Path, bench: Any, tmp_path: Path) -> None:
    trial = Path(shutil.copytree(trained, tmp_path / "trial"))
    old = bench.open(trial)
    old.run.close()
    largest = max(path.stat().st_size for path in trial.rglob("*.safetensors"))
    at, saver = about_to_save(bench, trial)
    at.run.log_length()
    before = sorted(trial.rglob("*"))
    for size in (0, 1, 100, 1000, largest // 2, largest - 1):
        with (
            no_file_larger_than(size),
            pytest.raises(ResourceError, match=r"Disk full .*File too large.*: needs [\d.]+ kB"),
        ):
            saver.save(at.now, at.best, insist=True)
        assert sorted(trial.rglob("*")) == before
    with no_file_larger_than(largest):
        saver.save(at.now, at.best, insist=True)
    at.run.close()


def test_a_full_disk_costs_nothing_when_there_is_space_again_in_time(
    bench: Any, disk: Any, notes: Any, tmp_path: Path, whole: Any, log_of: Any
) -> None:
    with disk.counting() as operations:
        bench.train(tmp_path / "count")
    told = 0
    for at in range(40, len(operations) - 60, 31):
        path = tmp_path / f"run-{at}"
        with disk.failing(errno.ENOSPC, at=at, times=2):
            model, run = bench.train(path, watch=notes)
        assert (fingerprint(weights(model)), log_of(run)) == whole
        assert not list(path.rglob(".*.tmp"))
        told += len(notes.notes)
        assert all("could not be saved. Disk full writing" in note and " free. " in note for note in notes.notes)
        notes.notes.clear()
    assert told > 3


class FullFrom(Watch):
    """The disk is full from a step on."""

    def __init__(self, step: int, disk: Any) -> None:
        self.step, self.disk, self.notes, self.stack = step, disk, [], ExitStack()

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        if done == self.step:
            self.stack.enter_context(self.disk.failing(errno.ENOSPC, at=0))

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_training_stops_when_three_saves_in_a_row_fail_and_goes_on_when_there_is_space(
    bench: Any, disk: Any, tmp_path: Path, whole: Any, log_of: Any
) -> None:
    path, watch = tmp_path / "run", FullFrom(3, disk)
    with pytest.raises(
        ResourceError, match=r"Disk full writing .* free\. Free some space\. When that is mended, go on with --resume"
    ) as e:
        bench.train(path, watch=watch)
    watch.stack.close()
    assert e.value.exit_code == 6
    assert [note.partition(" could")[0] for note in watch.notes] == ["Note: step 4", "Note: step 6"]
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == ["step-0000000", "step-0000002"]
    model, run = bench.train(path, resume=True)
    assert (fingerprint(weights(model)), log_of(run)) == whole


def test_a_disk_that_is_full_from_any_operation_on_ends_the_run_with_exit_code_6(
    bench: Any, disk: Any, tmp_path: Path, whole: Any, log_of: Any
) -> None:
    with disk.counting() as operations:
        bench.train(tmp_path / "count")
    last = max(i for i, name in enumerate(operations) if name == "mkdir")  # the last save begins here
    for at in [0, 3, 6, 9, *range(12, last, 31)]:
        path = tmp_path / f"run-{at}"
        with disk.failing(errno.ENOSPC, at), pytest.raises(ResourceError, match="Disk full") as e:
            bench.train(path)
        assert e.value.exit_code == 6
        assert ("--resume" in str(e.value)) == path.exists(), "a run that has learned nothing leaves nothing"
        model, run = bench.train(path, resume=path.exists())
        assert (fingerprint(weights(model)), log_of(run)) == whole


def test_a_disk_that_is_too_small_is_refused_before_the_first_step(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def usage(path: Path) -> Any:
        asked.append(path)
        return SimpleNamespace(free=50_000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(ResourceError, match=r"needs [\d.]+ kB for checkpoints and the model; 50\.0 kB are free") as e:
        bench.train(tmp_path / "run")
    assert (e.value.exit_code, e.value.code) == (6, "DISK_FULL")
    assert asked == [tmp_path / "run"], "the disk that is written to"
    assert not (tmp_path / "run").exists()


def test_what_is_on_the_disk_already_is_not_asked_for_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.train(tmp_path / "run", steps=4)
    size = sum(path.stat().st_size for path in (tmp_path / "run" / "checkpoints").rglob("*.*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size))  # one more and model/ fit
    bench.train(tmp_path / "run", resume=True, steps=4)


@pytest.mark.parametrize("operation", ["rename", "unlink", "rmdir"])
def test_an_old_checkpoint_that_cannot_be_removed_is_a_note(
    operation: str, bench: Any, disk: Any, notes: Any, tmp_path: Path, whole: Any, log_of: Any
) -> None:
    bench.train(tmp_path / "run", steps=4)
    at = bench.open(tmp_path / "run")
    at.now.step = 6
    saver = Saver(at.run, at.model, at.optimizer, notes, saved=4)
    with disk.counting() as operations:
        saver.save(at.now, None, insist=True)
    at.now.step = 8
    with disk.failing(errno.EACCES, at=operations.index("rename") + 1, kinds=[operation]):
        saver.save(at.now, None, insist=True)
    (note,) = notes.notes
    assert "could not be removed (Permission denied)" in note
    left = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert left >= {"step-0000006", "step-0000008"}
    assert len(left) == 3
    at.now.step = 10
    saver.save(at.now, None, insist=True)  # tried again, and this time it goes
    at.run.close()
    assert {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()} == {"step-0000008", "step-0000010"}


def test_a_failed_write_leaves_the_file_that_was_there(disk: Any, tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", b"old")
    with disk.counting() as operations:
        write_file(tmp_path / "a.json", b"new, and longer")
    for at in range(len(operations)):
        write_file(tmp_path / "a.json", b"old")
        with disk.failing(errno.ENOSPC, at, kinds=(*disk.WRITES, "look")), pytest.raises(ResourceError):
            write_file(tmp_path / "a.json", b"new, and longer")
        assert (tmp_path / "a.json").read_bytes() in (b"old", b"new, and longer")
        with disk.killing(at), pytest.raises(disk.Killed):
            write_file(tmp_path / "a.json", b"newer")
        assert (tmp_path / "a.json").read_bytes() in (b"old", b"new, and longer", b"newer")
    assert not [p for p in tmp_path.iterdir() if p.name != "a.json" and not p.name.endswith(".tmp")]


CORPUS = "\n".join(
    f"{who} {verb} a {what}." for who in ("I", "She") for verb in ("hold", "see") for what in ("cat", "dog")
)
SMALL = {
    "data": {"unit": "line"},
    "tokenizer": {"kind": "word"},
    "model": {"layers": 1, "heads": 1, "width": 8, "ff": 8, "context": 16},
    "train": {"steps": 2, "batch_size": 4, "threads": 1, "tensorboard": False},
    "samples": [],
}


@pytest.fixture(scope="module")
def closing(tmp_path_factory: pytest.TempPathFactory) -> tuple[PretrainConfig, Path, dict[str, Any]]:
    """A pretraining run that has everything but its closing files, and what these are."""
    folder = tmp_path_factory.mktemp("closing")
    (folder / "corpus.txt").write_text(CORPUS)
    settings = {**SMALL, "data": {"paths": [str(folder / "corpus.txt")], "unit": "line"}}
    settings["train"] = {**settings["train"], "keep_checkpoints": True}
    cfg = parse(PretrainConfig, settings)
    pretrain(cfg, folder / "run")
    end = closing_files(folder / "run")
    for name in ("result.json", "model/model.safetensors", "model/config.json", "model/README.md"):
        (folder / "run" / name).unlink()
    return cfg, folder / "run", end


def closing_files(path: Path) -> dict[str, Any]:
    result = json.loads((path / "result.json").read_text())
    clock = ("run", "seconds", "preparing_seconds", "tokens_per_second")
    return {
        "result": {name: value for name, value in result.items() if name not in clock},
        **{file.name: file.read_bytes() for file in (path / "model").iterdir()},
    }


@pytest.mark.parametrize("how", ["full", "killed"])
def test_closing_files_that_could_not_be_written_are_written_by_a_resume(
    how: str, closing: Any, disk: Any, notes: Any, tmp_path: Path
) -> None:
    cfg, unfinished, end = closing
    shutil.copytree(unfinished, tmp_path / "count")
    with disk.counting() as operations:
        pretrain(cfg, tmp_path / "count", resume=True)
    writes = [i for i, name in enumerate(operations) if name in ("write", "replace")]
    assert len(writes) > 10
    for at in writes[:: 5 if how == "full" else 7]:
        run = Path(shutil.copytree(unfinished, tmp_path / f"run-{at}"))
        if how == "full":
            with disk.failing(errno.ENOSPC, at), pytest.raises(ResourceError, match="Disk full") as e:
                pretrain(cfg, run, resume=True)
            assert e.value.exit_code == 6
        else:
            with disk.killing(at), pytest.raises(disk.Killed):
                pretrain(cfg, run, resume=True)
        assert not (run / "result.json").exists(), "unfinished"
        pretrain(cfg, run, resume=True, watch=notes)
        assert notes.notes[-1] == "Going on from step 2.", "nothing is learned again"
        assert closing_files(run) == end
        assert not list(run.rglob(".*.tmp"))


def test_tensorboard_shows_what_the_log_holds_after_a_full_disk_and_a_kill(
    bench: Any, disk: Any, tmp_path: Path, log_of: Any
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {"steps": 6, "tensorboard": True}
    with disk.failing(errno.ENOSPC, at=50, times=5, kinds=["pwrite"]):
        bench.train(tmp_path / "run", **settings)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-0000006")  # as if killed before it
    _, run = bench.train(tmp_path / "run", resume=True, **settings)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    for split in ("train", "valid"):
        logged = [(r["step"], r["loss"]) for r in log_of(run) if r["split"] == split]
        shown = [(event.step, event.value) for event in events.Scalars(f"loss/{split}")]
        assert shown == [(step, pytest.approx(loss)) for step, loss in logged]


def test_an_output_that_is_full_is_no_bug(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "headstart", "runs", str(tmp_path)]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 6
    assert done.stderr == "error[DISK_FULL]: Disk full writing the output (No space left on device). Free some space.\n"


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0, reason="needs its own mounts"
)
def test_a_real_disk_of_one_megabyte_fills_up_and_the_run_goes_on_after(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(CORPUS * 20)
    (tmp_path / "disk").mkdir()
    out = tmp_path / "disk" / "run"
    words = f"pretrain {tmp_path}/corpus.txt --out {out} --unit line --tokenizer word --size nano --steps 20 --json"
    words += " --batch-size 4 --set train.checkpoint_every=2 --set train.tensorboard=false --threads 1 --quiet"
    headstart = f"{sys.executable} -m headstart"
    script = f"""
        mount -t tmpfs -o size=4m none {tmp_path}/disk
        head -c 1500000 /dev/zero > {tmp_path}/disk/ballast
        {headstart} {words} 2> {tmp_path}/small; echo $? >> {tmp_path}/codes
        rm {tmp_path}/disk/ballast
        mount -o remount,size=40m {tmp_path}/disk
        {headstart} {words.replace("--steps 20", "--steps 400")} & pid=$!
        until [ -d {out}/checkpoints/step-0000004 ]; do sleep 0.1; done
        head -c 100000000 /dev/zero > {tmp_path}/disk/ballast
        wait $pid; echo $? >> {tmp_path}/codes
        ls -A {out}/checkpoints > {tmp_path}/left
        rm {tmp_path}/disk/ballast
        {headstart} pretrain --out {out} --resume --quiet --json > {tmp_path}/result; echo $? >> {tmp_path}/codes
    """
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    assert (tmp_path / "codes").read_text().split() == ["6", "6", "0"], done.stderr
    assert "for checkpoints and the model" in (tmp_path / "small").read_text()
    assert "Disk full writing" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [name for name in (tmp_path / "left").read_text().split() if name.endswith(".tmp")]
    assert json.loads((tmp_path / "result").read_text())["steps"] == 400
