"""The translation job: pairs of texts in, a run directory with an encoder and a decoder out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from headstart.bases.translator import FILES, Translator, build_seq2seq, rows_scored, scores_of, translate_texts
from headstart.config import TranslateConfig
from headstart.jobs.answers import TestPairScores, TranslateAnswer, TranslateFacts
from headstart.jobs.cards import translator_card
from headstart.jobs.job import Job, Kept, Sample, run_job
from headstart.models.seq2seq import Seq2Seq
from headstart.runs.checkpoint import Progress
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.tasks.translate import PairBatch, Translate, TranslateText
from headstart.tasks.translation_scores import where_it_fails
from headstart.text.batch import Batches
from headstart.text.pairs import Pairs, references, split_pairs
from headstart.text.read import text_files
from headstart.text.tokenizer import Tokenizer, tokenizer_for

PARTS = {"train": "training", "valid": "validation", "test": "test"}  # as they are called in sentences and tables
SHOWN = 3  # validation rows translated after each evaluation, where no sample is given


def translate(
    cfg: TranslateConfig, out: str | Path, resume: bool = False, watch: Watch | None = None
) -> dict[str, Any]:
    """Train an encoder and a decoder on the pairs of `cfg.data` into the run directory `out`; its result."""
    return run_job(cfg, out, resume, watch)


@dataclass(frozen=True)
class Translating(Job[TranslateConfig]):
    tokenizer_files: ClassVar = FILES
    cfg: TranslateConfig
    data: Pairs
    tokenizer: Tokenizer  # of the source
    target: Tokenizer
    text: TranslateText
    valid: TranslateText
    test: TranslateText
    model: Seq2Seq
    task: Translate
    batches: Batches[PairBatch]

    @classmethod
    def files(cls, cfg: TranslateConfig) -> list[Path]:
        return text_files([*cfg.data.pairs, *cfg.data.valid, *cfg.data.test])

    @classmethod
    def prepare(cls, cfg: TranslateConfig, kept: Kept[TranslateConfig], watch: Watch) -> Self:
        """Pairs, tokenizers (trained, unless they are kept from before) and a model with fresh weights."""
        data = split_pairs(cfg.data)
        if kept.cfg and kept.tokenizers:
            source, target = (kept.tokenizers[name] for name in FILES)
        else:
            source = tokenizer_for([p.source for p in data.train], cfg.source)
            target = tokenizer_for([p.target for p in data.train], cfg.target)
        text, valid, test = (TranslateText(rows, source, target, cfg.model.context) for rows in data.parts().values())
        for name, part in zip(PARTS, (text, valid, test), strict=True):
            part.must_fit(f"No {PARTS[name]} pair", cfg.model.context)
        longest = min(text.longest, cfg.model.context)
        shape = cfg.model.model_copy(update={"vocab": source.size, "target_vocab": target.size, "longest": longest})
        batches = text.batches(cfg.train.batch_size, cfg.train.seed)
        per_epoch = -(-batches.per_epoch // cfg.train.accumulate)
        schedule = cfg.train.scheduled(cfg.epochs * per_epoch, eval_every=per_epoch)
        cfg = cfg.model_copy(update={"model": shape, "train": schedule})
        torch.manual_seed(cfg.train.seed)
        model = build_seq2seq(shape).to(cfg.train.device)
        job = cls(cfg, data, source, target, text, valid, test, model, Translate(), batches)
        job.translator.must_read(cfg.samples, cfg.split)
        return job

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return self.tokenizer, self.target

    def measured(self) -> Sequence[PairBatch]:
        return self.valid.measured()

    @property
    def parts(self) -> dict[str, TranslateText]:
        return {"train": self.text, "valid": self.valid, "test": self.test}

    @property
    def translator(self) -> Translator:
        return Translator(self.model, self.tokenizer, self.target, self.cfg.model, self.cfg.train.device)

    def facts(self, before: Mapping[str, Any]) -> TranslateFacts:
        both = f"{self.tokenizer.sha256}{self.target.sha256}"
        return {
            **self.data.facts(),
            "left_out": {name: text.left_out for name, text in self.parts.items()},
            "unknown": {name: text.unknown for name, text in self.parts.items()},
            "tokens": {name: len(text.sources.ids) + len(text.rows.ids) for name, text in self.parts.items()},
            "vocabulary": {"source": self.tokenizer.size, "target": self.target.size},
            "tokenizer_sha256": hashlib.sha256(both.encode()).hexdigest(),
        }

    def notes(self) -> Iterator[str]:
        rows = self.data.facts()["rows"]
        yield (
            f"{rows['train']:,} training, {rows['valid']:,} validation, {rows['test']:,} test pairs; vocabularies of "
            f"{self.tokenizer.size:,} and {self.target.size:,}."
        )
        yield from self.data.notes()
        long = ", ".join(
            f"{text.left_out} of {rows[name]} {name}" for name, text in self.parts.items() if text.left_out
        )
        if long:
            yield f"Note: pairs longer than the context ({self.cfg.model.context}) were left out: {long}."

    @property
    def shown(self) -> tuple[str, ...]:
        return self.cfg.samples or tuple(list(references(self.valid.pairs))[:SHOWN])

    def samples(self) -> list[Sample]:
        made = translate_texts(self.translator, self.shown, self.cfg.split)
        return [Sample(source, text, f"{source} -> {text}") for source, text in zip(self.shown, made, strict=True)]

    def scores(self, run: Run, progress: Progress) -> TranslateAnswer:
        rows = rows_scored(self.translator, self.valid.pairs, self.cfg.split, self.cfg.beam)
        return {
            "kind": self.cfg.model.kind,
            "hidden": self.cfg.model.hidden,
            "overlapping": self.data.overlapping,
            "valid": {**(progress.best or {}), **scores_of(self.translator, self.valid, rows)},
            "test": self._tested(run) if self.test.pairs else None,
            "samples": {sample.prompt: sample.text for sample in self.samples()},
        }

    def _tested(self, run: Run) -> TestPairScores:
        rows = rows_scored(self.translator, self.test.pairs, self.cfg.split, self.cfg.beam)
        run.write_lines("predictions.jsonl", [asdict(row) for row in rows])
        return {**scores_of(self.translator, self.test, rows), "fails": where_it_fails(rows)}

    def card(self, result: Mapping[str, Any]) -> str:
        return translator_card(self.cfg, result)

    def save(self, folder: Path, card: str) -> None:
        self.translator.write(folder, card)
