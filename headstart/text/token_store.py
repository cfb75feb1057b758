"""Tokens of a corpus that is larger than memory, in files of the user's cache, which may be deleted at any time.

    tokens/KEY.json       a tokenizer that was trained on streamed texts; KEY: SHA-256 of them and of its settings
    tokens/KEY/           KEY: SHA-256 of the texts, the tokenizer and the boundaries
      ids                 all tokens, one after the other: u16 or u32, little-endian
      starts              where each row begins and the last one ends: i64
      progress.json       until they are complete: how much of them is
      manifest.json       then: their type, sizes and SHA-256, and the tokenizer's SHA-256

Parts are read with pread, not mapped: pages of a map that were read once count as memory of the process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headstart.config import TokenizerConfig
from headstart.hub.cache import writing_in
from headstart.text.digests import digest
from headstart.text.stretches import StreamedTexts, Texts
from headstart.text.tokenizer import Tokenizer, TokenRows, tokenizer_for
from headstart.text.vocabulary import KINDS

VERSION = 1
BATCHES = 16  # of pieces, a million characters each, between two records of progress


class TokenFile:
    """The ids in a file; a slice of them is read when it is asked for."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, np.dtype(kind)
        self.file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)
        self.size = os.fstat(self.file).st_size // self.kind.itemsize

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> NDArray[np.int32]:
        start, stop, step = part.indices(self.size)
        assert step == 1
        wanted = max(0, stop - start) * self.kind.itemsize
        data = os.pread(self.file, wanted, start * self.kind.itemsize)
        assert len(data) == wanted, f"{self.path}: {len(data)} bytes where {wanted} were read for"
        return np.frombuffer(data, self.kind).astype(np.int32)


def token_rows(texts: Texts, tokenizer: Tokenizer, boundaries: bool) -> TokenRows:
    """The rows of `texts`: in memory, or in files where the texts are streamed; made once for the same texts and tokenizer."""
    if not isinstance(texts, StreamedTexts):
        return tokenizer.encode(texts, boundaries)
    key = digest(str(VERSION), texts.identity, tokenizer.sha256, str(boundaries))
    with writing_in("tokens") as folder:
        folder = folder / key[:32]
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second finds what the first has made
            if not _complete(folder):
                _write(folder, texts, tokenizer, boundaries)
        manifest = json.loads((folder / "manifest.json").read_text())
        return TokenRows(TokenFile(folder / "ids", manifest["dtype"]), np.fromfile(folder / "starts", "<i8"))


def trained_once(texts: Texts, cfg: TokenizerConfig, seed: int) -> Tokenizer:
    """`tokenizer_for`; of streamed texts it is kept, since another training could break ties otherwise, and change all tokens."""
    if not isinstance(texts, StreamedTexts) or cfg.kind not in KINDS:
        return tokenizer_for(texts, cfg, seed)
    key = digest(str(VERSION), texts.identity, cfg.model_dump_json(), str(seed))
    with writing_in("tokens") as folder:
        path = folder / f"{key[:32]}.json"
        try:
            found = json.loads(path.read_text())
            tokenizer = Tokenizer.from_json(found["tokenizer"])
            tokenizer.sampled = found["sampled"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            tokenizer = tokenizer_for(texts, cfg, seed)
            _put(path, {"sampled": tokenizer.sampled, "tokenizer": tokenizer.to_json()})
        return tokenizer


def _complete(folder: Path) -> bool:
    """Whether the files are those that the manifest describes."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        return all(_sha256(folder / name) == manifest["sha256"][name] for name in ("ids", "starts"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(folder: Path, texts: StreamedTexts, tokenizer: Tokenizer, boundaries: bool) -> None:
    kind = "<u2" if tokenizer.largest < 2**16 else "<u4"
    done = _progress(folder)
    with _opened(folder / "ids", done["ids"]) as ids, _opened(folder / "starts", done["starts"]) as starts:
        pieces, tokens = done["pieces"], ids.tell() // np.dtype(kind).itemsize
        if not pieces:
            starts.write(np.zeros(1, "<i8").tobytes())
        encoded = tokenizer.encode_stream(texts, boundaries, skip=pieces)
        for batch, (some, ends, many) in enumerate(encoded, start=1):
            ids.write(np.asarray(some).astype(kind).tobytes())
            starts.write((np.asarray(ends, "<i8") + tokens).tobytes())
            tokens, pieces = tokens + len(some), pieces + many
            if batch % BATCHES == 0:
                for file in (ids, starts):
                    file.flush()
                    os.fsync(file.fileno())
                _put(folder / "progress.json", {"pieces": pieces, "ids": ids.tell(), "starts": starts.tell()})
    sums = {name: _sha256(folder / name) for name in ("ids", "starts")}
    facts = {"version": VERSION, "dtype": kind, "tokens": tokens, "tokenizer_sha256": tokenizer.sha256, "sha256": sums}
    _put(folder / "manifest.json", facts)
    (folder / "progress.json").unlink(missing_ok=True)


def _progress(folder: Path) -> dict[str, int]:
    nothing = {"pieces": 0, "ids": 0, "starts": 0}
    try:
        found = json.loads((folder / "progress.json").read_text())
        done = {name: int(found[name]) for name in nothing}
        there = all((folder / name).stat().st_size >= done[name] for name in ("ids", "starts"))
        return done if there else nothing
    except (OSError, ValueError, KeyError, TypeError):
        return nothing


def _opened(path: Path, size: int) -> BinaryIO:
    """A file to be gone on with behind its first `size` bytes."""
    file = open(path, "ab")  # noqa: SIM115  the caller closes it
    file.truncate(size)
    file.seek(size)  # where the file ended before, `tell` would still be
    return file


def _put(path: Path, record: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    with open(draft, "w") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
