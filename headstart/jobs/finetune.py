"""The fine-tuning job: labelled rows and a base in, a run directory with a classifier out.

Pretrained, scratch and frozen differ in one line each, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from headstart.bases.features import FrozenFeatures
from headstart.bases.linear_probe import Probe, best_probe, install, probe_poolings, probing_seconds, rows_to_fit
from headstart.bases.lora import add_lora, merge_lora
from headstart.bases.verbalizer import prompted_probe
from headstart.config import FinetuneConfig
from headstart.imported import subclass_at
from headstart.jobs.answers import FinetuneAnswer, FinetuneFacts
from headstart.jobs.cards import classifier_card
from headstart.jobs.continued import continued_notes
from headstart.jobs.contrastive import FittedHead, pair_notes
from headstart.jobs.job import Job, Kept, run_job
from headstart.jobs.opened import Opened, opened
from headstart.jobs.probability_calibration import ProbabilityCalibration
from headstart.jobs.receipt import FinetuneReceipt, Moved, finetune_receipt, moved
from headstart.jobs.resolved import head_spec
from headstart.models.base import freeze
from headstart.models.heads import POOLS, ClassHead, Model, NumberHead, freeze_transform
from headstart.prompts import CALIBRATED_ON
from headstart.runs.checkpoint import Progress
from headstart.runs.model_dir import Saved, write_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import Pool, pools_to_try, usual_pool
from headstart.targets.labels import Labels
from headstart.targets.numbers import Numbers
from headstart.targets.target import Scores, Target, prediction_records
from headstart.tasks.classify import (
    ClassBatch,
    Classify,
    ClassifyText,
    rows_of,
    vectors_of,
)
from headstart.tasks.contrast import Contrast, PairBatches
from headstart.tasks.zero_shot import matching_bias
from headstart.text.batch import Batches
from headstart.text.hygiene import refuse_leaks
from headstart.text.read import text_files
from headstart.text.split import Labelled, LabelledFacts
from headstart.text.tokenizer import Tokenizer

FEW = 10  # times as many rows as labels are drawn: the base reads those that are drawn, not all for all runs


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
    unlabelled: Sequence[str] = ()  # some training and validation texts, those whose labels were not drawn too
    fitted_head: FittedHead | None = None  # of contrastive fine-tuning

    @classmethod
    def files(cls, cfg: FinetuneConfig) -> list[Path]:
        return text_files([path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path])

    @classmethod
    def prepare(cls, cfg: FinetuneConfig, kept: Kept[FinetuneConfig], watch: Watch) -> Self:
        """Rows, tokenizer and a model with the weights of the base, or fresh ones."""
        start = opened(cfg, kept)
        return subclass_at(start.data.target.job, cls).of(start)

    @classmethod
    def of(cls, start: Opened) -> Self:
        """The run of one class, several labels or a number for each text."""
        cfg, whole, data, model, pools = start.cfg, start.whole, start.data, start.model, start.pools
        source, taken, tokenizer = start.source, start.taken, start.tokenizer
        assert isinstance(model.head, ClassHead)
        text, valid, test = (
            ClassifyText(rows, data.target, tokenizer, model.base, cfg.long, cfg.whole_prompt)
            for rows in data.parts().values()
        )
        unlabelled = _sample([e.text for e in [*whole.train, *whole.valid]])
        features = FrozenFeatures(model, tokenizer, cfg, _read_by_base(cfg, whole, data, unlabelled), pools)
        # Fresh weights have nothing to probe, and a head that is trained further needs no other start.
        probes = _probes(cfg, model.head, pools, features, text, valid) if taken and not cfg.head_labels else ()
        pool = best_probe(probes).pool if probes else pools[0]
        if not cfg.prompt:
            model.head.pool = POOLS[pool]
        if probes and cfg.fit_head:
            install(model.head, best_probe(probes))
        freeze(model.base, cfg.scope)
        if cfg.scope == "lora":
            add_lora(model.base, cfg.lora_rank)
        if cfg.scope == "head":
            freeze_transform(model.head)
            for part in (text, valid, test):
                part.features = partial(features, pool)
        batches = text.batches(cfg.train.batch_size, cfg.train.seed)
        classes = data.target.task == "classify"
        score = cfg.score or ("accuracy" if classes else data.target.leading([e.label for e in data.train]))
        cfg, task = cfg.model_copy(update={"pool": pool}), Classify(data.target, score)
        fitted_head = FittedHead(text, valid, pool, cfg.train.device) if cfg.objective == "contrastive" else None
        if fitted_head:
            model.head.requires_grad_(False)  # gradients train the base alone
            task = Contrast(task.target, task.score, fitted_head)
            batches = PairBatches(text, cfg.train.batch_size, cfg.train.seed)
        return cls(
            cfg, data, source, tokenizer, text, valid, test, model, task, batches, probes, unlabelled, fitted_head
        )

    def measured(self) -> Sequence[ClassBatch]:
        return self.valid.measured()

    @cached_property
    def _facts(self) -> LabelledFacts:
        """Counts and hygiene of the rows; a study has looked at them once for all its runs."""
        facts = self.data.facts(self.cfg.check)
        if self.cfg.strict_leakage:
            refuse_leaks(facts["hygiene"])
        return facts

    @cached_property
    def calibration(self) -> ProbabilityCalibration:
        return ProbabilityCalibration(self.cfg.temperature_scaling, len(self.data.valid), self.data.target.task)

    @property
    def truncated(self) -> dict[str, int]:
        return {"train": self.text.cut, "valid": self.valid.cut, "test": self.test.cut}

    def facts(self, before: Mapping[str, Any]) -> FinetuneFacts:
        return {**self._facts, "truncated": self.truncated, "tokenizer_sha256": self.tokenizer.sha256}

    def notes(self) -> Iterator[str]:
        data, facts = self.data, self._facts
        yield from data.notes(facts)
        yield from continued_notes(self.cfg, data)
        if self.cfg.prompt:
            words = ", ".join(f"{label} = {word}" for label, word in self.cfg.label_words.items())
            yield f"Prompt: {self.cfg.prompt!r}; label words: {words}."
        elif (
            self.cfg.fit_head
            and self.source
            and self.cfg.init == "pretrained"
            and not self.probes
            and not self.cfg.head_labels
        ):
            yield "Note: a label has no training rows, so the head starts from random weights, not from a linear probe."
        if len(self.probes) > 1 and self.probes[0].accuracy is not None:
            scores = ", ".join(f"{probe.pool} {probe.accuracy:.3f}" for probe in self.probes)
            yield f"Pooling: {self.cfg.pool} ({data.target.quality} of a linear probe on held-out rows: {scores})."
        cut = ", ".join(f"{n} of {facts['rows'][name]} {name}" for name, n in self.truncated.items() if n)
        if cut:
            yield f"Note: texts longer than the base's context were cut: {cut} rows."
        if self.fitted_head:
            yield from pair_notes(self.cfg, data)
        if self.cfg.temperature_scaling and self.calibration.reason and data.target.task == "classify":
            yield f"Note: probabilities will not be calibrated: {self.calibration.reason}."

    def receipt(self) -> FinetuneReceipt:
        return finetune_receipt(self.cfg, self.model, self.source, self.probes, self.data.labels)

    def finish_training(self) -> None:
        if self.cfg.scope == "lora":
            merge_lora(self.model.base)
        if self.fitted_head:
            self.fitted_head(self.model)
        if self.cfg.prompt and self.cfg.calibrate and not self.data.valid:
            self._calibrate()
        self.calibration.fit(self.model, self.valid, self.cfg.train.device)

    def _calibrate(self) -> None:
        """Shift the biases until the classes have the shares of the labelled rows among all training texts."""
        head, cfg = self.model.head, self.cfg
        assert isinstance(head, ClassHead)
        texts, device = self.unlabelled, cfg.train.device
        with torch.inference_mode():
            if self.text.features is not None:
                vectors = self.text.features(texts).to(device)
            else:
                rows, owner, _ = rows_of(texts, self.tokenizer, self.model.base, cfg.long, cfg.whole_prompt)
                vectors = vectors_of(self.model, rows, owner, len(texts), self.tokenizer.pad, device)
            logits = self.model.eval().head.logits(vectors)
        counts = torch.bincount(torch.from_numpy(self.text.targets), minlength=len(self.data.labels))
        shares = counts / counts.sum()
        with torch.no_grad():
            head.linear.bias.add_(matching_bias(logits, shares.to(logits.device)))

    def receipt_after(self, receipt: Mapping[str, Any]) -> Moved:
        after = moved(self.model, receipt["frozen"])
        return {**after, "final_head_strength": self.fitted_head.strength} if self.fitted_head else after

    def scores(self, run: Run, progress: Progress) -> FinetuneAnswer:
        hygiene, tested = self._facts["hygiene"], bool(self.data.test) and self.cfg.predictions != "none"
        overlap = hygiene["overlapping_rows"]["test"] if hygiene else []
        run.write_json("conformal.json", {"method": "lac", "scores": self.calibration.scores})
        task = self.data.target.task
        found: FinetuneAnswer = {
            "valid": progress.best,
            "test": self._tested(run, overlap) if tested else None,
            "commonest": self.data.majority_scores(),
            "overlapping_test_rows": len(overlap) if hygiene else None,
            "calibration": self.calibration.answer(),
        }
        return found if task == "classify" else {**found, "task": task}

    def _tested(self, run: Run, overlap: Collection[int]) -> Scores:
        """Predict the test rows; scores with and without those that overlap with training rows."""
        target, truth, with_texts = self.decided, self.test.targets, self.cfg.predictions == "texts"
        outputs = self.test.outputs(self.model, self.cfg.train.device)
        self.calibration.measure(outputs, truth)
        run.write_lines("predictions.jsonl", prediction_records(self.data.test, target, outputs, with_texts))
        if self.cfg.predictions == "validation" and self.data.valid:
            held_out = self.valid.outputs(self.model, self.cfg.train.device)
            run.write_lines("valid_predictions.jsonl", prediction_records(self.data.valid, target, held_out, False))
        answers, clean = target.answers(outputs), np.setdiff1d(np.arange(len(truth)), list(overlap))
        rest = target.scores(truth[clean], answers[clean]) if overlap and len(clean) else None
        return {**target.scores(truth, answers), "without_overlap": rest}

    @cached_property
    def decided(self) -> Target:
        """The target with its thresholds, fitted to the validation rows. Asked for after training."""
        if not self.data.valid:
            return self.data.target
        return self.data.target.fitted(self.valid.targets, self.valid.outputs(self.model, self.cfg.train.device))

    def card(self, result: Mapping[str, Any]) -> str:
        return classifier_card(self.cfg, self.data, result)

    def save(self, folder: Path, card: str) -> None:
        pool = self.cfg.pool or usual_pool(self.cfg.model)
        head = head_spec(self.cfg, self.data, pool, self.tokenizer, self.cfg.model)
        if isinstance(self.decided, Labels):
            head = replace(head, thresholds=self.decided.thresholds)
        if isinstance(self.decided, Numbers) and isinstance(self.model.head, NumberHead):
            self.model.head.rescale(self.decided.mean, self.decided.spread)
        head = replace(head, temperature=self.calibration.temperature)
        write_model(folder, Saved(self.model, self.tokenizer, self.cfg.model, head), card)

    @classmethod
    def for_estimate(cls, cfg: FinetuneConfig) -> FinetuneConfig:
        """Features would be written, and a linear probe takes a pass over the rows."""
        pool = cfg.pool or (None if cfg.prompt else "mean")
        return cfg.model_copy(update={"features": None, "fit_head": False, "pool": pool})

    @property
    def prediction_bytes(self) -> int:
        return sum(len(example.text.encode()) + 150 for example in self.data.test)  # 150 beside the text

    def closing_costs(self, evaluation: float) -> dict[str, float]:
        train, valid, labels = len(self.data.train), len(self.data.valid), len(self.data.labels)
        refit = len(self.fitted_head.rows) if self.fitted_head else 0  # read by each evaluation, and in the end
        frozen = self.cfg.scope == "head"  # then all rows are read by now
        reading = 0.0 if frozen else evaluation / max(1, valid + refit)
        taken = self.source is not None and self.cfg.init == "pretrained"
        pools = len(pools_to_try(self.cfg.model)) if taken else 0
        probing = pools * probing_seconds(train, valid, self.cfg.model.width, labels)
        return {
            "reading_seconds": round(reading, 6),  # of one text
            "probing_seconds": round(probing, 3),
            "before_seconds": round(reading * len(rows_to_fit(train)) + probing, 3),
            "closing_seconds": round(reading * (valid + len(self.data.test) + refit), 3),
        }


def _sample(texts: Sequence[str]) -> list[str]:
    """Texts to calibrate on."""
    return [texts[i] for i in rows_to_fit(len(texts), CALIBRATED_ON)]


def _read_by_base(
    cfg: FinetuneConfig, whole: Labelled, data: Labelled, unlabelled: Sequence[str]
) -> list[Sequence[str]]:
    """Groups of texts of which the frozen base makes features: those of other runs too, where they are kept or all are needed."""
    train, valid, test = ([e.text for e in rows] for rows in data.parts().values())
    if not cfg.features and cfg.scope != "head":
        return [[*(train[i] for i in rows_to_fit(len(train))), *valid]]
    every = [e.text for rows in whole.parts().values() for e in rows]
    few = cfg.data.labels and len(every) - len(test) > FEW * cfg.data.labels
    return [test, [*train, *valid], unlabelled] if few else [every]


def _probes(
    cfg: FinetuneConfig,
    head: ClassHead,
    pools: Sequence[Pool],
    features: FrozenFeatures,
    text: ClassifyText,
    valid: ClassifyText,
) -> tuple[Probe, ...]:
    """Linear probes that the head may start from, one for each pooling; of a prompt, the words where the base is tuned."""
    if cfg.prompt:
        fitted = rows_to_fit(len(text.texts))
        classes = set(text.targets[fitted].tolist())
        if not cfg.fit_head or cfg.scope != "head" or len(classes) < max(2, head.linear.out_features):
            return ()
        train = features("last", [text.texts[i] for i in fitted]), text.targets[fitted]
        return (prompted_probe(head, train, (features("last", valid.texts), valid.targets)),)
    if not cfg.fit_head and len(pools) == 1:
        return ()
    return probe_poolings(head, pools, features, (text.texts, text.targets), (valid.texts, valid.targets))
