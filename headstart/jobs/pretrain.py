"""The pretraining job: text in, a run directory with a language model out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.bases.pretrained import open_base, within
from headstart.config import PretrainConfig
from headstart.errors import ModelError
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.models.heads import LanguageHead, Model, VectorHead
from headstart.quantities import counted
from headstart.runs.card import named
from headstart.runs.checkpoint import load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model, write_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.shapes import HuggingFaceConfig, ModelConfig
from headstart.tasks.distill import Distill, DistillScores, TaughtText, Teacher
from headstart.tasks.language import Language, LanguageText
from headstart.tasks.metrics import LanguageScores, compressed
from headstart.text.batch import Batch, Batches
from headstart.text.cooccurrence import token_vectors
from headstart.text.files import file_facts
from headstart.text.read import passed_over, text_files
from headstart.text.split import Corpus, split_corpus
from headstart.text.tokenizer import Tokenizer, tokenizer_for
from headstart.text.word_vectors import known_vectors, vector_files
from headstart.train.loop import prepare_device, train

SAMPLE_TOKENS = 40
COMPRESSED = 8_000_000  # bytes of text that xz is given; more takes minutes
LOOKED_BACK_AT = 50_000  # training tokens whose loss is measured again at the end
GLANCED_AT = 0.01  # validation tokens at each evaluation, as a part of all that is learned from
COUNTED_SIZE = (
    0.1  # of the numbers in a counted token vector; random ones have 0.02, as have the positions added to them
)
COUNTED_FROM = 100_000  # tokens; in less, words of opposite meaning have the same neighbours
LEAST_GLANCED_AT = 20_000  # tokens; fewer would not tell two models apart


@dataclass(frozen=True)
class Pretraining:
    """All that stands before the first update, and nothing of it on disk."""

    cfg: PretrainConfig  # with what the data decides filled in
    corpus: Corpus
    tokenizer: Tokenizer
    text: LanguageText
    valid: LanguageText
    model: Model
    task: Language | Distill
    batches: Batches[Batch]
    fresh: tuple[str, ...] = ()  # tensors of the head that the base did not have
    known: int = 0  # tokens that have one of `cfg.vectors`

    @property
    def measured(self) -> Callable[[], Iterable[Batch]] | None:
        return (lambda: self.valid.measured(self.glance)) if self.corpus.valid else None

    @property
    def prompts(self) -> tuple[str, ...]:
        """The texts to continue after each evaluation, by a model that can."""
        return self.cfg.samples if self.cfg.objective == "causal" and self.cfg.model.causal else ()

    @property
    def glance(self) -> int:
        """The validation tokens that are enough to follow the training and to choose the weights to keep."""
        return max(LEAST_GLANCED_AT, int(GLANCED_AT * self.seen))

    @property
    def seen(self) -> int:
        """The tokens that will be learned from, if every block and row is full."""
        train = self.cfg.train
        return train.steps * train.batch_size * train.accumulate * self.cfg.model.context


def prepare(cfg: PretrainConfig, tokenizer: Tokenizer | None = None, kept: PretrainConfig | None = None) -> Pretraining:
    """Text, tokenizer (trained, unless it is given) and a model with fresh weights, or with those of a base.

    `kept` are the settings of a run that has begun: it goes on, whatever has become of its base since.
    """
    corpus = split_corpus(cfg.data)
    source = open_base(cfg.base, cfg.allow_pickle) if cfg.base and not kept else None
    if source:
        tokenizer = source.tokenizer
    tokenizer = tokenizer or tokenizer_for(corpus.train, cfg.tokenizer)
    cfg = _resolved(cfg, tokenizer, source, kept)
    teacher = _teacher(cfg) if cfg.objective == "distill" else None
    parts = (corpus.train, corpus.valid)
    text, valid = (
        TaughtText(texts, tokenizer, cfg, teacher) if teacher else LanguageText(texts, tokenizer, cfg)
        for texts in parts
    )
    torch.manual_seed(cfg.train.seed)
    model = build_model(cfg.model, HeadSpec("language"))
    if teacher:
        model.head = VectorHead(cfg.model.width, teacher.width)
    model = model.to(cfg.train.device)
    known = known_vectors(cfg.vectors, tokenizer.words()) if cfg.vectors else None
    if begins_counted(cfg, text) and not kept:
        _start_from_counts(model, text, known)
    if source:
        had = {n: t for n, t in weights(source.model).items() if n not in source.fresh}
        load_weights(model, {**weights(model), **had})
    fresh = source.fresh if source else ()
    task = Distill() if teacher else Language(None)
    many = 0 if known is None else int(known.any(1).sum())
    return Pretraining(cfg, corpus, tokenizer, text, valid, model, task, text.batches(), fresh, many)


def _teacher(cfg: PretrainConfig) -> Teacher:
    assert cfg.teacher, "the settings see to it"
    saved = open_base(cfg.teacher, cfg.allow_pickle)
    return Teacher(saved.model, saved.tokenizer, cfg.train.device)


def begins_counted(cfg: PretrainConfig, text: LanguageText) -> bool:
    """Whether the token vectors are counted before the first update."""
    long_enough = len(text.rows.ids) >= COUNTED_FROM
    return not cfg.base and (cfg.counted or (cfg.start == "auto" and long_enough))


def _start_from_counts(model: Model, text: LanguageText, known: NDArray[np.float32] | None) -> None:
    tokens = model.base.get_parameter("tokens.weight")
    vectors = token_vectors(text.rows, tokens.shape[0], tokens.shape[1], known)
    seen = torch.from_numpy(vectors.any(1))
    with torch.no_grad():
        tokens[seen] = COUNTED_SIZE * torch.from_numpy(vectors)[seen].to(tokens)


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


def pretrain(cfg: PretrainConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a tokenizer and a language model on `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    with Run.start(out, resume, cfg, prepare_device(cfg.train)) as run:
        if run.finished:
            return run.finish_again(watch)
        vectors = vector_files(cfg.vectors) if cfg.vectors else []
        run.check_files(file_facts([*text_files(cfg.data.paths), *vectors]))
        began = time.perf_counter()
        job = prepare(cfg, _kept_tokenizer(run), _kept_settings(run))
        preparing = time.perf_counter() - began
        cfg, model = job.cfg, job.model
        run.write_text("model/tokenizer.json", job.tokenizer.to_json())
        run.write_config(cfg)
        run.add_data_facts(_facts(job))
        _tell(watch, job)

        def show_samples(step: int) -> None:
            for prompt in job.prompts:
                sampled = sample(model, job.tokenizer, prompt, cfg)
                run.log({"step": step, "split": "sample", "prompt": prompt, "text": sampled})
                watch.note(f"step {step}: {sampled}")

        progress = train(model, job.task, job.batches, job.measured, cfg.train, run, watch, show_samples)
        valid = _measure_all(job) if job.corpus.valid else None
        result = {
            "run": str(run.path),
            "steps": progress.step,
            "best_step": progress.best_step,
            "train": look_back(job),
            "curve": list(_curve(run)),
            "valid": valid,
            "beside": _beside(run, job.corpus, valid) if valid and job.valid.bytes and not cfg.base else {},
            "fresh": list(job.fresh),
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": progress.tokens,
            "preparing_seconds": round(preparing, 3),  # reading, cutting into tokens, counting
            "seconds": round(progress.seconds, 3),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        }
        if cfg.objective == "distill":  # the way to the teacher's vectors has done its work: what is kept is the base
            model = Model(model.base, LanguageHead(cfg.model, model.base.embedding))
        saved = Saved(model, job.tokenizer, cfg.model, HeadSpec("language"))
        write_model(run.path / "model", saved, _card(cfg, result))
        return run.finish(result, cfg.train.keep_checkpoints)


def sample(model: Model, tokenizer: Tokenizer, prompt: str, cfg: PretrainConfig) -> str:
    """A continuation of `prompt` at temperature 0.8."""
    ids = tokenizer.encode([prompt], cfg.data.boundaries, end=False)[0].tolist() or [tokenizer.start]
    start = torch.tensor([ids], device=cfg.train.device)
    how = Sampling(temperature=0.8, top_k=40, seed=cfg.train.seed)
    chosen = generate(LanguageStep(model), start, SAMPLE_TOKENS, tokenizer.end, how, never=tokenizer.suppressed)
    return tokenizer.decode([*ids, *(choice.id for choice in chosen)])


def _measure_all(job: Pretraining) -> LanguageScores | DistillScores:
    """The scores of the kept weights on the whole of the validation text."""
    batches = (batch.to(job.cfg.train.device) for batch in job.valid.measured())
    task = Language(job.valid.bytes) if isinstance(job.task, Language) else job.task
    return task.evaluate(job.model, batches)


def look_back(job: Pretraining) -> dict[str, float]:
    """Loss on the (beginning of the) training text with dropout off, beside the least that any model could have."""
    batches = (batch.to(job.cfg.train.device) for batch in job.text.measured(LOOKED_BACK_AT))
    scores: dict[str, float] = {"loss": job.task.evaluate(job.model, batches)["loss"]}
    entropy = job.text.entropy() if len(job.text.rows.ids) <= LOOKED_BACK_AT else None
    return scores if entropy is None else {**scores, "entropy": entropy}


def _curve(run: Run) -> Iterator[dict[str, float]]:
    """What the updates that were logged came to: the loss of each batch, and the seconds until then."""
    for record in run.read_lines("log.jsonl") if run.log_length() else ():
        if record.get("split") == "train":
            yield {"step": record["step"], "loss": record["loss"], "seconds": record["wall"]["seconds"]}


def _beside(run: Run, corpus: Corpus, valid: Mapping[str, Any]) -> dict[str, float]:
    """Bits a byte of the validation text for the same model before its first update, and for xz after the same training text."""
    first = next((r for r in run.read_lines("log.jsonl") if r.get("split") == "valid"), None)
    if first is None:
        raise ModelError(f"{run.path / 'log.jsonl'} is damaged (no evaluation stands in it).", "RUN_DAMAGED")
    untrained = first["loss"] * valid["bits_per_byte"] / valid["loss"]
    seen, text = ("\n".join(part).encode()[-COMPRESSED:] for part in (corpus.train, corpus.valid))
    return {"untrained": untrained, "xz": compressed(seen, text)}


def _kept_tokenizer(run: Run) -> Tokenizer | None:
    """The tokenizer is made once: a resumed run must not depend on how ties are broken."""
    path = run.path / "model" / "tokenizer.json"
    return Tokenizer.load(path) if path.exists() else None


def _kept_settings(run: Run) -> PretrainConfig | None:
    config = run.config if run.begun else None
    return config if isinstance(config, PretrainConfig) else None


def _facts(job: Pretraining) -> dict[str, Any]:
    parts = {"train": job.text.facts(), "valid": job.valid.facts()}
    return {
        "unit": job.cfg.data.unit,
        "counted_vectors": begins_counted(job.cfg, job.text),
        "known_tokens": job.known,
        "reading": job.corpus.reading.facts(),
        **{key: {name: facts[key] for name, facts in parts.items()} for key in ("rows", "tokens", "unknown")},
        "tokenizer_sha256": job.tokenizer.sha256,
        "vocabulary": job.tokenizer.size,
    }


def _tell(watch: Watch, job: Pretraining) -> None:
    cfg, text, vocab = job.cfg, job.text, job.tokenizer.size
    for told in job.corpus.reading.notes():
        watch.note(f"Note: {told}")
    if cfg.tokenizer.vocab > vocab:
        watch.note(f"Note: a vocabulary of {cfg.tokenizer.vocab:,} was asked for; the text feeds {vocab:,}.")
    if cfg.base:
        watch.note(f"Going on from {cfg.base}, {cfg.objective} as it allows.")
    if begins_counted(cfg, text):
        watch.note("Token vectors begin as counted, from which tokens stand together.")
    if job.known:
        watch.note(f"{job.known:,} of {vocab:,} tokens have a vector in {cfg.vectors}, for up to half of theirs.")
    if cfg.teacher:
        watch.note(f"Learning from what {cfg.teacher} says of pieces of the text.")
    if job.fresh:
        watch.note(f"Note: {cfg.base} has no language-model head, so it gets a new one.")
    skipped = passed_over(cfg.data.paths)
    if skipped:
        watch.note(
            f"Note: {counted(len(skipped), 'file', 'was', 'were')} not read: {', '.join(p.name for p in skipped[:5])}."
        )
    each = (
        f"about {job.seen / max(1, len(text.rows.ids)):.1f} times each"
        if text.packed
        else counted(cfg.train.steps, "step")
    )
    watch.note(f"{counted(len(text.rows), 'text')}, {len(text.rows.ids):,} tokens, a vocabulary of {vocab:,}; {each}.")


def _card(cfg: PretrainConfig, result: dict[str, Any]) -> str:
    valid = result["valid"]
    if valid and cfg.teacher:
        score = f"its vectors of validation text and the teacher's have a cosine of {valid['similarity']:.3f}"
    else:
        score = f"validation loss {valid['loss']:.4f} nats a token" if valid else "no validation text was held out"
    model = cfg.model
    kind = f"A {model.model_type} model" if isinstance(model, HuggingFaceConfig) else f"Preset {model.preset}"
    return (
        f"# A {f'base distilled from {named(cfg.teacher)}' if cfg.teacher else f'{cfg.objective} language model'}\n\n{kind}, {cfg.model.layers} layers, width "
        f"{cfg.model.width}, {result['parameters']:,} parameters; trained by Headstart {f'from {named(cfg.base)} ' if cfg.base else ''}for {counted(result['steps'], 'step')} "
        f"({result['tokens']:,} tokens), seed {cfg.train.seed}: {score}.\n\n"
        f"Text: {named(*cfg.data.paths)}. "
        f"{f'Word vectors: {named(cfg.vectors)}. ' if cfg.vectors else ''}Its settings are in config.toml of the run.\n"
    )
