"""What a frozen text tower makes of captions, computed once and kept in the cache directory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.bases.features import kept
from headstart.bases.matcher import COMPUTED
from headstart.hub.cache import private_folder
from headstart.models.dual import TextTower
from headstart.runs.checkpoint import fingerprint, weights
from headstart.shapes import DualConfig
from headstart.text.batch import by_length, pad
from headstart.text.digests import digest
from headstart.text.tokenizer import Tokenizer, rows_to_read

AT_ONCE = 128  # captions in one forward pass


def caption_vectors(
    tower: TextTower, texts: Sequence[str], tokenizer: Tokenizer, shape: DualConfig, device: str
) -> Tensor:
    """One vector for each text: (texts, D)."""
    decides = (str(COMPUTED), fingerprint(weights(tower)), tokenizer.sha256, shape.pool, shape.text.model_dump_json())

    @torch.inference_mode()
    def make() -> Tensor:
        rows, _ = rows_to_read(texts, tokenizer, shape.text.causal, shape.text.context)
        vectors = torch.empty(len(texts), shape.text.width)
        for part in by_length(rows.lengths, AT_ONCE):
            ids, mask = pad([rows[int(i)] for i in part], tokenizer.pad)
            vectors[part] = tower(ids.to(device), mask.to(device)).cpu()
        return vectors

    return kept(private_folder("captions") / f"{digest(*decides, *texts)[:24]}.safetensors", make)
