"""One vector for each text, from the base of a finished run.

Shapes: D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from headstart.models.heads import POOLS
from headstart.runs.model_dir import Saved, read_model
from headstart.runs.run import Run
from headstart.tasks.classify import per_text, pooled_by, rows_of


class LoadedEncoder:
    """The base of a language model or classifier: its pooled states are the embeddings."""

    def __init__(self, saved: Saved) -> None:
        self.saved = saved

    @classmethod
    def load(cls, run: str | Path) -> LoadedEncoder:
        return cls(read_model(Run.open(run).path / "model"))

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], normalize: bool = True) -> list[list[float]]:
        """One vector per text, (texts, D): what a class head reads; of a language model the last token or the mean."""
        if not texts:
            return []
        model, tokenizer, head = self.saved.model, self.saved.tokenizer, self.saved.head
        language = POOLS["last" if model.base.causal else "mean"]
        pool = language if head.kind == "language" else model.head.pool
        rows, owner, _ = rows_of(texts, tokenizer, model.base, head.long, head.prompt)
        vectors = per_text(pooled_by([pool], model, rows, tokenizer.pad)[0], owner, len(texts))
        return (F.normalize(vectors, dim=1) if normalize else vectors).tolist()
