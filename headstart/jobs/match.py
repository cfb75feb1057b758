"""The matching job: pictures with captions and two towers in, a run directory with a matcher out.

Frozen towers look at every caption and picture once; what they made is kept in the cache directory, and only the
projections go through the training loop. Towers that learn go through it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.bases.features import kept
from headstart.bases.image_index import Checked, check_images
from headstart.bases.matcher import COMPUTED, index_of, open_encoder, open_text_tower, write_dual
from headstart.config import MatchConfig
from headstart.errors import DataError, ModelError
from headstart.hub.cache import private_folder
from headstart.images.captions import (
    Captioned,
    CaptionParts,
    Captions,
    blank_notes,
    read_captions,
    split_captions,
    table_of,
)
from headstart.images.read import bad_notes, refuse_bad
from headstart.models.dual import DualEncoder, Space, TextTower
from headstart.models.heads import POOLS
from headstart.runs.card import named
from headstart.runs.checkpoint import fingerprint, weights
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import DualConfig
from headstart.tasks.canonical import start_canonical
from headstart.tasks.retrieve import (
    Embedded,
    MatchScores,
    Pairs,
    RawPairs,
    Retrieve,
    RetrieveRaw,
    RetrieveSeen,
    SeenPairs,
    chance,
    ranks,
)
from headstart.text.batch import by_length, pad
from headstart.text.files import file_facts
from headstart.text.split import digest
from headstart.text.tokenizer import Tokenizer, rows_to_read
from headstart.train.loop import prepare_device, train

CAPTIONS_AT_ONCE = 128
LOOKS = 20  # evaluations in a run, about


@dataclass(frozen=True)
class Matching:
    """All that stands before the first update, and nothing of it in the run directory."""

    cfg: MatchConfig  # with what the data decides filled in
    shape: DualConfig
    found: Captioned
    parts: CaptionParts
    pictures: Checked
    tokenizer: Tokenizer
    dual: DualEncoder
    pairs: Pairs[Any]
    task: Retrieve[Any, Any]
    started: dict[str, float]  # how the projections were found before training, where they were

    @property
    def model(self) -> DualEncoder | Space:
        """What learns."""
        return self.dual.space if self.cfg.scope == "head" else self.dual

    def embedded(self, part: Captions) -> Embedded:
        batches = (batch.to(self.cfg.train.device) for batch in self.pairs.measured(part))
        return self.task.gathered(self.model.eval(), batches)


def prepare(cfg: MatchConfig, watch: Watch) -> Matching:
    """Captions, pictures, towers, and projections as they begin."""
    found, device = read_captions(cfg.data), cfg.train.device
    base = open_text_tower(cfg.text)
    torch.manual_seed(cfg.train.seed)
    encoder, image = open_encoder(cfg.image, cfg.patches, cfg.image_size)
    pool = cfg.pool or ("last" if base.config.causal else "mean")
    shape = DualConfig(text=base.config, pool=pool, image=image, space=cfg.space)
    space = Space(base.config.width, encoder.width, cfg.space)
    text = TextTower(base.model.base, POOLS[pool])
    dual = DualEncoder(text.to(device), encoder.to(device), space)  # the space stays where what was seen is kept
    files, asked_once = list(found.captions), cfg.scope == "head" or cfg.canonical
    if asked_once:
        dual.eval()
        seen = index_of(dual.see, dual.image, image.model_dump_json(), image.pixels, device)(found.folder, files, watch)
    checked = seen if asked_once else check_images(found.folder, files, watch)
    refuse_bad(checked.bad, cfg.data.strict, len(checked.contents), str(found.folder))
    _tell_left_out(found, checked.bad, watch)  # before the rest is found to be too few
    parts = split_captions(found, checked.contents, cfg.data)
    started: dict[str, float] = {}
    if asked_once:
        texts = sorted({text for file in seen.files for text in found.captions[file]})
        vectors = _kept_captions(dual.text, texts, base.tokenizer, shape, device)
        kept_pairs = SeenPairs(texts, vectors, seen.files, seen.vectors)
        if cfg.canonical:
            started = start_canonical(space, kept_pairs.whole(parts.train), list(kept_pairs.measured(parts.valid)))
    dual.to(device)
    pairs: Pairs[Any]
    task: Retrieve[Any, Any]
    if cfg.scope == "head":
        dual.requires_grad_(False)
        space.requires_grad_(True)
        pairs, task = kept_pairs, RetrieveSeen()
    else:
        pairs = RawPairs(base.tokenizer, base.config.causal, base.config.context, found.folder, image.pixels)
        task = RetrieveRaw()
    per_epoch = -(-pairs.batches(parts.train, cfg.train.batch_size, 0).per_epoch // cfg.train.accumulate)
    steps = cfg.epochs * per_epoch
    schedule = cfg.train.scheduled(steps, eval_every=max(per_epoch, (cfg.train.steps or steps) // LOOKS))
    cfg = cfg.model_copy(update={"pool": pool, "train": schedule})
    return Matching(cfg, shape, found, parts, checked, base.tokenizer, dual, pairs, task, started)


def match(cfg: MatchConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train two towers on the captions of `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    with Run.start(out, resume, cfg, prepare_device(cfg.train)) as run:
        if run.finished:
            return run.finish_again(watch)
        run.check_files(file_facts([table_of(cfg.data.pairs)]))
        job = prepare(cfg, watch)
        cfg, model, parts = job.cfg, job.model, job.parts
        run.write_text("model/tokenizer.json", job.tokenizer.to_json())
        run.write_config(cfg)
        receipt = _open_receipt(run, job)
        _tell_facts(run, job, watch)

        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        batches = job.pairs.batches(parts.train, cfg.train.batch_size, cfg.train.seed)
        progress = train(model, job.task, batches, lambda: job.pairs.measured(parts.valid), cfg.train, run, watch)

        _close_receipt(run, receipt, job)
        result = {
            "run": str(run.path),
            "text": cfg.text,
            "image": cfg.image,
            "steps": progress.step,
            "best_step": progress.best_step,
            "start": job.started or None,
            "valid": {**(progress.best or {}), **scores_of(job.embedded(parts.valid))},
            "test": _open_test_captions(run, job) if parts.test else None,
            "bad_images": len(job.pictures.bad),
            "parameters": sum(p.numel() for p in job.dual.parameters()),
            "trained_parameters": trained,
            "seconds": round(progress.seconds, 3),
        }
        write_dual(run.path / "model", job.dual, job.shape, _card(cfg, result))
        return run.finish(result, cfg.train.keep_checkpoints)


def scores_of(found: Embedded) -> MatchScores:
    """Recall both ways, and what guessing would score."""
    pictures, captions = len(found.images), len(found.texts)
    return {"images": pictures, "captions": captions, **found.recalls(), "chance": chance(found.counts)}


def _kept_captions(
    tower: TextTower, texts: Sequence[str], tokenizer: Tokenizer, shape: DualConfig, device: str
) -> Tensor:
    """What a frozen text tower makes of captions, computed once: (texts, D)."""
    settings = shape.text.model_dump_json()
    decides = (str(COMPUTED), fingerprint(weights(tower)), tokenizer.sha256, shape.pool, settings)

    @torch.inference_mode()
    def make() -> Tensor:
        rows, _ = rows_to_read(texts, tokenizer, shape.text.causal, shape.text.context)
        vectors = torch.empty(len(texts), shape.text.width)
        for part in by_length(rows.lengths, CAPTIONS_AT_ONCE):
            ids, mask = pad([rows[int(i)] for i in part], tokenizer.pad)
            vectors[part] = tower(ids.to(device), mask.to(device)).cpu()
        return vectors

    return kept(private_folder("captions") / f"{digest(*decides, *texts)[:24]}.safetensors", make)


def _tell_left_out(found: Captioned, bad: dict[str, str], watch: Watch) -> None:
    for note in (*found.reading.notes(), *bad_notes(bad), *blank_notes(found.blank)):
        watch.note(f"Note: {note}")


def _tell_facts(run: Run, job: Matching, watch: Watch) -> None:
    """Keep and tell what is learned from; a run that goes on must find the same pictures."""
    contents = (f"{file}\t{content}" for file, content in sorted(job.pictures.contents.items()))
    facts: dict[str, Any] = {**job.parts.facts(), "pictures_sha256": digest(*contents)}
    before = run.read_json("data.json")
    if any(before.get(name, facts[name]) != facts[name] for name in ("split_sha256", "pictures_sha256")):
        raise DataError(
            f"{job.found.folder}: images were added, changed or deleted since this run began. Put them back, or begin a "
            "new run with another --out.",
            "DATA_CHANGED",
        )
    run.add_data_facts(
        {
            **facts,
            "folder": str(job.found.folder),
            "blank_rows": job.found.blank,
            "bad_images": job.pictures.bad,
            "reading": job.found.reading.facts(),
            "tokenizer_sha256": job.tokenizer.sha256,
        }
    )
    contents_of = job.pictures.contents
    run.write_json("split.json", {n: {f: contents_of[f] for f in part} for n, part in job.parts.parts().items()})
    images, captions = facts["images"], facts["captions"]
    watch.note(
        f"{images['train']:,} training, {images['valid']:,} validation, {images['test']:,} test pictures with "
        f"{captions['train']:,}, {captions['valid']:,} and {captions['test']:,} captions."
    )


def _open_receipt(run: Run, job: Matching) -> dict[str, Any]:
    """What the towers are before the first update; a resumed run must find the same ones."""
    cfg, dual = job.cfg, job.dual
    towers = {"text": fingerprint(weights(dual.text)), "image": fingerprint(weights(dual.image))}
    if run.begun:
        receipt = run.read_json("receipt.json")
        if cfg.image != "transformer" and receipt["towers_sha256_before"] != towers:
            raise ModelError(
                f"{run.path}: a tower is not what it was when this run began. Begin a new run.", "RUN_DAMAGED"
            )
        return receipt
    taken = ["text", *(["image"] if cfg.image != "transformer" else [])]
    names = list(weights(dual))
    receipt = {
        "text": cfg.text,
        "image": cfg.image,
        "copied": sorted(name for name in names if name.split(".")[0] in taken),
        "new": sorted(name for name in names if name.split(".")[0] not in taken),
        "frozen": taken if cfg.scope == "head" else [],
        "towers_sha256_before": towers,
    }
    run.write_json("receipt.json", receipt)
    return receipt


def _close_receipt(run: Run, receipt: dict[str, Any], job: Matching) -> None:
    after = {"text": fingerprint(weights(job.dual.text)), "image": fingerprint(weights(job.dual.image))}
    moved = [name for name in receipt["frozen"] if after[name] != receipt["towers_sha256_before"][name]]
    run.write_json("receipt.json", {**receipt, "towers_sha256_after": after, "frozen_moved": moved})


def _open_test_captions(run: Run, job: Matching) -> MatchScores:
    """Look for the pictures of the test captions, once, with the kept weights."""
    part = job.parts.test
    found = job.embedded(part)
    files, owner, scores = list(part), found.owner.cpu().numpy(), found.scores
    texts = [text for texts in part.values() for text in texts]
    places = ranks(scores, owner[:, None] == range(len(files)))
    run.write_lines(
        "predictions.jsonl",
        [
            {"caption": text, "file": files[own], "rank": int(place), "best": files[int(row.argmax())]}
            for text, own, place, row in zip(texts, owner, places, scores, strict=True)
        ],
    )
    return scores_of(found)


def _card(cfg: MatchConfig, result: dict[str, Any]) -> str:
    part = "test" if result["test"] else "valid"
    scores = result[part]
    way = scores["text_to_image"]
    told = ", ".join(f"{100 * way[k]['value']:.1f} % ({k})" for k in way)
    return (
        f"# Captions and pictures ({named(cfg.text, cfg.image)})\n\nTrained by Headstart (trained: "
        f"{cfg.scope}) on {named(cfg.data.pairs)}, seed {cfg.train.seed}. Of {scores['captions']} {part} captions, the "
        f"picture among {scores['images']} was found: {told}.\n"
    )
