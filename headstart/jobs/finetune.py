"""The fine-tuning job: labelled text and a base in, a run directory with a classifier out.

Pretrained, scratch and frozen differ in one line each, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.bases.features import FrozenFeatures
from headstart.bases.linear_probe import Probe, best_probe, fit_probes, install, rows_to_fit
from headstart.bases.lora import add_lora, merge_lora, plain_name
from headstart.bases.pretrained import open_base, within
from headstart.config import FinetuneConfig, usual_rate
from headstart.errors import ConfigError
from headstart.models.base import freeze
from headstart.models.heads import POOLS, ClassHead, Model
from headstart.runs.card import named, plain
from headstart.runs.checkpoint import Tensors, fingerprint, load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model, write_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import PRESETS, ModelConfig, pools_to_try, usual_pool
from headstart.tasks.classify import ClassBatch, Classify, ClassifyText, class_weights, most_probable
from headstart.tasks.metrics import class_scores
from headstart.text.batch import Batches
from headstart.text.files import file_facts
from headstart.text.hygiene import refuse_leaks
from headstart.text.read import text_files
from headstart.text.split import Labelled, draw, split_labelled
from headstart.text.tokenizer import Tokenizer, tokenizer_for
from headstart.train.loop import prepare_device, train


@dataclass(frozen=True)
class Finetuning:
    """All that stands before the first update, and nothing of it on disk."""

    cfg: FinetuneConfig  # with what the data and the base decide filled in
    data: Labelled
    source: Saved | None  # the base as it was found
    tokenizer: Tokenizer
    text: ClassifyText
    valid: ClassifyText
    test: ClassifyText
    head: HeadSpec
    model: Model
    task: Classify
    batches: Batches[ClassBatch]
    probes: tuple[Probe, ...] = ()  # linear probes of the base, its own pooling first; none on fresh weights

    @property
    def probe(self) -> Probe | None:
        """The one that the head begins with."""
        return next((p for p in self.probes if p.pool == self.head.pool), None) if self.cfg.fit_head else None

    @property
    def measured(self) -> Callable[[], Iterable[ClassBatch]] | None:
        return self.valid.measured if self.data.valid else None


def prepare(cfg: FinetuneConfig, kept: tuple[FinetuneConfig, Tokenizer] | None = None) -> Finetuning:
    """Rows, tokenizer and a model with the weights of the base, or fresh ones.

    `kept` are settings and tokenizer of a run that has begun: it goes on, whatever has become of its base since.
    """
    whole = split_labelled(cfg.data)
    data = draw(whole, cfg.data.labels, cfg.data.draw) if cfg.data.labels else whole
    source = None if kept or cfg.base in PRESETS else open_base(cfg.base, cfg.allow_pickle)
    shape, tokenizer = (kept[0].model, kept[1]) if kept else _shape_and_tokenizer(cfg, data, source)
    taken = source is not None and cfg.init == "pretrained"
    settled = cfg.pool or (kept[0].pool if kept else None)
    pools = (settled,) if settled else pools_to_try(shape) if taken else (usual_pool(shape),)
    cfg = _resolved(cfg, shape, data)
    torch.manual_seed(cfg.train.seed)
    model = build_model(shape, HeadSpec("classify", tuple(data.labels), pools[0], cfg.head_dropout, cfg.long))
    assert isinstance(model.head, ClassHead)
    if source and taken:
        load_weights(model.base, weights(source.model.base))
    if cfg.class_weights:
        model.head.weights.copy_(class_weights(data.train, data.labels))
    model.to(cfg.train.device)
    parts = data.parts().values()
    text, valid, test = (ClassifyText(rows, data.labels, tokenizer, model.base, cfg.long) for rows in parts)
    fitted = rows_to_fit(len(text.texts))
    known = [text.texts[i] for i in fitted]
    if cfg.features or cfg.scope == "head":  # the rows of other runs, and of the test, are read with them
        read = [e.text for rows in whole.parts().values() for e in rows]
    else:
        read = [*known, *valid.texts]
    features = FrozenFeatures(model, tokenizer, cfg, read, pools)
    probes: tuple[Probe, ...] = ()
    if taken and (cfg.fit_head or len(pools) > 1):  # fresh weights have nothing to probe
        targets = [text.targets[i] for i in fitted]
        probes = fit_probes(
            model.head,
            pools,
            lambda pool: ((features(pool, known), targets), (features(pool, valid.texts), valid.targets)),
        )
    pool = best_probe(probes).pool if probes else pools[0]
    cfg = cfg.model_copy(update={"pool": pool})
    model.head.pool = POOLS[pool]
    if probes and cfg.fit_head:
        install(model.head, best_probe(probes))
    freeze(model.base, cfg.scope)
    if cfg.scope == "lora":
        add_lora(model.base, cfg.lora_rank)
    if cfg.scope == "head":
        for part in (text, valid, test):
            part.features = partial(features, pool)
    batches = text.batches(cfg.train.batch_size, cfg.train.seed)
    task = Classify(len(data.labels), cfg.score or "accuracy")
    head = HeadSpec("classify", tuple(data.labels), pool, cfg.head_dropout, cfg.long)
    return Finetuning(cfg, data, source, tokenizer, text, valid, test, head, model, task, batches, probes)


def finetune(cfg: FinetuneConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a classifier on `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    with Run.start(out, resume, cfg, prepare_device(cfg.train)) as run:
        if run.finished:
            return run.finish_again(watch)
        paths = [path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path]
        run.check_files(file_facts(text_files(paths)))
        job = prepare(cfg, _kept(run) if run.begun else None)
        cfg, model, data = job.cfg, job.model, job.data
        run.write_text("model/tokenizer.json", job.tokenizer.to_json())
        run.write_config(cfg)
        receipt = _open_receipt(run, job)
        facts = _tell_facts(run, job, watch)
        overlap = facts["hygiene"]["overlapping_rows"]["test"] if cfg.check else []

        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        progress = train(model, job.task, job.batches, job.measured, cfg.train, run, watch)
        if cfg.scope == "lora":
            merge_lora(model.base)

        _close_receipt(run, receipt, model)
        result = {
            "run": str(run.path),
            "steps": progress.step,
            "best_step": progress.best_step,
            "valid": progress.best,
            "test": _open_test_rows(run, job, overlap) if data.test and cfg.predictions != "none" else None,
            "commonest": _commonest(data),
            "overlapping_test_rows": len(overlap) if cfg.check else None,
            "parameters": sum(p.numel() for p in model.parameters()),
            "trained_parameters": trained,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        write_model(run.path / "model", Saved(model, job.tokenizer, cfg.model, job.head), _card(cfg, result, data))
        return run.finish(result, cfg.train.keep_checkpoints)


def _kept(run: Run) -> tuple[FinetuneConfig, Tokenizer]:
    config = run.config
    assert isinstance(config, FinetuneConfig), "Run.start has made sure of the job"
    return config, Tokenizer.load(run.path / "model" / "tokenizer.json")


def _shape_and_tokenizer(cfg: FinetuneConfig, data: Labelled, source: Saved | None) -> tuple[ModelConfig, Tokenizer]:
    if source:
        return within(source.config, cfg.context), source.tokenizer
    if cfg.init == "pretrained":
        raise ConfigError(
            f"The preset '{cfg.base}' has no weights. Give a pretrained run as --base, or train from nothing with "
            "--init scratch."
        )
    tokenizer = tokenizer_for([e.text for e in data.train], cfg.tokenizer)
    return cfg.model.model_copy(update={"vocab": tokenizer.size}), tokenizer


def _resolved(cfg: FinetuneConfig, shape: ModelConfig, data: Labelled) -> FinetuneConfig:
    """`cfg` with what the data and the base decide."""
    if cfg.long == "window" and not shape.causal and shape.context < 3:
        raise ConfigError(
            "--long window: a context of 2 tokens holds a start and an end, and nothing of the text. Give --context 3 or more."
        )
    per_epoch = -(-len(data.train) // (cfg.train.batch_size * cfg.train.accumulate))
    steps = cfg.usual_steps(per_epoch, few=bool(cfg.data.labels) and not data.valid)
    train = cfg.train.scheduled(steps, eval_every=per_epoch if data.valid else steps // 10)
    if not train.lr:
        train = train.model_copy(update={"lr": usual_rate(shape, cfg.scope)})
    return cfg.model_copy(update={"model": shape, "train": train})


def _commonest(data: Labelled) -> dict[str, Any]:
    """What always saying the commonest label would score."""
    right = {name: [e.label == data.commonest for e in rows] for name, rows in data.parts().items() if rows}
    return {"label": data.commonest, **{name: float(np.mean(hits)) for name, hits in right.items()}}


def _tell_facts(run: Run, job: Finetuning, watch: Watch) -> dict[str, Any]:
    data, cut = job.data, {"train": job.text.cut, "valid": job.valid.cut, "test": job.test.cut}
    facts = data.facts(job.cfg.check)
    if job.cfg.strict_leakage:
        refuse_leaks(facts["hygiene"])
    run.add_data_facts({**facts, "truncated": cut, "tokenizer_sha256": job.tokenizer.sha256})
    counts = ", ".join(f"{label} {count}" for label, count in list(facts["labels"]["train"].items())[:10])
    watch.note(
        f"{len(data.train)} training, {len(data.valid)} validation, {len(data.test)} test rows; labels: {counts}."
    )
    for warning in facts["hygiene"]["warnings"] if facts["hygiene"] else data.reading.notes():
        watch.note(f"Note: {warning}")
    if job.cfg.fit_head and job.source and job.cfg.init == "pretrained" and not job.probes:
        watch.note(
            "Note: a label has no training rows, so the head starts from random weights, not from a linear probe."
        )
    if len(job.probes) > 1 and job.probes[0].accuracy is not None:
        scores = ", ".join(f"{probe.pool} {probe.accuracy:.3f}" for probe in job.probes)
        watch.note(f"Pooling: {job.head.pool} (accuracy of a linear probe on held-out rows: {scores}).")
    if any(cut.values()):
        told = ", ".join(f"{count} of {facts['rows'][name]} {name}" for name, count in cut.items() if count)
        watch.note(f"Note: texts longer than the base's context were cut: {told} rows.")
    return facts


def _open_receipt(run: Run, job: Finetuning) -> dict[str, Any]:
    """What was taken over, written before the first update; a resumed run keeps the one that is there."""
    if run.begun:
        return run.read_json("receipt.json")
    cfg, model, source = job.cfg, job.model, job.source
    base, taken = _base_tensors(model), source is not None and cfg.init == "pretrained"
    added = [f"base.{name}" for name in weights(model.base) if plain_name(name) is None]
    added += [f"head.{name}" for name in weights(model.head)]
    frozen = [f"base.{n}" for n, p in model.base.named_parameters() if not p.requires_grad and ".base_layer." not in n]
    heads = [name for name in weights(source.model) if name.startswith("head.")] if source else []
    receipt = {
        "base": cfg.base,
        "init": cfg.init,
        "copied": sorted(base) if taken else [],
        "new": sorted(added) if taken else sorted([*base, *added]),
        "head_strength": job.probe.c if job.probe else None,
        "pool": job.head.pool,
        "usual_pool": usual_pool(cfg.model),
        "probe_accuracy": {probe.pool: probe.accuracy for probe in job.probes},
        "unused": sorted([*(set(heads) - set(source.fresh)), *source.unused]) if taken and source else [],
        "base_sha256_before": fingerprint(base),
        "frozen": {name: fingerprint({name: base[name]}) for name in frozen},
    }
    run.write_json("receipt.json", receipt)
    return receipt


def _close_receipt(run: Run, receipt: dict[str, Any], model: Model) -> None:
    base = _base_tensors(model)
    moved = [name for name, before in receipt["frozen"].items() if fingerprint({name: base[name]}) != before]
    run.write_json("receipt.json", {**receipt, "base_sha256_after": fingerprint(base), "frozen_moved": moved})


def _base_tensors(model: Model) -> Tensors:
    """The tensors of the base by the names that they have without LoRA beside them."""
    return {f"base.{plain}": t for name, t in weights(model.base).items() if (plain := plain_name(name))}


def _open_test_rows(run: Run, job: Finetuning, overlap: Collection[int]) -> dict[str, Any]:
    """Predict the test rows, once, with the kept weights; scores with and without those that were learned from."""
    data, text = job.data, job.test
    scores = text.probabilities(job.model, job.cfg.train.device)
    predicted = most_probable(scores)
    run.write_lines(
        "predictions.jsonl",
        [
            {
                "row": i,
                **({"text": example.text} if job.cfg.predictions == "texts" else {}),
                "label": example.label,
                "prediction": data.labels[guess],
                "probabilities": dict(zip(data.labels, row, strict=True)),
            }
            for i, (example, guess, row) in enumerate(zip(data.test, predicted, scores, strict=True))
        ],
    )
    classes, clean = len(data.labels), sorted(set(range(len(predicted))) - set(overlap))
    rest = class_scores([text.targets[i] for i in clean], [predicted[i] for i in clean], classes) if clean else None
    return {**class_scores(text.targets, predicted, classes), "without_overlap": rest if overlap else None}


def _card(cfg: FinetuneConfig, result: dict[str, Any], data: Labelled) -> str:
    test = result["test"]
    low, high = test["interval"] if test else (0, 0)
    score = (
        f"Accuracy on {test['rows']} test rows: {test['accuracy']:.4f} (95 % interval {low:.4f} to {high:.4f})."
        if test
        else f"Accuracy on {len(data.valid)} validation rows: {result['valid']['accuracy']:.4f}."
        if result["valid"]
        else "No rows were held out to score it on."
    )
    start = "fresh weights" if cfg.init == "scratch" else f"the base {named(cfg.base)}"
    return (
        f"# A text classifier: {', '.join(map(plain, data.labels))}\n\nTrained by Headstart from {start} "
        f"(trained: {cfg.scope}) on {len(data.train)} rows of {named(cfg.data.train)}, seed {cfg.train.seed}. "
        f"{score}\n"
    )
