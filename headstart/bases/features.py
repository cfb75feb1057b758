"""What a frozen base makes of texts, computed once and kept: over epochs, seeds, rates and label counts.

The file is named by everything that decides its content: the weights and the settings of the base, the tokenizer, the
pooling and the texts. A frozen base is a fixed function, so training on what is kept gives the same losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from headstart.config import FinetuneConfig
from headstart.models.heads import POOLS, Model
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.disk import write_file
from headstart.shapes import Pool
from headstart.tasks.classify import per_text, pooled_by, rows_of
from headstart.text.split import digest
from headstart.text.tokenizer import Tokenizer


class FrozenFeatures:
    """Vectors of `texts` under each of `pools`: computed when first asked for, or read from `cfg.features` if kept there."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, cfg: FinetuneConfig, texts: Sequence[str], pools: Sequence[Pool]
    ) -> None:
        self.model, self.tokenizer, self.cfg, self.pools = model, tokenizer, cfg, tuple(pools)
        self.texts = sorted(set(texts))

    def __call__(self, pool: Pool, texts: Sequence[str]) -> Tensor:
        """One vector for each of some of the texts, (texts, D)."""
        vectors, places = self._vectors
        return vectors[self.pools.index(pool)][[places[text] for text in texts]]

    @cached_property
    def _vectors(self) -> tuple[Tensor, dict[str, int]]:
        """All vectors, (pools, texts, D), and the place of each text among them."""
        file = Path(self.cfg.features) / f"{self._key()}.safetensors" if self.cfg.features else None
        vectors = kept(file, self._made) if file else self._made()
        return vectors, {text: i for i, text in enumerate(self.texts)}

    def _made(self) -> Tensor:
        rows, owner, _ = rows_of(self.texts, self.tokenizer, self.model.base, self.cfg.long, self.cfg.whole_prompt)
        head, place = self.model.head, self.cfg.train.device
        pools = [head.pool if self.cfg.prompt else POOLS[pool] for pool in self.pools]  # a prompt says what is read
        found = pooled_by(pools, self.model, rows, self.tokenizer.pad, place)
        return torch.stack([per_text(vectors, owner, len(self.texts)).cpu() for vectors in found])

    def _key(self) -> str:
        decides = (
            fingerprint(weights(self.model.base)),
            self.cfg.model.model_dump_json(),
            self.tokenizer.sha256,
            f"{' '.join(self.pools)} {self.cfg.long}{self.cfg.prompt or ''}",
        )
        return digest(*decides, *self.texts)[:24]


def kept(file: Path, make: Callable[[], Tensor]) -> Tensor:
    """What is in the file; made, and kept there, if it is not there or damaged."""
    found = _read(file)
    if found is None:
        found = make()
        write_file(file, save({"features": found}))
    return found


def _read(file: Path) -> Tensor | None:
    try:
        return load(file.read_bytes())["features"]
    except (FileNotFoundError, SafetensorError, KeyError):  # not there, or damaged: made again
        return None
