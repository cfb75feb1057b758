"""The pretraining job: text in, a run directory with a language model out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from headstart.bases.cooccurrence_start import start_from_cooccurrence, starts_from_cooccurrence
from headstart.bases.pretrained import open_base, within
from headstart.config import PretrainConfig
from headstart.jobs.answers import PretrainAnswer, PretrainFacts
from headstart.jobs.cards import language_model_card
from headstart.jobs.curves import reference_losses, training_curve
from headstart.jobs.job import Job, Kept, Sample, run_job
from headstart.models.decode import Sampling
from headstart.models.heads import LanguageHead, Model, VectorHead
from headstart.quantities import counted
from headstart.runs.checkpoint import Progress, load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model, write_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import ModelConfig
from headstart.tasks.distill import Distill, DistillScores, TaughtText, Teacher
from headstart.tasks.language import Language, LanguageText, continuation
from headstart.tasks.metrics import LanguageScores
from headstart.text.batch import Batch, Batches
from headstart.text.read import passed_over_notes, text_files
from headstart.text.split import Corpus, split_corpus
from headstart.text.stretches import characters_of
from headstart.text.token_store import trained_once
from headstart.text.tokenizer import Tokenizer
from headstart.text.word_vectors import known_vectors, vector_files

SAMPLE_TOKENS = 40
FINAL_TOKENS = 50_000  # training tokens of which the final training loss is measured
EVALUATED = 0.01  # validation tokens of an evaluation, as a part of all training tokens
FEWEST_EVALUATED = 20_000  # tokens of the evaluation subset; fewer would be too noisy to compare two models


def pretrain(cfg: PretrainConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a tokenizer and a language model on `cfg.data` into the run directory `out`; its result."""
    return run_job(cfg, out, resume, watch)


@dataclass(frozen=True)
class Pretraining(Job[PretrainConfig]):
    cfg: PretrainConfig
    corpus: Corpus
    tokenizer: Tokenizer
    text: LanguageText
    valid: LanguageText
    model: Model
    task: Language | Distill
    batches: Batches[Batch]
    fresh: tuple[str, ...] = ()  # tensors of the head that the base did not have
    known: int = 0  # tokens that have one of `cfg.vectors`

    @classmethod
    def files(cls, cfg: PretrainConfig) -> list[Path]:
        return [*text_files(cfg.data.paths), *(vector_files(cfg.vectors) if cfg.vectors else [])]

    @classmethod
    def prepare(cls, cfg: PretrainConfig, kept: Kept[PretrainConfig], watch: Watch) -> Self:
        """Text, tokenizer (trained, unless it is kept) and a model with fresh weights, or with those of a base."""
        corpus = split_corpus(cfg.data)
        source = open_base(cfg.base, cfg.allow_pickle) if cfg.base and not kept.cfg else None
        tokenizer = source.tokenizer if source else next(iter((kept.tokenizers or {}).values()), None)
        tokenizer = tokenizer or trained_once(corpus.train, cfg.tokenizer, cfg.train.seed)
        cfg = _resolved(cfg, tokenizer, source, kept.cfg)
        taught = open_base(cfg.teacher, cfg.allow_pickle) if cfg.teacher else None
        teacher = Teacher(taught.model, taught.tokenizer, cfg.train.device) if taught else None
        text, valid = (
            TaughtText(texts, tokenizer, cfg, teacher) if teacher else LanguageText(texts, tokenizer, cfg)
            for texts in (corpus.train, corpus.valid)
        )
        torch.manual_seed(cfg.train.seed)
        model = build_model(cfg.model, HeadSpec("language"))
        if teacher:
            model.head = VectorHead(cfg.model.width, teacher.width)
        model = model.to(cfg.train.device)
        known = known_vectors(cfg.vectors, tokenizer.words()) if cfg.vectors else None
        if starts_from_cooccurrence(cfg, text) and not kept.cfg:
            start_from_cooccurrence(model, text, known)
        if source:
            had = {n: t for n, t in weights(source.model).items() if n not in source.fresh}
            load_weights(model, {**weights(model), **had})
        fresh = source.fresh if source else ()
        task = Distill() if teacher else Language(None)
        many = 0 if known is None else int(known.any(1).sum())
        return cls(cfg, corpus, tokenizer, text, valid, model, task, text.batches(), fresh, many)

    def measured(self) -> Sequence[Batch]:
        return self.valid.measured(self.evaluation_tokens)

    @property
    def evaluation_tokens(self) -> int:
        """Validation tokens that are enough to follow the training and to choose the weights to keep."""
        return max(FEWEST_EVALUATED, int(EVALUATED * self.training_tokens))

    @property
    def training_tokens(self) -> int:
        """Over all steps, if every block and row is full."""
        train = self.cfg.train
        return train.steps * train.batch_size * train.accumulate * self.cfg.model.context

    def facts(self, before: Mapping[str, Any]) -> PretrainFacts:
        parts = {"train": self.text.facts(), "valid": self.valid.facts()}
        sampled = before.get("tokenizer_sample") if self.tokenizer.sampled is None else self.tokenizer.sampled
        facts: PretrainFacts = {
            "unit": self.cfg.data.unit,
            "counted_vectors": starts_from_cooccurrence(self.cfg, self.text),
            "known_tokens": self.known,
            "reading": self.corpus.reading.facts(),
            "rows": {name: facts["rows"] for name, facts in parts.items()},
            "tokens": {name: facts["tokens"] for name, facts in parts.items()},
            "unknown": {name: facts["unknown"] for name, facts in parts.items()},
            "tokenizer_sha256": self.tokenizer.sha256,
            "vocabulary": self.tokenizer.size,
        }
        return facts if sampled is None else {**facts, "tokenizer_sample": sampled}

    def notes(self) -> Iterator[str]:
        cfg, text, vocab = self.cfg, self.text, self.tokenizer.size
        yield from (f"Note: {note}" for note in self.corpus.reading.notes())
        if cfg.tokenizer.vocab > vocab:
            yield f"Note: a vocabulary of {cfg.tokenizer.vocab:,} was asked for; the text supports {vocab:,}."
        if self.tokenizer.sampled is not None:
            total = characters_of(self.corpus.train)
            yield f"The tokenizer was trained on a random sample of {self.tokenizer.sampled:,} of {total:,} characters."
        if cfg.base:
            yield f"Continuing from {cfg.base}, with its objective: {cfg.objective}."
        if starts_from_cooccurrence(cfg, text):
            yield "Token embeddings start from co-occurrence counts (PPMI-SVD)."
        if self.known:
            yield f"{self.known:,} of {vocab:,} tokens have a vector in {cfg.vectors}, for up to half of their embedding."
        if cfg.teacher:
            yield f"Distilling the vectors that {cfg.teacher} gives to parts of the text."
        if self.fresh:
            yield f"Note: {cfg.base} has no language-model head, so it gets a new one."
        yield from passed_over_notes(cfg.data.paths)
        passes = f"about {self.training_tokens / max(1, len(text.rows.ids)):.1f} epochs"
        each = passes if text.packed else counted(cfg.train.steps, "step")
        yield f"{counted(len(text.rows), 'text')}, {len(text.rows.ids):,} tokens, a vocabulary of {vocab:,}; {each}."

    def samples(self) -> list[Sample]:
        """The prompts continued, by a model that can."""
        causal = self.cfg.objective == "causal" and self.cfg.model.causal
        prompts = self.cfg.samples if causal else ()
        how = Sampling(temperature=0.8, top_k=40, seed=self.cfg.train.seed)
        ask = (self.model, self.tokenizer, self.cfg.data.boundaries, SAMPLE_TOKENS, how, self.cfg.train.device)
        return [Sample(prompt, text, text) for prompt in prompts for text in [continuation(prompt, *ask)]]

    def scores(self, run: Run, progress: Progress) -> PretrainAnswer:
        valid = self._validated() if self.held_out else None
        return {
            "train": self.final_training_loss(),
            "curve": list(training_curve(run)),
            "valid": valid,
            "beside": reference_losses(run, self.corpus, valid)
            if valid and self.valid.bytes and not self.cfg.base
            else {},
            "fresh": list(self.fresh),
        }

    def _validated(self) -> LanguageScores | DistillScores:
        """The scores of the kept weights on the whole of the validation text."""
        batches = (batch.to(self.cfg.train.device) for batch in self.valid.measured())
        task = Language(self.valid.bytes) if isinstance(self.task, Language) else self.task
        return task.evaluate(self.model, batches)

    def final_training_loss(self) -> dict[str, float]:
        """Loss on the (beginning of the) training text with dropout off, beside the least that any model could have."""
        batches = (batch.to(self.cfg.train.device) for batch in self.text.measured(FINAL_TOKENS))
        scores: dict[str, float] = {"loss": self.task.evaluate(self.model, batches)["loss"]}
        entropy = self.text.entropy() if len(self.text.rows.ids) <= FINAL_TOKENS else None
        return scores if entropy is None else {**scores, "entropy": entropy}

    def card(self, result: Mapping[str, Any]) -> str:
        return language_model_card(self.cfg, result)

    def save(self, folder: Path, card: str) -> None:
        model = self.model
        if self.cfg.objective == "distill":  # the head for the teacher's vectors has done its work: the base is kept
            model = Model(model.base, LanguageHead(self.cfg.model, model.base.embedding))
        write_model(folder, Saved(model, self.tokenizer, self.cfg.model, HeadSpec("language")), card)

    def closing_costs(self, evaluation: float) -> dict[str, float]:
        valid, train = len(self.valid.rows.ids), len(self.text.rows.ids)
        measured = (valid + min(FINAL_TOKENS, train)) / max(1, min(valid, self.evaluation_tokens))
        return {"closing_seconds": round(measured * evaluation, 3)}


def _resolved(
    cfg: PretrainConfig, tokenizer: Tokenizer, source: Saved | None, kept: PretrainConfig | None
) -> PretrainConfig:
    """`cfg` with what the data and the base decide."""
    shape: ModelConfig = cfg.model.model_copy(update={"vocab": tokenizer.size})
    if kept:
        shape, cfg = kept.model, cfg.model_copy(update={"objective": kept.objective})
    elif source:
        shape = within(source.config, cfg.context)
        cfg = cfg.model_copy(update={"objective": "causal" if shape.causal else "masked"})
    train = cfg.train.scheduled(cfg.train.steps, eval_every=cfg.train.steps // 10)
    return cfg.model_copy(update={"model": shape, "train": train})
