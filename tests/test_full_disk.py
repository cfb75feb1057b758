"""A disk that is full or read-only ends a verb with exit code 6 and one sentence, and leaves nothing half-written."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig
from headstart.jobs.finetune import finetune
from headstart.schema import parse

VERBS = {
    "export": "export {run} --out {disk}/out",
    "export to onnx": "export {run} --to onnx --out {disk}/out.onnx",
    "compare": "compare {rows} --arms majority --yes --quiet --out {disk}/out",
    "data get": "data get small-corpus",
    "data table": "data table {rows} --out {disk}/out.csv",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier after one step."""
    folder = tmp_path_factory.mktemp("run")
    lines = [f"film {i} was {('awful', 'lovely')[i % 2]},{'np'[i % 2]}" for i in range(40)]
    (folder / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    settings = {
        "base": "gpt", "init": "scratch", "data": {"train": str(folder / "rows.csv")}, "tokenizer": {"kind": "word"},
        "model": {"layers": 1, "heads": 1, "width": 8, "ff": 8, "context": 16},
        "train": {"steps": 1, "threads": 1, "tensorboard": False},
    }  # fmt: skip
    finetune(parse(FinetuneConfig, settings), folder / "run")
    return folder / "run"


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No file may have more than 40 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nothing can be made below `disk`; of root, no permission asks that."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "mkdir"):
            patch.setattr(os, name, _refusing(getattr(os, name), disk))
        yield


def _refusing(real: Callable[..., object], disk: Path) -> Callable[..., object]:
    def call(path: object, *rest: object, **named: object) -> object:
        makes = real.__name__ == "mkdir" or (rest and isinstance(rest[0], int) and rest[0] & os.O_CREAT)
        if makes and isinstance(path, (str, Path)) and str(path).startswith(str(disk)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, *rest, **named)

    return call


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("fault", "code"), [(full, "DISK_FULL"), (read_only, "DISK_DENIED")])
def test_a_disk_that_takes_nothing(
    verb: str, fault: Callable[[Path], object], code: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "onnx" in verb:
        pytest.importorskip("onnxruntime")
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("HEADSTART_CACHE", str(disk / "cache"))
    words = VERBS[verb].format(run=run, rows=run.parent / "rows.csv", disk=disk).split(" ")
    with fault(disk):  # type: ignore[attr-defined]
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 6, done.output
    assert re.search(rf"error\[{code}\]: [^\n]+\n\Z", done.stderr), done.stderr
    assert "Traceback" not in done.output
    left = [path.name for path in disk.rglob("*") if path.is_file() and path.name != ".lock"]
    assert left == []


def test_a_file_where_the_folder_should_be_is_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "file" / "out")])
    assert done.exit_code == 6, done.output
    assert "file cannot be written (Not a directory)" in done.stderr
