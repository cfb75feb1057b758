"""The fine-tuning job: labelled rows and a base in, a run directory with a classifier out.

Pretrained, scratch and frozen differ in one line each, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import torch

from headstart.bases.features import FrozenFeatures
from headstart.bases.linear_probe import Probe, best_probe, install, probe_poolings, probing_seconds, rows_to_fit
from headstart.bases.lora import add_lora, merge_lora
from headstart.bases.pretrained import open_base, within
from headstart.config import FinetuneConfig, usual_rate
from headstart.errors import ConfigError
from headstart.jobs.answers import FinetuneAnswer, FinetuneFacts, TestScores
from headstart.jobs.cards import classifier_card
from headstart.jobs.job import Job, Kept, run_job
from headstart.jobs.receipt import FinetuneReceipt, Moved, finetune_receipt, moved
from headstart.models.base import freeze
from headstart.models.heads import POOLS, ClassHead, Model
from headstart.runs.checkpoint import Progress, load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model, write_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import PRESETS, ModelConfig, pools_to_try, usual_pool
from headstart.tasks.classify import (
    ClassBatch,
    Classify,
    ClassifyText,
    class_weights,
    most_probable,
    prediction_records,
)
from headstart.tasks.metrics import class_scores
from headstart.text.batch import Batches
from headstart.text.hygiene import refuse_leaks
from headstart.text.read import text_files
from headstart.text.split import Labelled, LabelledFacts, draw, split_labelled
from headstart.text.tokenizer import Tokenizer, tokenizer_for


def finetune(cfg: FinetuneConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a classifier on `cfg.data` into the run directory `out`; its result."""
    return run_job(cfg, out, resume, watch)


@dataclass(frozen=True)
class Finetuning(Job[FinetuneConfig]):
    cfg: FinetuneConfig
    data: Labelled
    source: Saved | None  # the base as it was found; None for a preset, and in a resumed run
    tokenizer: Tokenizer
    text: ClassifyText
    valid: ClassifyText
    test: ClassifyText
    model: Model
    task: Classify
    batches: Batches[ClassBatch]
    probes: tuple[Probe, ...] = ()  # linear probes of the base, its own pooling first; none on fresh weights

    @classmethod
    def files(cls, cfg: FinetuneConfig) -> list[Path]:
        return text_files([path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path])

    @classmethod
    def prepare(cls, cfg: FinetuneConfig, kept: Kept[FinetuneConfig], watch: Watch) -> Self:
        """Rows, tokenizer and a model with the weights of the base, or fresh ones."""
        whole = split_labelled(cfg.data)
        data = draw(whole, cfg.data.labels, cfg.data.draw) if cfg.data.labels else whole
        source = None if kept.cfg or cfg.base in PRESETS else open_base(cfg.base, cfg.allow_pickle)
        shape, tokenizer = _shape_and_tokenizer(cfg, data, source, kept)
        taken = source if cfg.init == "pretrained" else None
        settled = cfg.pool or (kept.cfg.pool if kept.cfg else None)
        pools = (settled,) if settled else pools_to_try(shape) if taken else (usual_pool(shape),)
        cfg = _resolved(cfg, shape, data)
        torch.manual_seed(cfg.train.seed)
        model = build_model(shape, HeadSpec("classify", tuple(data.labels), pools[0], cfg.head_dropout, cfg.long))
        assert isinstance(model.head, ClassHead)
        if taken:
            load_weights(model.base, weights(taken.model.base))
        if cfg.class_weights:
            model.head.weights.copy_(class_weights(data.train, data.labels))
        model.to(cfg.train.device)
        parts = data.parts().values()
        text, valid, test = (ClassifyText(rows, data.labels, tokenizer, model.base, cfg.long) for rows in parts)
        fitted = [text.texts[i] for i in rows_to_fit(len(text.texts))]
        every = [e.text for rows in whole.parts().values() for e in rows]  # of other runs and of the test too
        read = every if cfg.features or cfg.scope == "head" else [*fitted, *valid.texts]
        features = FrozenFeatures(model, tokenizer, cfg, read, pools)
        probes: tuple[Probe, ...] = ()  # fresh weights have nothing to probe
        if taken and (cfg.fit_head or len(pools) > 1):
            rows = (text.texts, text.targets), (valid.texts, valid.targets)
            probes = probe_poolings(model.head, pools, features, *rows)
        pool = best_probe(probes).pool if probes else pools[0]
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
        cfg, task = cfg.model_copy(update={"pool": pool}), Classify(len(data.labels), cfg.score or "accuracy")
        return cls(cfg, data, source, tokenizer, text, valid, test, model, task, batches, probes)

    def measured(self) -> Iterable[ClassBatch]:
        return self.valid.measured()

    @cached_property
    def _facts(self) -> LabelledFacts:
        """Counts and hygiene of the rows; a study has looked at them once for all its runs."""
        facts = self.data.facts(self.cfg.check)
        if self.cfg.strict_leakage:
            refuse_leaks(facts["hygiene"])
        return facts

    @property
    def truncated(self) -> dict[str, int]:
        return {"train": self.text.cut, "valid": self.valid.cut, "test": self.test.cut}

    def facts(self, before: Mapping[str, Any]) -> FinetuneFacts:
        return {**self._facts, "truncated": self.truncated, "tokenizer_sha256": self.tokenizer.sha256}

    def notes(self) -> Iterator[str]:
        data, facts = self.data, self._facts
        yield from data.notes(facts)
        if self.cfg.fit_head and self.source and self.cfg.init == "pretrained" and not self.probes:
            yield "Note: a label has no training rows, so the head starts from random weights, not from a linear probe."
        if len(self.probes) > 1 and self.probes[0].accuracy is not None:
            scores = ", ".join(f"{probe.pool} {probe.accuracy:.3f}" for probe in self.probes)
            yield f"Pooling: {self.cfg.pool} (accuracy of a linear probe on held-out rows: {scores})."
        cut = ", ".join(f"{n} of {facts['rows'][name]} {name}" for name, n in self.truncated.items() if n)
        if cut:
            yield f"Note: texts longer than the base's context were cut: {cut} rows."

    def receipt(self) -> FinetuneReceipt:
        return finetune_receipt(self.cfg, self.model, self.source, self.probes)

    def finish_training(self) -> None:
        if self.cfg.scope == "lora":
            merge_lora(self.model.base)

    def receipt_after(self, receipt: Mapping[str, Any]) -> Moved:
        return moved(self.model, receipt["frozen"])

    def scores(self, run: Run, progress: Progress) -> FinetuneAnswer:
        hygiene, tested = self._facts["hygiene"], bool(self.data.test) and self.cfg.predictions != "none"
        overlap = hygiene["overlapping_rows"]["test"] if hygiene else []
        return {
            "valid": progress.best,
            "test": self._tested(run, overlap) if tested else None,
            "commonest": self.data.majority_scores(),
            "overlapping_test_rows": len(overlap) if hygiene else None,
        }

    def _tested(self, run: Run, overlap: Collection[int]) -> TestScores:
        """Predict the test rows; scores with and without those that overlap with training rows."""
        labels, text = self.data.labels, self.test
        scores = text.probabilities(self.model, self.cfg.train.device)
        predicted = most_probable(scores)
        with_texts = self.cfg.predictions == "texts"
        run.write_lines("predictions.jsonl", prediction_records(self.data.test, labels, scores, with_texts))
        if self.cfg.predictions == "validation" and self.data.valid:
            held_out = self.valid.probabilities(self.model, self.cfg.train.device)
            run.write_lines("valid_predictions.jsonl", prediction_records(self.data.valid, labels, held_out, False))
        clean = sorted(set(range(len(predicted))) - set(overlap))
        targets, guesses = [text.targets[i] for i in clean], [predicted[i] for i in clean]
        rest = class_scores(targets, guesses, len(labels)) if overlap and clean else None
        return {**class_scores(text.targets, predicted, len(labels)), "without_overlap": rest}

    def card(self, result: Mapping[str, Any]) -> str:
        return classifier_card(self.cfg, self.data, result)

    def save(self, folder: Path, card: str) -> None:
        pool = self.cfg.pool or usual_pool(self.cfg.model)
        head = HeadSpec("classify", tuple(self.data.labels), pool, self.cfg.head_dropout, self.cfg.long)
        write_model(folder, Saved(self.model, self.tokenizer, self.cfg.model, head), card)

    @classmethod
    def for_estimate(cls, cfg: FinetuneConfig) -> FinetuneConfig:
        """Features would be written, and a linear probe takes a pass over the rows."""
        return cfg.model_copy(update={"features": None, "fit_head": False, "pool": cfg.pool or "mean"})

    @property
    def prediction_bytes(self) -> int:
        return sum(len(example.text.encode()) + 150 for example in self.data.test)  # 150 beside the text

    def closing_costs(self, evaluation: float) -> dict[str, float]:
        train, valid, labels = len(self.data.train), len(self.data.valid), len(self.data.labels)
        reading = 0.0 if self.cfg.scope == "head" else evaluation / max(1, valid)  # frozen: all rows are read by then
        taken = self.source is not None and self.cfg.init == "pretrained"
        pools = len(pools_to_try(self.cfg.model)) if taken else 0
        probing = pools * probing_seconds(train, valid, self.cfg.model.width, labels)
        return {
            "reading_seconds": round(reading, 6),  # of one text
            "probing_seconds": round(probing, 3),
            "before_seconds": round(reading * len(rows_to_fit(train)) + probing, 3),
            "closing_seconds": round(reading * len(self.data.test), 3),
        }


def _shape_and_tokenizer(
    cfg: FinetuneConfig, data: Labelled, source: Saved | None, kept: Kept[FinetuneConfig]
) -> tuple[ModelConfig, Tokenizer]:
    if kept.cfg and kept.tokenizers:
        return kept.cfg.model, kept.tokenizers["tokenizer.json"]
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
