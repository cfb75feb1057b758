"""A kill, a lost power supply or a damaged file: the old state or the new one, whole, and never anything else."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from headstart.errors import ModelError
from headstart.models.heads import Model
from headstart.runs.checkpoint import Saver, fingerprint, weights
from headstart.runs.watch import Watch
from headstart.tasks.language import Language
from headstart.text.batch import Batch


class Worsening(Language):
    """Best before it began, so that every checkpoint holds the best weights too."""

    def evaluate(self, model: Model, batches: Iterable[Batch]) -> dict[str, Any]:
        self.last = getattr(self, "last", 0.0) + 1.0
        return {**super().evaluate(model, batches), "loss": self.last}


@pytest.fixture(scope="module")
def trained(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with the checkpoints of steps 2 and 4."""
    path = tmp_path_factory.mktemp("trained") / "run"
    bench.train(path, steps=4, eval_every=2, task=Worsening(None))
    return path


@pytest.fixture
def saved(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "saved"))


def about_to_save(bench: Any, path: Path) -> tuple[Any, Callable[[], None]]:
    """Step 6 in memory, made by hand from step 4, and what saves it."""
    at = bench.open(path)
    with torch.no_grad():
        for i, p in enumerate(at.model.parameters()):
            p.add_(0.01 * (i + 1))
            at.optimizer.state[p]["exp_avg"].add_(0.5)
    at.now.step = 6
    at.run.log({"step": 6, "split": "train", "loss": 1.0})
    saver = Saver(at.run, at.model, at.optimizer, Watch(), saved=4)
    return at, lambda: saver.save(at.now, at.best, insist=True)


def closed(opened: Any) -> Any:
    opened.run.close()
    return opened


def test_a_kill_at_every_operation_of_a_save_leaves_the_old_state_or_the_new(
    saved: Path, bench: Any, disk: Any, tmp_path: Path
) -> None:
    old = closed(bench.open(saved)).state()
    trial = Path(shutil.copytree(saved, tmp_path / "trial"))
    at, save_now = about_to_save(bench, trial)
    with disk.counting() as operations:
        save_now()
    new, total, found = closed(at).state(), len(operations), []
    for k in range(total):
        shutil.rmtree(trial)
        shutil.copytree(saved, trial)
        at, save_now = about_to_save(bench, trial)
        with disk.killing(k), pytest.raises(disk.Killed):
            save_now()
        at.run.close()
        again = closed(bench.open(trial))
        assert again.state() == (old if again.now.step == 4 else new), f"killed at operation {k}"
        assert again.passed_over == []
        assert not list(trial.rglob(".*.tmp"))
        found.append(again.now.step)
    assert found == sorted(found)
    assert set(found) == {4, 6}
    assert total > 20


@pytest.mark.parametrize("names", ["safe", "live"])
def test_power_lost_at_every_operation_of_a_save_leaves_the_old_state_or_the_new(
    names: str, saved: Path, bench: Any, disk: Any, tmp_path: Path
) -> None:
    old = closed(bench.open(saved)).state()
    at, save_now = about_to_save(bench, saved)
    shadow, crashes = disk.shadow(saved), tmp_path / "crashes"
    crashes.mkdir()
    disk.watchers.append(lambda *_: shadow.lose_power(crashes / f"{len(disk.seen):03d}", names))
    with disk.counting():
        save_now()
    disk.watchers.clear()
    new, found = closed(at).state(), []
    for crash in sorted(crashes.iterdir()):
        again = closed(bench.open(crash))
        assert again.state() == (old if again.now.step == 4 else new), crash.name
        found.append(again.now.step)
    assert set(found) == {4, 6}
    assert found[-1] == 6, "what was acknowledged is on the disk"


@pytest.mark.parametrize("names", ["safe", "live"])
def test_power_lost_anywhere_in_a_run_is_made_up_for(
    names: str, bench: Any, disk: Any, tmp_path: Path, log_of: Any
) -> None:
    crashes, disk_itself = tmp_path / "crashes", tmp_path / "disk"
    crashes.mkdir()
    disk_itself.mkdir()
    shadow = disk.shadow(disk_itself)

    def now_and_then(*_: object) -> None:
        if len(disk.seen) % 13 == 0:
            shadow.lose_power(crashes / f"{len(disk.seen):03d}", names)

    disk.watchers.append(now_and_then)
    with disk.counting():
        whole, run = bench.train(disk_itself / "run")
    disk.watchers.clear()
    shadow.lose_power(crashes / "end", names)
    assert (crashes / "end" / "run" / "checkpoints" / "step-0000012").exists()
    log, found = log_of(run), [crash / "run" for crash in sorted(crashes.iterdir())]
    assert len(found) > 10
    for crash in found:
        model, again = bench.train(crash, resume=(crash / "env.json").exists())
        assert fingerprint(weights(model)) == fingerprint(weights(whole)), crash
        assert log_of(again) == log


Harm = Callable[[Path], None]
FILES = ("model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json", "MANIFEST.json")


def changed(name: str, change: Callable[[bytes], bytes]) -> Harm:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def replaced(name: str, change: Callable[[bytes], bytes]) -> Harm:
    """A file changed, and the manifest with it, so that only what it says can give it away."""

    def harm(folder: Path) -> None:
        changed(name, change)(folder)
        data = (folder / name).read_bytes()
        entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        in_json("MANIFEST.json", lambda manifest: {**manifest, name: entry})(folder)

    return harm


def in_json(name: str, change: Callable[[Any], Any]) -> Harm:
    return changed(name, lambda data: json.dumps(change(json.loads(data))).encode())


def in_tensors(name: str, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Harm:
    return replaced(name, lambda data: save(change(load(data))))


def in_state(**values: Any) -> Harm:
    return replaced("state.json", lambda data: json.dumps({**json.loads(data), **values}).encode())


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def without_first(items: dict[str, Any]) -> dict[str, Any]:
    return dict(list(items.items())[1:])


def as_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def harms() -> Iterator[tuple[str, Harm]]:
    dice = random.Random(0)
    for name in FILES:
        for part in [0.0, 1.0, *(dice.random() for _ in range(8))]:
            yield (
                f"{name} cut at {part:.3f}",
                changed(name, lambda data, part=part: data[: int(part * (len(data) - 1))]),
            )
        for part in [0.0, 1.0, *(dice.random() for _ in range(14))]:
            yield (
                f"{name} flipped at {part:.3f}",
                changed(name, lambda data, part=part: flipped(data, int(part * (8 * len(data) - 1)))),
            )
        yield f"{name} longer", changed(name, lambda data: data + b"x")
        yield f"{name} zeroed", changed(name, lambda data: bytes(len(data)))
        yield f"{name} gone", lambda folder, name=name: (folder / name).unlink()
        if name != "best.safetensors":  # the same in both
            yield (
                f"{name} of the checkpoint before",
                lambda folder, name=name: shutil.copy(folder.with_name("step-0000002") / name, folder / name),
            )
    yield "extra file", lambda folder: (folder / "notes.txt").write_text("hello")
    yield "extra folder", lambda folder: (folder / "more").mkdir()
    yield "a file in its place", as_file
    yield "a later one, empty", lambda folder: folder.rename(folder.with_name("gone")).with_name("step-0000009").mkdir()

    for text in ("", "[]", "3", "null", "{}", '"x"', "[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\ufeff{}"):
        yield f"manifest {text[:8]!r}", changed("MANIFEST.json", lambda data, text=text: text.encode())
        yield f"state {text[:8]!r}", replaced("state.json", lambda data, text=text: text.encode())
    yield "manifest in UTF-16", changed("MANIFEST.json", lambda data: data.decode().encode("utf-16"))
    for key, value in [
        ("bytes", -1),
        ("bytes", "7"),
        ("bytes", 1.5),
        ("bytes", None),
        ("sha256", 0),
        ("sha256", "0" * 64),
    ]:
        yield (
            f"manifest says {key} {value!r}",
            in_json("MANIFEST.json", lambda m, k=key, v=value: {**m, FILES[0]: {**m[FILES[0]], k: v}}),
        )
    for name in ("", "..", "../step-0000002/state.json", "/etc/hostname", "a\0b"):
        yield f"manifest names {name!r}", in_json("MANIFEST.json", lambda m, n=name: {**m, n: m[FILES[0]]})
    yield "manifest without the weights", in_json("MANIFEST.json", without_first)
    yield (
        "neither weights nor their entry",
        lambda folder: (
            in_json("MANIFEST.json", without_first)(folder),
            (folder / FILES[0]).unlink(),
        ),
    )  # type: ignore[func-returns-value]

    for values in [{"step": 2}, {"step": "4"}, {"log_bytes": 10**9}, {"log_bytes": -1}, {"new": 1}, {"best": 3},
                   {"stale": None}, {"recent": ["x"]}, {"evaluated": 2}]:  # fmt: skip
        yield f"state says {values}", in_state(**values)
    for name in FILES[:3]:
        yield f"{name} is not tensors", replaced(name, lambda data: data[::-1])
        yield f"{name} lacks a tensor", in_tensors(name, without_first)
        yield f"{name} has one too many", in_tensors(name, lambda t: {**t, "more": torch.zeros(2)})
        yield (
            f"{name} has another shape",
            in_tensors(name, lambda t: {n: torch.cat([x.reshape(-1)] * 2) for n, x in t.items()}),
        )
    yield "averages of nothing", in_tensors(FILES[1], lambda t: {})


HARMS = dict(harms())


@pytest.fixture(scope="module")
def before(trained: Path, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state of step 2."""
    path = Path(shutil.copytree(trained, tmp_path_factory.mktemp("before") / "run"))
    shutil.rmtree(path / "checkpoints" / "step-0000004")
    return closed(bench.open(path)).state()


def test_two_hundred_ways_to_harm_a_checkpoint_are_tried() -> None:
    assert len(HARMS) >= 200


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_checkpoint_is_passed_over_for_the_one_before(
    harm: str, saved: Path, bench: Any, before: dict[str, Any]
) -> None:
    HARMS[harm](saved / "checkpoints" / "step-0000004")
    found = closed(bench.open(saved))
    assert found.state() == before
    assert len(found.passed_over) == 1
    assert found.passed_over[0].startswith("step-")
    assert "\n" not in found.passed_over[0]


@pytest.mark.parametrize("harm", list(HARMS)[::10])
def test_with_every_checkpoint_harmed_the_error_lists_what_was_tried(harm: str, saved: Path, bench: Any) -> None:
    HARMS[harm](saved / "checkpoints" / "step-0000004")
    (saved / "checkpoints" / "step-0000002" / "state.json").unlink()
    with pytest.raises(ModelError, match=r"no checkpoint can be used \(step-0000004: .*; step-0000002: its files") as e:
        bench.open(saved)
    assert (e.value.exit_code, e.value.code) == (5, "CHECKPOINT_DAMAGED")
