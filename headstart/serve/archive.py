"""A model as a zip file, made while it is sent; nothing but its own files is read."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from headstart.regular_file import open_regular
from headstart.runs.disk import make_folder

PART = 1 << 20  # bytes


class _Sent(io.RawIOBase):
    """What zipfile writes, taken away piece by piece."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken = b"".join(self.parts)
        self.parts.clear()
        return taken


def archive(run: Path) -> Iterator[bytes]:
    """The zip file of a run as `headstart predict` opens it: its settings, its result and its model; links are left out."""
    own = [run / name for name in ("config.toml", "env.json", "result.json")]
    return _zipped(
        [(path, path.name) for path in own] + [(path, f"model/{path.name}") for path in _files(run / "model")]
    )


def exported(run: Path, to: Literal["transformers", "onnx"], place: Path) -> Iterator[bytes]:
    """The zip file of what `headstart export` writes, which is made below `place` and removed again."""
    make_folder(place)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        out = Path(folder) / "model"
        if to == "transformers":
            from headstart.use.export import export_transformers

            export_transformers(run, out)
        else:
            from headstart.use.onnx_export import export_onnx

            out.mkdir()
            export_onnx(run, out / "model.onnx", None)
        made = b"".join(_zipped([(path, f"model/{path.name}") for path in _files(out)]))
    yield made


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _zipped(files: Sequence[tuple[Path, str]]) -> Iterator[bytes]:
    sent = _Sent()
    with zipfile.ZipFile(sent, "w", zipfile.ZIP_STORED) as made:
        for path, name in files:
            if path.is_symlink() or not path.is_file():
                continue
            with open_regular(path) as source, made.open(zipfile.ZipInfo(name), "w", force_zip64=True) as inside:
                while part := source.read(PART):
                    inside.write(part)
                    yield sent.take()
    yield sent.take()
