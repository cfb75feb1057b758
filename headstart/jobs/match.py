"""The matching job: images with captions and two towers in, a run directory with a matcher out.

Frozen towers read every caption and image once; the vectors are kept in the cache directory, and only the projections
go through the training loop. Trainable towers are trained end to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from headstart.bases.caption_vectors import caption_vectors
from headstart.bases.image_index import Checked, check_images
from headstart.bases.matcher import index_of, open_encoder, open_text_tower, write_dual
from headstart.config import MatchConfig
from headstart.errors import DataError, ModelError
from headstart.images import captions
from headstart.images.captions import Captioned, CaptionParts, Captions
from headstart.images.read import bad_notes, refuse_bad
from headstart.jobs.answers import MatchAnswer, MatchFacts
from headstart.jobs.cards import matcher_card
from headstart.jobs.job import Amount, Job, Kept, run_job
from headstart.jobs.receipt import TowersMoved, towers_moved, towers_receipt, towers_sha256
from headstart.models.dual import DualEncoder, Space, TextTower
from headstart.models.heads import POOLS
from headstart.runs.checkpoint import Progress
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import DualConfig
from headstart.tasks import retrieve
from headstart.tasks.canonical import start_canonical
from headstart.tasks.retrieve import Embedded, MatchScores, Pairs, Retrieve
from headstart.text.batch import Batches
from headstart.text.digests import digest
from headstart.text.tokenizer import Tokenizer

EVALUATIONS = 20  # in a run, about


def match(cfg: MatchConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train two towers on the captions of `cfg.data` into the run directory `out`; its result."""
    return run_job(cfg, out, resume, watch)


@dataclass(frozen=True)
class Matching(Job[MatchConfig]):
    cfg: MatchConfig
    shape: DualConfig
    found: Captioned
    parts: CaptionParts
    images: Checked
    tokenizer: Tokenizer
    dual: DualEncoder
    model: DualEncoder | Space  # the projections alone, where the towers are frozen
    pairs: Pairs[Any]
    task: Retrieve[Any, Any]
    batches: Batches[Any]
    started: dict[str, float]  # how the projections were found before training, where they were

    @classmethod
    def files(cls, cfg: MatchConfig) -> list[Path]:
        return [captions.table_of(cfg.data.pairs)]

    @classmethod
    def prepare(cls, cfg: MatchConfig, kept: Kept[MatchConfig], watch: Watch) -> Self:
        """Captions, images, towers, and projections as they begin."""
        found, device = captions.read_captions(cfg.data), cfg.train.device
        base = open_text_tower(cfg.text)
        torch.manual_seed(cfg.train.seed)
        encoder, image = open_encoder(cfg.image, cfg.patches, cfg.image_size)
        pool = cfg.pool or ("last" if base.config.causal else "mean")
        shape = DualConfig(text=base.config, pool=pool, image=image, space=cfg.space)
        space = Space(base.config.width, encoder.width, cfg.space)
        text = TextTower(base.model.base, POOLS[pool])
        dual = DualEncoder(text.to(device), encoder.to(device), space)  # the space stays where the kept vectors are
        files = list(found.captions)
        if cfg.scope == "head" or cfg.canonical:  # frozen towers, or untrained ones that decide where to start
            dual.eval()
            index = index_of(dual.see, dual.image, image.model_dump_json(), image.pixels, device)
            seen = index(found.folder, files, watch)
        else:
            seen = None
        checked: Checked = seen or check_images(found.folder, files, watch)
        refuse_bad(checked.bad, cfg.data.strict, len(checked.contents), str(found.folder))
        for note in (*found.reading.notes(), *bad_notes(checked.bad), *captions.blank_notes(found.blank)):
            watch.note(f"Note: {note}")  # before the rest is found to be too few
        parts = captions.split_captions(found, checked.contents, cfg.data)
        started: dict[str, float] = {}
        pairs: Pairs[Any] = retrieve.RawPairs(
            base.tokenizer, base.config.causal, base.config.context, found.folder, image.pixels
        )
        task: Retrieve[Any, Any] = retrieve.RetrieveRaw()
        if seen is not None:
            texts = sorted({text for file in seen.files for text in found.captions[file]})
            vectors = caption_vectors(dual.text, texts, base.tokenizer, shape, device)
            kept_pairs = retrieve.SeenPairs(texts, vectors, seen.files, seen.vectors)
            if cfg.canonical:
                started = start_canonical(space, kept_pairs.whole(parts.train), list(kept_pairs.measured(parts.valid)))
            if cfg.scope == "head":
                pairs, task = kept_pairs, retrieve.RetrieveSeen()
        dual.to(device)
        if cfg.scope == "head":
            dual.requires_grad_(False)
            space.requires_grad_(True)
        batches = pairs.batches(parts.train, cfg.train.batch_size, cfg.train.seed)
        per_epoch = -(-batches.per_epoch // cfg.train.accumulate)
        steps = cfg.train.steps or cfg.epochs * per_epoch
        schedule = cfg.train.scheduled(steps, eval_every=max(per_epoch, steps // EVALUATIONS))
        cfg = cfg.model_copy(update={"pool": pool, "train": schedule})
        model = space if cfg.scope == "head" else dual
        return cls(cfg, shape, found, parts, checked, base.tokenizer, dual, model, pairs, task, batches, started)

    @property
    def whole(self) -> nn.Module:
        return self.dual

    def measured(self) -> Sequence[Any]:
        return self.pairs.measured(self.parts.valid)

    held_out = True

    @property
    def amount(self) -> Amount:
        texts = [text for texts in self.parts.train.values() for text in texts]
        return Amount(len(texts), len(self.tokenizer.encode(texts).ids), self.tokenizer.size)

    def facts(self, before: Mapping[str, Any]) -> MatchFacts:
        """A run that goes on must find the same images."""
        contents = (f"{file}\t{content}" for file, content in sorted(self.images.contents.items()))
        facts: MatchFacts = {
            **self.parts.facts(),
            "pictures_sha256": digest(*contents),
            "folder": str(self.found.folder),
            "blank_rows": self.found.blank,
            "bad_images": self.images.bad,
            "reading": self.found.reading.facts(),
            "tokenizer_sha256": self.tokenizer.sha256,
        }
        now = {"split_sha256": facts["split_sha256"], "pictures_sha256": facts["pictures_sha256"]}
        if any(before.get(name, found) != found for name, found in now.items()):
            raise DataError(
                f"{self.found.folder}: images were added, changed or deleted since this run began. Put them back, or begin a "
                "new run with another --out.",
                "DATA_CHANGED",
            )
        return facts

    def records(self) -> dict[str, dict[str, dict[str, str]]]:
        contents = self.images.contents
        return {"split.json": {name: {f: contents[f] for f in part} for name, part in self.parts.parts().items()}}

    def notes(self) -> Iterator[str]:
        yield self.parts.note()

    def receipt(self) -> Mapping[str, Any]:
        towers = ["text"] if self.cfg.image == "transformer" else ["text", "image"]  # that do not start from nothing
        made = towers_receipt(self.dual, towers, frozen=self.cfg.scope == "head")
        return {"text": self.cfg.text, "image": self.cfg.image, **made}

    def check_receipt(self, receipt: Mapping[str, Any]) -> None:
        if self.cfg.image != "transformer" and receipt["towers_sha256_before"] != towers_sha256(self.dual):
            raise ModelError("The weights of a tower changed since this run began. Begin a new run.", "RUN_DAMAGED")

    def receipt_after(self, receipt: Mapping[str, Any]) -> TowersMoved:
        return towers_moved(self.dual, receipt)

    def scores(self, run: Run, progress: Progress) -> MatchAnswer:
        return {
            "text": self.cfg.text,
            "image": self.cfg.image,
            "start": self.started or None,
            "valid": {**(progress.best or {}), **self._embedded(self.parts.valid).match_scores()},
            "test": self._tested(run) if self.parts.test else None,
            "bad_images": len(self.images.bad),
        }

    def _embedded(self, part: Captions) -> Embedded:
        batches = (batch.to(self.cfg.train.device) for batch in self.pairs.measured(part))
        return self.task.gathered(self.model.eval(), batches)

    def _tested(self, run: Run) -> MatchScores:
        """Retrieve the images of the test captions."""
        part = self.parts.test
        found = self._embedded(part)
        run.write_lines("predictions.jsonl", [{**row} for row in found.retrieved(part)])
        return found.match_scores()

    def card(self, result: Mapping[str, Any]) -> str:
        return matcher_card(self.cfg, result)

    def save(self, folder: Path, card: str) -> None:
        write_dual(folder, self.dual, self.shape, card)
