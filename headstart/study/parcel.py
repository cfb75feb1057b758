"""A cell as bytes: what another machine needs in order to run it, and what comes back. Nothing is pickled. No torch.

A message is JSON: the settings of the cell, and where each file that they name is to be put below a folder of the other machine.
Files travel as parcels, msgpack of names and bytes. Over there settings name these copies; in what comes back they name the
originals again, so that a cell is the same folder wherever it was run.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import msgpack
import tomli_w

from headstart import __version__
from headstart.config import FinetuneConfig, JobConfig, MatchConfig
from headstart.data import CaptionsConfig
from headstart.errors import ConfigError, ModelError
from headstart.hub.cache import cache_folder
from headstart.hub.pack_contents import PACKS
from headstart.hub.packs import get_pack, pack_folder
from headstart.images.captions import read_captions, table_of
from headstart.runs.disk import write_file
from headstart.runs.kinds import parse_run_config
from headstart.runs.run import settings_digest
from headstart.schema import parse
from headstart.strict_json import to_json
from headstart.study.classify import WEIGHTS
from headstart.study.joined import scored
from headstart.study.measured import Measured
from headstart.study.plan import Arm, BaseRun, Cell, StudyConfig
from headstart.study.run import Planned
from headstart.text.vocabulary import KINDS

DATA = ("train", "valid", "test", "pairs", "images")  # settings that name files
MODELS = ("base", "path", "text", "image", "static_vectors")  # settings that may: they also hold other names
TOKENIZERS = ("tokenizer", "source", "target")  # tables whose `kind` is a file, a run or a pack, or a kind
SETTINGS = ("config.toml", "env.json", "data.json", "receipt.json", "result.json")  # files of a run that may name files
PROCESS = 600_000_000  # bytes that a process needs before it has a model
COPIES = 5  # of the weights: themselves, gradients, two moments, the best so far


@dataclass(frozen=True)
class Source:
    """A file or a folder that is sent along; of a folder all files, or `only` some."""

    path: Path
    only: tuple[str, ...] = ()

    def packed(self, checkpoints: bool = False) -> bytes:
        """As msgpack of names and bytes; of a run without its checkpoints, unless it is to be gone on with."""
        if self.only:
            return bytes(msgpack.packb({name: (self.path / name).read_bytes() for name in self.only}))
        return packed(self.path, checkpoints)

    @property
    def weight_bytes(self) -> int:
        """About the memory of the weights, in float32; of several formats that lie together, one is opened."""
        if self.only:
            return 0
        files = [self.path] if self.path.is_file() else [f for f in self.path.rglob("*") if f.is_file()]
        weights = [f for f in files if f.suffix in WEIGHTS and "checkpoints" not in f.parts]
        return max(sum(_float32_bytes(f) for f in weights if f.suffix == suffix) for suffix in WEIGHTS)


@dataclass(frozen=True)
class Outgoing:
    """A cell that is to be run elsewhere."""

    message: bytes
    sources: Mapping[str, Source]  # what to send with it, by where it is to be put
    threads: int
    memory: int  # bytes, estimated
    features: bool  # whether it reads what frozen bases make of the rows, or adds to it


def outgoing(cell: Planned, out: Path) -> Outgoing:
    """A cell of the study `out`, with the files that its settings name."""
    work, here = cell.work, out.absolute()
    if isinstance(work, JobConfig):
        kind, settings, threads = "job", work.model_dump(mode="json"), work.train.threads
    else:
        assert isinstance(work, Measured), "a cell is a run or is measured"
        kind, threads = "measured", work.cfg.finetune.get("train", {}).get("threads", 0)
        settings = {"cfg": work.cfg.model_dump(mode="json"), "cell": json.loads(to_json(_plain(asdict(work.cell))))}
    named = _named(work, settings)
    places = {path: _in_cache(path) or f"files/{number}/{Path(path).name}" for number, path in enumerate(named)}
    sources = {places[path]: source for path, source in named.items()}
    sources |= {_in_cache(str(folder)): Source(folder) for folder in map(_pack, _packs(work, settings))}
    for name in (cell.name, *_taken(work)):  # begun before, or what it takes of others
        if (here / "cells" / name).is_dir():
            sources[f"study/cells/{name}"] = Source(here / "cells" / name)
    message = {
        "version": __version__, "name": cell.name, "keep_weights": cell.keep_weights, "kind": kind, "settings": settings,
        "places": {**places, str(here): "study"}, "threads": threads or 1,
    }  # fmt: skip
    features = isinstance(work, Measured) or (isinstance(work, FinetuneConfig) and work.features is not None)
    memory = PROCESS + COPIES * max((source.weight_bytes for source in sources.values()), default=0)
    return Outgoing(to_json(message).encode(), sources, threads or 1, memory, features)


@dataclass(frozen=True)
class Arrived:
    """A cell on the machine that is to run it, below a folder of its own."""

    cell: Planned
    study: Path
    threads: int
    places: Mapping[str, str]  # from paths over there to paths here

    @classmethod
    def of(cls, message: bytes, root: Path) -> Arrived:
        """Of a message whose parcels have been unpacked below `root`."""
        told = json.loads(message)
        places = {path: str(root / place) for path, place in told["places"].items()}
        settings, study = moved(told["settings"], places), root / "study"
        if told["kind"] == "job":
            work: Any = parse_run_config(settings, "the settings of the cell")
        else:
            arm = settings["cell"]["arm"]
            runs = {
                name: BaseRun(**{**arm[name], "path": Path(arm[name]["path"])}) if arm[name] else None
                for name in ("base", "asked")
            }
            cell = Cell(**{**settings["cell"], "arm": Arm(**{**arm, **runs})})
            work = Measured(parse(StudyConfig, settings["cfg"]), cell, study)
        for path in study.glob("cells/*"):
            relocate(path, places)
        return cls(Planned(told["name"], work, told["keep_weights"]), study, told["threads"], places)

    @property
    def folder(self) -> Path:
        return self.study / "cells" / self.cell.name

    def home(self) -> None:
        """Let the files of the cell name what they name over there."""
        relocate(self.folder, {here: there for there, here in self.places.items()})


def must_be_our_version(message: bytes) -> None:
    version = json.loads(message)["version"]
    if version != __version__:
        raise ConfigError(
            f"this node has Headstart {__version__}, and the study is run by {version}. Install the same."
        )


def packed(path: Path, checkpoints: bool = False) -> bytes:
    """A file, or all files of a folder, as msgpack; of a run without its checkpoints, unless it is to be gone on with."""
    if not path.is_dir():
        return bytes(msgpack.packb({"": path.read_bytes()}))
    left_out = path / "checkpoints" if (path / "env.json").exists() and not checkpoints else path / ".lock"
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and left_out not in (file, *file.parents))
    return bytes(msgpack.packb({file.relative_to(path).as_posix(): file.read_bytes() for file in files}))


def unpack(parcel: bytes, path: Path) -> None:
    """The file or the folder of a parcel, at `path`; a name that leads out of it is refused."""
    for name, data in msgpack.unpackb(parcel).items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ModelError(f"'{name}' came back from a node, and is no name of a file of a cell.")
        write_file(path / parts if name else path, data)


def arrive(parcel: bytes, folder: Path) -> None:
    """Put what came back of a cell where it belongs: all of it, or what was there before."""
    draft, before = (folder.with_name(f".{folder.name}.{what}") for what in ("arriving", "before"))
    shutil.rmtree(draft, ignore_errors=True)
    unpack(parcel, draft)
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)
        os.replace(folder, before)
    try:
        os.replace(draft, folder)
    except OSError:
        if before.exists():
            os.replace(before, folder)
        raise
    shutil.rmtree(before, ignore_errors=True)


def moved(value: Any, places: Mapping[str, str]) -> Any:
    """`value` of JSON with other paths for those of `places`, and for what is below them.

    >>> moved({"train": "/a/rows.csv", "seed": 1, "pairs": ["/a"], "other": "/ab"}, {"/a": "/b"})
    {'train': '/b/rows.csv', 'seed': 1, 'pairs': ['/b'], 'other': '/ab'}
    """
    match value:
        case dict():
            return {key: moved(inner, places) for key, inner in value.items()}
        case list() | tuple():
            return [moved(inner, places) for inner in value]
        case str():
            for path in sorted(places, key=len, reverse=True):
                if value == path or value.startswith(f"{path}{os.sep}"):
                    return places[path] + value[len(path) :]
    return value


def relocate(folder: Path, places: Mapping[str, str]) -> None:
    """`moved` for the files of a run; those that name settings by their SHA-256 go on to do so."""
    for name in SETTINGS:
        file = folder / name
        if not file.exists():
            continue
        text = file.read_text("utf-8")
        before = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
        now = moved(before, places)
        if "asked_sha256" in now:
            now["asked_sha256"] = settings_digest(now["asked"])
        if "config_sha256" in now:
            now["config_sha256"] = sha256((folder / "config.toml").read_bytes()).hexdigest()
        if now != before:
            write_file(file, (tomli_w.dumps(now) if name.endswith(".toml") else to_json(now, indent=2) + "\n").encode())


def _plain(value: Any) -> Any:
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else str(value) if isinstance(value, Path) else value  # fmt: skip


def _named(work: JobConfig | Measured, settings: Mapping[str, Any]) -> dict[str, Source]:
    """What settings name, by their paths."""
    if isinstance(work, MatchConfig):
        return {path: Source(Path(path)) for path in _paths(settings) if path != work.data.pairs} | _captioned(
            work.data
        )
    return {path: Source(Path(path)) for path in _paths(settings)}


def _captioned(cfg: CaptionsConfig) -> dict[str, Source]:
    """The table, and the images that it names; where no folder is set, from the folder of the table, which is where they are looked for."""
    table, found = table_of(cfg.pairs), read_captions(cfg)
    root = Path(cfg.images) if cfg.images else table.parent
    names = (Path(os.path.relpath(found.folder / file, root)) for file in found.captions)
    images = [name.as_posix() for name in names if ".." not in name.parts and (root / name).is_file()]
    if not cfg.images:
        return {str(root): Source(root, (table.name, *images))}
    sent = Source(root, (*(["pairs.csv"] if (root / "pairs.csv").is_file() else []), *images))
    return {cfg.pairs: Source(Path(cfg.pairs), ("pairs.csv",) if os.path.isdir(cfg.pairs) else ()), cfg.images: sent}


def _paths(settings: Any, table: str = "") -> Iterator[str]:
    for key, value in settings.items():
        match value:
            case dict():
                yield from _paths(value, key)
            case str() | list():
                tokenizer = table in TOKENIZERS and key == "kind" and value not in KINDS
                for path in [value] if isinstance(value, str) else value:
                    named = tokenizer or key in DATA or (key in MODELS and os.sep in str(path))
                    if named and isinstance(path, str) and os.path.exists(path):
                        yield path


def _packs(work: JobConfig | Measured, settings: Mapping[str, Any]) -> set[str]:
    """The packs that are opened by name."""
    lexicon = {"vader"} if isinstance(work, Measured) and work.cell.arm.kind == "lexicon" else set()
    return lexicon | {name for name in _names(settings) if name in PACKS}


def _names(settings: Mapping[str, Any], table: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _names(value, key)
        elif isinstance(value, str) and (key in MODELS or (table in TOKENIZERS and key == "kind")):
            yield value


def _pack(name: str) -> Path:
    get_pack(name)
    return pack_folder(name)


def _in_cache(path: str) -> str:
    """Where a path of the cache is to be put, so that it is found there by its name."""
    inside = Path(path).absolute().is_relative_to(cache_folder().absolute())
    return f"cache/{Path(path).absolute().relative_to(cache_folder().absolute()).as_posix()}" if inside else ""


def _taken(work: JobConfig | Measured) -> list[str]:
    return [scored(work.cell).name] if isinstance(work, Measured) and work.cell.arm.row.after else []


@cache  # a vocabulary takes a second to be read, and each cell asks
def _float32_bytes(file: Path) -> int:
    if file.suffix != ".gguf":
        return file.stat().st_size
    from headstart.bases.gguf import parameters_of  # which loads torch

    return 4 * parameters_of(file)
