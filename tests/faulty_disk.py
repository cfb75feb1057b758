"""A model that trains in a few milliseconds, and a disk that breaks where it is told to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from headstart.config import PretrainConfig, TrainConfig
from headstart.models.heads import Model
from headstart.runs.checkpoint import Progress, Tensors, fingerprint, load_checkpoint, weights
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import TransformerConfig
from headstart.tasks.language import Language
from headstart.text.batch import Batch, RowBatches, in_order, next_token
from headstart.text.tokenizer import TokenRows
from headstart.train.loop import train
from headstart.train.optim import build_optimizer

ROWS = TokenRows.of([[2, *range(5 + i, 10 + i + i % 4), 3] for i in range(8)])
WRITES = ("open", "write", "pwrite", "fsync", "rename", "replace", "mkdir", "ftruncate")
OTHERS = ("look", "unlink", "rmdir")  # looking is opening a folder, or a file to read


class Killed(BaseException):
    """What a process does not survive."""


class Disk:
    """Counts the operations of the code under test, and makes some of them fail."""

    Killed, WRITES, OTHERS = Killed, WRITES, OTHERS

    def shadow(self, root: Path) -> Shadow:
        return Shadow(self, root)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.slept: list[float] = []
        self.watchers: list[Callable[..., None]] = []  # told of every operation that was done
        self._fault: Callable[[str, int], BaseException | None] | None = None
        for name in (*WRITES, *OTHERS[1:]):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        monkeypatch.setattr(time, "sleep", self.slept.append)

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        """The names of the operations in the block."""
        with self._faulty(lambda name, number: None):
            yield self.seen

    @contextmanager
    def failing(self, error: int, at: int, times: int = 10**9, kinds: Iterable[str] = WRITES) -> Iterator[None]:
        """From operation `at` on, `times` operations of these kinds fail; a failing write still writes its half."""
        left = times

        def fault(name: str, number: int) -> BaseException | None:
            nonlocal left
            if number < at or name not in kinds or not left:
                return None
            left -= 1
            return OSError(error, os.strerror(error))

        with self._faulty(fault):
            yield

    @contextmanager
    def killing(self, at: int) -> Iterator[None]:
        """The process is dead from operation `at` on: nothing that it still tries has any effect."""
        with self._faulty(lambda name, number: Killed() if number >= at else None):
            yield

    @contextmanager
    def _faulty(self, fault: Callable[[str, int], BaseException | None]) -> Iterator[None]:
        self.seen.clear()
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None

    def _tell(self, *done: Any) -> None:
        fault, self._fault = self._fault, None  # what the watchers do is not the code under test
        for watcher in self.watchers if fault else ():
            watcher(*done)
        self._fault = fault

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            error = None
            if self._fault is not None:
                self.seen.append("look" if name == "open" and not args[1] & os.O_CREAT else name)
                error = self._fault(self.seen[-1], len(self.seen) - 1)
            if error is None:
                result = real(*args, **kwargs)
                self._tell(name, args, kwargs.get("dir_fd"), result)
                return result
            if name in ("write", "pwrite"):
                real(args[0], args[1][: len(args[1]) // 2], *args[2:])
            raise error

        return operation


@dataclass
class File:
    live: bytes = b""
    safe: bytes = b""  # what was there at the last fsync


@dataclass
class Folder:
    live: dict[str, File | Folder]
    safe: dict[str, File | Folder]


class Shadow:
    """What a disk is sure to hold if the power goes now: only what was forced to it.

    The names in a folder are forced by an fsync of the folder, the bytes of a file by an fsync of the file.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self.root, self._open, self._places = root, {}, {}
        self.tree = self._read(root)
        disk.watchers.append(self._follow)

    def lose_power(self, target: Path, names: str) -> None:
        """The folder as it may be found afterwards, with the `safe` names or, by luck, the `live` ones."""
        self._lay_out(self.tree, target, names)

    def _lay_out(self, node: File | Folder, target: Path, names: str) -> None:
        if isinstance(node, File):
            target.write_bytes(node.safe)
            return
        target.mkdir()
        for name, inside in getattr(node, names).items():
            self._lay_out(inside, target / name, names)

    def _follow(self, name: str, args: tuple[Any, ...], dir_fd: int | None, result: Any) -> None:
        if name in ("write", "pwrite", "fsync", "ftruncate"):
            self._change(name, self._open.get(args[0]), args, result)
            return
        folder, last = self._find(args[0], dir_fd)
        if folder is None:
            return
        if name == "open":
            if args[1] & os.O_CREAT and last not in folder.live:
                folder.live[last] = File()
            self._open[result] = node = self.tree if last == "" else folder.live[last]
            self._places[id(node)] = 0
            if args[1] & os.O_TRUNC:
                node.live = b""
        elif name == "mkdir":
            folder.live[last] = Folder({}, {})
        elif name in ("rename", "replace"):
            onto, new = self._find(args[1], None)
            onto.live[new] = folder.live.pop(last)
        else:
            folder.live.pop(last, None)  # a lock is made out of sight

    def _change(self, name: str, node: File | Folder | None, args: tuple[Any, ...], result: Any) -> None:
        if node is None:
            return
        if name == "fsync":
            node.safe = node.live if isinstance(node, File) else dict(node.live)
        elif name == "ftruncate":
            node.live = node.live[: args[1]].ljust(args[1], b"\0")
        else:
            place = args[2] if name == "pwrite" else self._places[id(node)]
            node.live = node.live[:place] + bytes(args[1][:result]) + node.live[place + result :]
            self._places[id(node)] = place + result

    def _find(self, path: Any, dir_fd: int | None) -> tuple[Any, str]:
        """The folder that a path is in, and its name there; the root is in itself, without a name."""
        if dir_fd is not None:
            return self._open.get(dir_fd), os.fspath(path)
        try:
            *above, last = Path(path).relative_to(self.root).parts or ("",)
        except ValueError:
            return None, ""
        folder: Any = self.tree
        for part in above:
            folder = folder.live[part]
        return folder, last

    def _read(self, path: Path) -> File | Folder:
        if path.is_file():
            return File(path.read_bytes(), path.read_bytes())
        inside = {child.name: self._read(child) for child in path.iterdir()}
        return Folder(dict(inside), dict(inside))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class Notes(Watch):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def notes() -> Notes:
    return Notes()


class Bench:
    """A tiny causal model of eight rows: trained into a run directory, or opened from one."""

    def __init__(self, shape: TransformerConfig) -> None:
        self.shape = shape

    def train(
        self, path: Path, resume: bool = False, watch: Watch | None = None, task: Any = None, **settings: Any
    ) -> tuple[Model, Run]:
        cfg = self._config(settings)
        model, batches = self._model(), RowBatches(ROWS.lengths, cfg.batch_size, _collate, cfg.seed)
        with Run.start(path, resume, _job(cfg), 1) as run:
            train(model, task or Language(None), batches, self.valid, cfg, run, watch or Watch())
        return model, run

    def open(self, path: Path) -> Opened:
        """Where the run stands, with a model and an optimizer set to it; the run stays locked."""
        asked = Run(path).asked(PretrainConfig)
        run, model = Run.start(path, True, asked, 1), self._model()
        optimizer = build_optimizer(model, asked.train)
        try:
            found = load_checkpoint(run, model, optimizer)
        except BaseException:
            run.close()
            raise
        assert found is not None
        return Opened(run, model, optimizer, *found)

    def valid(self) -> Iterable[Batch]:
        return in_order(ROWS.lengths, 4, _collate)

    def _config(self, settings: dict[str, Any]) -> TrainConfig:
        usual = {"steps": 12, "batch_size": 4, "lr": 0.01, "eval_every": 6, "checkpoint_every": 2, "log_every": 1}
        return TrainConfig(**{**usual, "tensorboard": False, **settings})

    def _model(self) -> Model:
        torch.manual_seed(0)
        return build_model(self.shape, HeadSpec("language"))


@dataclass
class Opened:
    run: Run
    model: Model
    optimizer: torch.optim.Optimizer
    now: Progress
    best: Tensors | None
    passed_over: list[str]

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint holds, to the last bit."""
        averages = {
            f"{name}.{key}": value.reshape(-1)
            for name, p in self.model.named_parameters()
            for key, value in self.optimizer.state[p].items()
        }
        best = self.best and fingerprint(self.best)
        return {**asdict(self.now), "w": fingerprint(weights(self.model)), "a": fingerprint(averages), "b": best}


def _collate(part: Any, rng: Any) -> Batch:
    return next_token([ROWS[int(i)] for i in part], 0)


def _job(cfg: TrainConfig) -> PretrainConfig:
    return parse(PretrainConfig, {"data": {"paths": ["unused.txt"]}, "train": cfg})


@pytest.fixture(scope="session")
def bench() -> Bench:
    torch.set_num_threads(1)
    shape = {"vocab": 53, "layers": 1, "heads": 2, "width": 8, "ff": 8, "context": 24}
    return Bench(TransformerConfig.model_validate(shape))


@pytest.fixture
def log_of() -> Callable[[Run], list[dict[str, Any]]]:
    """The log without the clock."""
    return lambda run: [{k: v for k, v in r.items() if k != "wall"} for r in run.read_lines("log.jsonl")]
