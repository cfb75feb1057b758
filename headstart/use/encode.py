"""One vector for each text, from a base or the base of a classifier: its embedding.

A text is pooled as its base was trained: as modules.json of a sentence-transformers folder declares, as the head of a classifier
pools, by default the last token of a causal model, [CLS] of an external encoder, the mean over the tokens of one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from headstart.bases.at_hand import must_have_weights
from headstart.bases.pretrained import find_base, is_ours, read_pretrained
from headstart.models.heads import POOLS, Pooling
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.watch import Watch
from headstart.shapes import Pool, usual_pool
from headstart.tasks.classify import per_text, pooled_by, rows_of
from headstart.text.digests import digest

AT_ONCE = 1024  # texts, which are sorted by length and read in smaller batches
UNLIMITED = 2**31  # tokens

Vectors = NDArray[np.float32]  # (N, D)


@dataclass
class LoadedEncoder:
    """A base that embeds texts."""

    saved: Saved
    pool: Pool
    pooling: Pooling
    normalized: bool  # vectors have length 1, so that their product is the cosine
    truncated: int = 0  # texts so far that were longer than the context

    @classmethod
    def load(cls, name: str | Path, normalize: bool | None = None) -> LoadedEncoder:
        """The encoder of a run, a pack, a folder or hf:NAME; with `normalize` None, vectors have length 1 where the folder declares it."""
        must_have_weights([str(name)])
        folder = find_base(str(name))
        if is_ours(folder):
            saved, declared = read_model(folder), False
        else:
            saved, declared = read_pretrained(folder), _declares_length(folder)
            saved.model.base.max_len = min(saved.model.base.max_len, _declared_context(folder))
        trained = saved.head.kind == "classify"
        pool = saved.head.pool if trained else usual_pool(saved.config)
        pooling = saved.head.pooling if trained else POOLS[pool]
        return cls(saved, pool, pooling, declared if normalize is None else normalize)

    @property
    def width(self) -> int:
        return self.saved.config.width

    @property
    def key(self) -> str:
        """What decides the vector of a text."""
        settings = f"{self.saved.config.model_dump_json()}{self.saved.head}{self.saved.model.base.max_len}"
        base = fingerprint(weights(self.saved.model.base))
        return digest(base, self.saved.tokenizer.sha256, settings, f"{self.pool} {self.normalized}")

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Vectors:
        """The embedding of each text, (N, D)."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts; for one text give [text]")
        watch = watch or Watch()
        parts = [np.zeros((0, self.width), np.float32)]
        with watch.bar("Embedding", len(texts)):
            for first in range(0, len(texts), AT_ONCE):
                parts.append(self._encode(texts[first : first + AT_ONCE]))
                watch.reach(min(len(texts), first + AT_ONCE), "")
        return np.concatenate(parts)

    def embed(self, texts: Sequence[str], normalize: bool = True) -> list[list[float]]:
        """The same as lists, of length 1 if asked for."""
        vectors = self.encode(texts)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else np.ones((len(vectors), 1))
        return (vectors / np.maximum(lengths, 1e-12)).tolist()

    @torch.inference_mode()
    def _encode(self, texts: Sequence[str]) -> Vectors:
        saved, head = self.saved, self.saved.head
        rows, owner, cut = rows_of(texts, saved.tokenizer, saved.model.base, head.long, head.prompt)
        self.truncated += cut
        (found,) = pooled_by([self.pooling], saved.model, rows, saved.tokenizer.pad)
        vectors = per_text(found, owner, len(texts))
        return (F.normalize(vectors) if self.normalized else vectors).numpy()


def _declares_length(folder: Path) -> bool:
    """Whether a folder of sentence-transformers ends with a module that gives every vector length 1."""
    modules = _read(folder / "modules.json")
    kinds = [str(m.get("type")) for m in modules if isinstance(m, dict)] if isinstance(modules, list) else []
    return bool(kinds) and kinds[-1].endswith(".Normalize")


def _declared_context(folder: Path) -> int:
    """The maximum number of tokens that sentence-transformers reads with this folder, which can be less than the positions."""
    if not (folder / "modules.json").exists():
        return UNLIMITED
    places = {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}
    declared = {key: _read(folder / file) for file, key in places.items()}
    found = [settings.get(key) for key, settings in declared.items() if isinstance(settings, dict)]
    return min((length for length in found if isinstance(length, int) and length > 2), default=UNLIMITED)


def _read(file: Path) -> object:
    """The JSON in a small file that may be missing; a damaged modules.json is refused where its pooling is read."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
