"""Fine-tuning on tags: the same run as that of a classifier, with words in place of texts.

The head reads the first token of each word. It starts from a linear probe of these states, as that of a classifier does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

from headstart.bases.linear_probe import Probe, install
from headstart.bases.lora import add_lora
from headstart.bases.word_probe import fit_word_probe
from headstart.config import FinetuneConfig
from headstart.jobs.finetune import Finetuning
from headstart.jobs.opened import Opened
from headstart.models.base import freeze
from headstart.models.heads import ClassHead, Model
from headstart.shapes import Pool
from headstart.targets.tags import Tags
from headstart.targets.target import Target
from headstart.tasks.tag import Tag, TagText


@dataclass(frozen=True)
class Tagging(Finetuning):
    text: TagText  # type: ignore[assignment]
    valid: TagText  # type: ignore[assignment]
    test: TagText  # type: ignore[assignment]

    @classmethod
    def of(cls, start: Opened) -> Self:
        """A run whose rows are sentences."""
        cfg, data, model, tokenizer = start.cfg, start.data, start.model, start.tokenizer
        target, head, device = data.target, model.head, cfg.train.device
        assert isinstance(target, Tags)
        assert isinstance(head, ClassHead)
        text, valid, test = (TagText(rows, target, tokenizer, model.base) for rows in data.parts().values())
        probes = _probe(cfg, start.pools[0], model, text, valid) if start.taken and cfg.fit_head else ()
        if probes:
            install(head, probes[0])
        freeze(model.base, cfg.scope)
        if cfg.scope == "lora":
            add_lora(model.base, cfg.lora_rank)
        if cfg.scope == "head":
            for part in (text, valid, test):
                part.features = partial(part.states, model, device)
        score = cfg.score or target.leading([e.label for e in data.train])
        cfg, batches = (
            cfg.model_copy(update={"pool": start.pools[0]}),
            text.batches(cfg.train.batch_size, cfg.train.seed),
        )
        return cls(cfg, data, start.source, tokenizer, text, valid, test, model, Tag(target, score), batches, probes)

    def measured(self) -> Sequence[Any]:
        return self.valid.measured()

    @cached_property
    def decided(self) -> Target:
        return self.data.target


def _probe(cfg: FinetuneConfig, pool: Pool, model: Model, text: TagText, valid: TagText) -> tuple[Probe, ...]:
    """A linear probe of the words; none where all of them have one tag."""
    assert isinstance(model.head, ClassHead)
    train, held_out = ((part.states(model, cfg.train.device), part.tags) for part in (text, valid))
    probe = fit_word_probe(pool, model.head.linear.out_features, train, held_out)
    return (probe,) if probe else ()
