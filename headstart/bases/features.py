"""What a frozen base makes of texts, computed once and kept: over epochs, seeds, rates and label counts.

The file is named by everything that decides its content: the weights and the settings of the base, the tokenizer, the
pooling and the texts. A frozen base is a fixed function, so training on what is kept gives the same losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
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
from headstart.text.digests import digest
from headstart.text.tokenizer import Tokenizer


class FrozenFeatures:
    """Vectors of texts under each of `pools`: computed when first asked for, or read from `cfg.features` if kept there.

    `groups` of texts are computed and kept separately: the test rows are the same for all runs of a study, the training rows
    that are drawn are not.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        cfg: FinetuneConfig,
        groups: Sequence[Sequence[str]],
        pools: Sequence[Pool],
    ) -> None:
        self.model, self.tokenizer, self.cfg, self.pools = model, tokenizer, cfg, tuple(pools)
        self.groups = [sorted(set(texts)) for texts in groups]
        self.found: dict[int, Tensor] = {}  # by group, (pools, texts, D)

    def __call__(self, pool: Pool, texts: Sequence[str]) -> Tensor:
        """One vector for each of some of the texts, (texts, D)."""
        number = self.pools.index(pool)
        if not texts:
            return torch.zeros(0, self.model.base.width)
        places = [self._places[text] for text in texts]
        parts = {group: self._vectors(group)[number] for group in sorted({group for group, _ in places})}
        if len(parts) == 1:
            return next(iter(parts.values()))[[i for _, i in places]]
        return torch.stack([parts[group][i] for group, i in places])

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The group of each text, the first that has it, and its place there."""
        numbered = ((text, (g, i)) for g, texts in reversed([*enumerate(self.groups)]) for i, text in enumerate(texts))
        return dict(numbered)

    def _vectors(self, group: int) -> Tensor:
        """All vectors of a group, (pools, texts, D)."""
        if group not in self.found:
            texts = self.groups[group]
            file = Path(self.cfg.features) / f"{self._key(texts)}.safetensors" if self.cfg.features else None
            self.found[group] = kept(file, partial(self._made, texts)) if file else self._made(texts)
        return self.found[group]

    def _made(self, texts: Sequence[str]) -> Tensor:
        rows, owner, _ = rows_of(texts, self.tokenizer, self.model.base, self.cfg.long, self.cfg.whole_prompt)
        head, place = self.model.head, self.cfg.train.device
        pools = [head.pool if self.cfg.prompt else POOLS[pool] for pool in self.pools]  # a prompt says what is read
        found = pooled_by(pools, self.model, rows, self.tokenizer.pad, place)
        return torch.stack([per_text(vectors, owner, len(texts)).cpu() for vectors in found])

    def _key(self, texts: Sequence[str]) -> str:
        decides = (
            self._base,
            self.cfg.model.model_dump_json(),
            self.tokenizer.sha256,
            f"{' '.join(self.pools)} {self.cfg.long}{self.cfg.prompt or ''}",
        )
        return digest(*decides, *texts)[:24]

    @cached_property
    def _base(self) -> str:
        head = self.model.head
        transform = getattr(head, "transform", None) if self.cfg.prompt else None  # part of what is pooled
        return fingerprint(weights(self.model.base)) + (
            fingerprint(weights(transform)) if transform is not None else ""
        )


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
