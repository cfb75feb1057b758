"""The translation job: pairs of texts in, a run directory with an encoder and a decoder out.

model/
  config.json             the shape, under the key `headstart`
  model.safetensors
  tokenizer.json          of the source
  target_tokenizer.json   of the target: two vocabularies, because letters and phonemes, or English and French, share little
  README.md               the model card
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headstart.config import TranslateConfig
from headstart.errors import DataError, ModelError
from headstart.models.recurrent import Recurrent
from headstart.models.seq2seq import Seq2Seq, TransformerSeq2Seq
from headstart.quantities import counted
from headstart.runs.card import named
from headstart.runs.checkpoint import load_weights, must_fit, weights
from headstart.runs.model_dir import complaints, must_hold, read_description, read_tensors, write_parts
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.shapes import Seq2SeqConfig
from headstart.tasks.translate import PairBatch, Translate, TranslateText, source_rows, translations
from headstart.tasks.translation_scores import PairScores, Scored, translation_scores, where_it_fails
from headstart.text.batch import Batches
from headstart.text.files import file_facts
from headstart.text.pairs import Pair, Pairs, references, split_pairs
from headstart.text.read import text_files
from headstart.text.tokenizer import Tokenizer, TokenRows, tokenizer_for
from headstart.train.loop import prepare_device, train

PARTS = {"train": "training", "valid": "validation", "test": "test"}  # as they are called in sentences and tables
SHOWN = 3  # validation rows translated after each evaluation, where no sample is given
FILES = ("tokenizer.json", "target_tokenizer.json")


@dataclass(frozen=True)
class Said:
    """One translation of a text."""

    text: str
    score: float  # log probability a token
    finished: bool  # False: cut off at the longest that the model writes


@dataclass(frozen=True)
class Translator:
    """A model with everything that its use needs."""

    model: Seq2Seq
    source: Tokenizer
    target: Tokenizer
    config: Seq2SeqConfig
    device: str = "cpu"

    def rows(self, texts: Sequence[str]) -> TokenRows:
        """Texts as the model reads them; a DataError or ModelError for one that it cannot."""
        if any(not text.strip() for text in texts):
            raise DataError("A text to translate is blank.", "DATA_BLANK")
        rows = source_rows(texts, self.source)
        for text, length in zip(texts, rows.lengths.tolist(), strict=True):
            if length > self.config.context:
                raise ModelError(
                    f"A text of {length} tokens ('{text[:40]}...') is longer than the {self.config.context} that this "
                    "model can read.",
                    "TEXT_LONG",
                )
        return rows

    def translate(self, texts: Sequence[str], beams: int = 1, length_penalty: float = 1.0) -> list[list[Said]]:
        """The best `beams` translations of each text, best first."""
        each = list(dict.fromkeys(texts))  # words come again
        found = translations(
            self.model, self.rows(each), self.source.pad, self.target, self.config.longest, beams, length_penalty,
            self.device,
        )  # fmt: skip
        said = {
            text: [Said(self.target.decode(h.ids), h.score, h.finished) for h in best]
            for text, best in zip(each, found, strict=True)
        }
        return [said[text] for text in texts]


@dataclass(frozen=True)
class Translating:
    """All that stands before the first update, and nothing of it on disk."""

    cfg: TranslateConfig  # with what the data decides filled in
    data: Pairs
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    text: TranslateText
    valid: TranslateText
    test: TranslateText
    model: Seq2Seq
    task: Translate
    batches: Batches[PairBatch]

    @property
    def measured(self) -> Callable[[], Iterable[PairBatch]]:
        return self.valid.measured

    @property
    def translator(self) -> Translator:
        return Translator(self.model, self.tokenizer, self.target_tokenizer, self.cfg.model, self.cfg.train.device)


def build_seq2seq(cfg: Seq2SeqConfig) -> Seq2Seq:
    """A model with fresh weights."""
    return Recurrent(cfg) if cfg.recurrent else TransformerSeq2Seq(cfg)


def prepare(cfg: TranslateConfig, kept: tuple[Tokenizer, Tokenizer] | None = None) -> Translating:
    """Pairs, tokenizers (trained, unless they are kept from before) and a model with fresh weights."""
    data = split_pairs(cfg.data)
    source, target = kept or (
        tokenizer_for([p.source for p in data.train], cfg.source),
        tokenizer_for([p.target for p in data.train], cfg.target),
    )
    text, valid, test = (TranslateText(rows, source, target, cfg.model.context) for rows in data.parts().values())
    for name, part in zip(data.parts(), (text, valid, test), strict=True):
        if part.left_out and not part.pairs:
            raise DataError(
                f"No {PARTS[name]} pair fits into the {cfg.model.context} tokens of the model. Raise them with --context.",
                "DATA_SMALL",
            )
    longest = min(text.longest, cfg.model.context)
    sizes = {"vocab": source.size, "target_vocab": target.size, "longest": longest}
    shape = cfg.model.model_copy(update=sizes)
    batches = text.batches(cfg.train.batch_size, cfg.train.seed)
    per_epoch = -(-batches.per_epoch // cfg.train.accumulate)
    schedule = cfg.train.scheduled(cfg.epochs * per_epoch, eval_every=per_epoch)
    cfg = cfg.model_copy(update={"model": shape, "train": schedule})
    torch.manual_seed(cfg.train.seed)
    model = build_seq2seq(shape).to(cfg.train.device)
    job = Translating(cfg, data, source, target, text, valid, test, model, Translate(), batches)
    job.translator.rows([piece for sample in cfg.samples for piece in pieces_of(sample, cfg.split)])
    return job


def translate(
    cfg: TranslateConfig, out: str | Path, resume: bool = False, watch: Watch | None = None
) -> dict[str, Any]:
    """Train an encoder and a decoder on the pairs of `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    with Run.start(out, resume, cfg, prepare_device(cfg.train)) as run:
        if run.finished:
            return run.finish_again(watch)
        run.check_files(file_facts(text_files([*cfg.data.pairs, *cfg.data.valid, *cfg.data.test])))
        job = prepare(cfg, _kept(run) if run.begun else None)
        cfg, model = job.cfg, job.model
        for name, tokenizer in zip(FILES, (job.tokenizer, job.target_tokenizer), strict=True):
            run.write_text(f"model/{name}", tokenizer.to_json())
        run.write_config(cfg)
        _tell_facts(run, job, watch)
        shown = cfg.samples or tuple(list(references(job.valid.pairs))[:SHOWN])

        def show_samples(step: int) -> None:
            said = translate_texts(job.translator, shown, cfg.split)
            for source, text in zip(shown, said, strict=True):
                run.log({"step": step, "split": "sample", "prompt": source, "text": text})
            told = "; ".join(f"{source} -> {text}" for source, text in zip(shown, said, strict=True))
            watch.note(f"step {step}: {told}")

        progress = train(model, job.task, job.batches, job.measured, cfg.train, run, watch, show_samples)
        result = {
            "run": str(run.path),
            "kind": cfg.model.kind,
            "hidden": cfg.model.hidden,
            "steps": progress.step,
            "best_step": progress.best_step,
            "overlapping": job.data.overlapping,
            "valid": {**(progress.best or {}), **scored(job, job.valid)},
            "test": _open_test_pairs(run, job) if job.test.pairs else None,
            "samples": dict(zip(shown, translate_texts(job.translator, shown, cfg.split), strict=True)),
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        write_translator(run.path / "model", job.translator, _card(cfg, result))
        return run.finish(result, cfg.train.keep_checkpoints)


def scored(job: Translating, text: TranslateText) -> PairScores:
    """The loss of the pairs, and the scores of a translation of each source."""
    return scores_of(job.translator, text, rows_scored(job.translator, text.pairs, job.cfg.split, job.cfg.beam))


def _open_test_pairs(run: Run, job: Translating) -> dict[str, Any]:
    """Translate the sources of the test pairs, once, with the kept weights."""
    rows = rows_scored(job.translator, job.test.pairs, job.cfg.split, job.cfg.beam)
    run.write_lines("predictions.jsonl", [asdict(row) for row in rows])
    return {**scores_of(job.translator, job.test, rows), "fails": where_it_fails(rows)}


def scores_of(translator: Translator, text: TranslateText, rows: Sequence[Scored]) -> PairScores:
    loss = text.loss(translator.model, translator.device)
    return {
        "loss": loss["value"],
        "loss_interval": loss["interval"],
        "target_tokens": loss["tokens"],
        **translation_scores(rows, tokens_of(translator.target), translator.target.by_character),
    }


def rows_scored(
    translator: Translator, pairs: Sequence[Pair], split: str, beams: int = 1, length_penalty: float = 1.0
) -> list[Scored]:
    """Every source once, translated whole or word by word, beside its references."""
    known = references(pairs)
    said = translate_texts(translator, list(known), split, beams, length_penalty)
    return [Scored(source, text, tuple(known[source])) for source, text in zip(known, said, strict=True)]


def tokens_of(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    """What cuts a translation into the tokens of its own vocabulary."""
    return lambda text: [tokenizer.piece(int(i)) for i in tokenizer.encode([text], boundaries=False)[0]]


def pieces_of(text: str, split: str) -> list[str]:
    """What is translated on its own: the text, or each of its words; a blank text has none, and stays whole."""
    return (text.split() if split == "words" else []) or [text]


def translate_texts(
    translator: Translator, texts: Sequence[str], split: str, beams: int = 1, length_penalty: float = 1.0
) -> list[str]:
    """The best translation of each text, whole or word by word."""
    pieces = [pieces_of(text, split) for text in texts]
    said = iter(translator.translate([piece for cut in pieces for piece in cut], beams, length_penalty))
    return [" ".join(next(said)[0].text for _ in cut) for cut in pieces]


def write_translator(folder: Path, translator: Translator, card: str) -> None:
    """Everything but the tokenizers, which a run writes when it begins; the weights last."""
    described = {
        "model_type": "headstart_seq2seq",
        "headstart": {"model": translator.config.model_dump(), "head": "translate"},
    }
    write_parts(folder, described, card, weights(translator.model))


def read_translator(folder: Path) -> Translator:
    """The model of a translation run's model/ folder."""
    with complaints(folder):
        described, tensors = read_description(folder), read_tensors(folder)
        cfg = parse(Seq2SeqConfig, described["model"], str(folder / "config.json"))
        must_hold(tensors, cfg.layers, folder)
        with torch.device("meta"):  # shapes without memory
            must_fit(build_seq2seq(cfg), tensors)
    source, target = (Tokenizer.load(folder / name) for name in FILES)
    for name, own, vocab in zip(FILES, (source, target), (cfg.vocab, cfg.target_vocab), strict=True):
        if own.size != vocab or own.largest >= vocab:
            raise ModelError(f"{folder}: {name} has {own.size} entries and ids up to {own.largest}, the model {vocab}.")
    model = build_seq2seq(cfg)
    load_weights(model, tensors)
    return Translator(model.eval(), source, target, cfg)


def _kept(run: Run) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers are made once: a resumed run must not depend on how ties are broken."""
    source, target = (Tokenizer.load(run.path / "model" / name) for name in FILES)
    return source, target


def _tell_facts(run: Run, job: Translating, watch: Watch) -> None:
    parts = {"train": job.text, "valid": job.valid, "test": job.test}
    facts = job.data.facts()
    both = hashlib.sha256(f"{job.tokenizer.sha256}{job.target_tokenizer.sha256}".encode()).hexdigest()
    run.add_data_facts(
        {
            **facts,
            "left_out": {name: text.left_out for name, text in parts.items()},
            "unknown": {name: text.unknown for name, text in parts.items()},
            "tokens": {name: len(text.sources.ids) + len(text.rows.ids) for name, text in parts.items()},
            "vocabulary": {"source": job.tokenizer.size, "target": job.target_tokenizer.size},
            "tokenizer_sha256": both,
        }
    )
    rows = facts["rows"]
    watch.note(
        f"{rows['train']:,} training, {rows['valid']:,} validation, {rows['test']:,} test pairs; vocabularies of "
        f"{job.tokenizer.size:,} and {job.target_tokenizer.size:,}."
    )
    for note in job.data.reading.notes():
        watch.note(f"Note: {note}")
    if job.data.blank:
        watch.note(f"Note: left out {counted(job.data.blank, 'pair')} with an empty side.")
    for text in job.data.not_there:
        watch.note(f"Note: no pair has the source '{text}', which was to be held out.")
    if any(text.left_out for text in parts.values()):
        told = ", ".join(f"{text.left_out} of {rows[name]} {name}" for name, text in parts.items() if text.left_out)
        watch.note(f"Note: pairs longer than the context ({job.cfg.model.context}) were left out: {told}.")


def _card(cfg: TranslateConfig, result: dict[str, Any]) -> str:
    part = "test" if result["test"] else "validation"
    scores = result["test"] or result["valid"]
    return (
        f"# A translator ({cfg.model.kind}, hidden size {cfg.model.hidden})\n\n{result['parameters']:,} parameters, "
        f"trained by Headstart for {counted(result['steps'], 'step')} on {named(*cfg.data.pairs)}, seed "
        f"{cfg.train.seed}. On {scores['rows']} {part} sources: loss {scores['loss']:.4f} nats a target token, exact "
        f"match {scores['exact_match']['value']:.4f}.\n"
    )
