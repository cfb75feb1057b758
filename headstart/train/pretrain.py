"""The pretraining job: text in, a run directory with a language model out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from headstart.config import PretrainConfig
from headstart.errors import ConfigError, DataError
from headstart.models.decode import LanguageStep, Sampling, generate
from headstart.models.heads import Model
from headstart.tasks.language import Language
from headstart.tasks.metrics import prefix_entropy
from headstart.text.batch import (
    Batch,
    Batches,
    Collate,
    Ids,
    PackedBatches,
    Rng,
    RowBatches,
    blocks,
    hidden_tokens,
    in_order,
    next_token,
    windows,
)
from headstart.text.files import file_facts
from headstart.text.read import text_files
from headstart.text.split import Corpus, split_corpus
from headstart.text.tokenizer import Tokenizer, TokenRows, tokenizer_for
from headstart.train.checkpoint import remove_checkpoints
from headstart.train.loop import prepare_device, train
from headstart.train.model_dir import HeadSpec, Saved, build_model, write_model
from headstart.train.run import Run
from headstart.train.watch import Watch

SAMPLE_TOKENS = 40
LOOKED_BACK_AT = 200_000  # training tokens whose loss is measured again at the end
COUNTED_ROWS = 100_000  # up to this many rows the entropy of the corpus itself is counted


def pretrain(cfg: PretrainConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a tokenizer and a language model on `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    prepare_device(cfg.train)
    with Run.start(out, resume) as run:
        if run.finished:
            watch.note("This run is finished already.")
            return run.read_json("result.json")
        run.write_env(cfg.train)
        files = file_facts(text_files(cfg.data.paths))
        corpus = split_corpus(cfg.data)
        tokenizer = _tokenizer(run, corpus, cfg)
        text = LanguageText(corpus, tokenizer, cfg)
        run.keep_data_facts({"files": files, **text.facts()})
        model_cfg = cfg.model.model_copy(update={"vocab": tokenizer.size})
        train_cfg = cfg.train.scheduled(2000, eval_every=cfg.train.steps // 10)
        cfg = cfg.model_copy(update={"model": model_cfg, "train": train_cfg})
        run.write_config(cfg)
        torch.manual_seed(cfg.train.seed)
        spec = HeadSpec("language")
        model = build_model(cfg.model, spec).to(cfg.train.device)

        def show_sample(step: int) -> None:
            for prompt in cfg.samples if cfg.objective == "causal" else ():
                text = sample(model, tokenizer, prompt, cfg)
                run.log({"step": step, "split": "sample", "prompt": prompt, "text": text})
                watch.note(f"step {step}: {text}")

        task = Language(text.valid_bytes)
        valid = text.valid_batches if corpus.valid else None
        progress = train(model, task, text.batches(), valid, cfg.train, run, watch, show_sample)
        result = {
            "run": str(run.path),
            "steps": progress.step,
            "best_step": progress.best_step,
            "train": _look_back(model, text, cfg),
            "valid": progress.best,
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        }
        write_model(run.path / "model", Saved(model, tokenizer, cfg.model, spec), _card(cfg, result))
        run.finish(result)
        if not cfg.train.keep_checkpoints:
            remove_checkpoints(run)
        return result


class LanguageText:
    """A split corpus as rows of tokens, and the batches that the objective makes of them."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, cfg: PretrainConfig) -> None:
        self.cfg, self.tokenizer = cfg, tokenizer
        self.causal = cfg.objective == "causal"
        self.packed = cfg.data.unit == "document"
        # A causal block has one token more than the model reads: the last is only predicted.
        self.size = cfg.model.context + self.causal
        self.train = tokenizer.encode(corpus.train, cfg.data.boundaries)
        self.valid = tokenizer.encode(corpus.valid, cfg.data.boundaries)
        self.train_bytes = self._bytes_predicted(self.train, corpus.train)
        self.valid_bytes = self._bytes_predicted(self.valid, corpus.valid)
        if not self.causal and tokenizer.mask is None:
            raise ConfigError("This tokenizer has no mask token, so the objective 'masked' cannot use it.")

    def batches(self) -> Batches:
        cfg, have, need = self.cfg.train, len(self.train.ids), self.size
        if self.packed and have < need:
            raise DataError(
                f"The training text has {have} tokens; the context is {self.cfg.model.context}, so {need} are "
                f"needed. Use --context {max(2, have // 2)}, or more text.",
                "DATA_SMALL",
            )
        if self.packed:
            size, overlap = self.size, int(self.causal)
            return PackedBatches(self.train.ids, size, overlap, cfg.batch_size, self.collate, cfg.seed)
        rows = self._teachable(windows(self.train, self.size, int(self.causal)))
        return RowBatches(rows.lengths, cfg.batch_size, self._picker(rows), cfg.seed)

    def valid_batches(self) -> Iterable[Batch]:
        return self.measured(self.valid)

    def measured(self, rows: TokenRows) -> Iterable[Batch]:
        """Batches in which every token of `rows` is predicted once, in the same way at every call."""
        overlap = int(self.causal)
        rows = TokenRows.of(blocks(rows.ids, self.size, overlap)) if self.packed else windows(rows, self.size, overlap)
        rows = self._teachable(rows)
        return in_order(rows.lengths, self.cfg.train.batch_size, self._picker(rows))

    def collate(self, rows: Sequence[Ids], rng: Rng) -> Batch:
        if self.causal:
            return next_token(rows, self.tokenizer.pad)
        return hidden_tokens(rows, self.tokenizer, self.cfg.mask_rate, rng)

    def facts(self) -> dict[str, Any]:
        """Sizes for data.json."""
        parts = {"train": self.train, "valid": self.valid}
        return {
            "unit": self.cfg.data.unit,
            "rows": {name: len(rows) for name, rows in parts.items()},
            "tokens": {name: len(rows.ids) for name, rows in parts.items()},
            "unknown": {name: self.tokenizer.unknown(rows) for name, rows in parts.items()},
            "tokenizer_sha256": self.tokenizer.sha256,
            "vocabulary": self.tokenizer.size,
        }

    def _teachable(self, rows: TokenRows) -> TokenRows:
        """Rows in which there is something to predict: a single token has nothing after it."""
        least = 2 if self.causal else 1
        if (rows.lengths >= least).all():
            return rows
        kept = TokenRows.of(rows[i] for i in range(len(rows)) if rows.lengths[i] >= least)
        if not len(kept):
            raise DataError("No text has two tokens, so there is nothing to predict.", "DATA_SMALL")
        return kept

    def _bytes_predicted(self, rows: TokenRows, texts: Sequence[str]) -> int | None:
        """The size of `texts`, or None where some of it is never predicted and bits a byte would flatter."""
        whole = self.causal and self.cfg.data.boundaries and not self.tokenizer.unknown(rows)
        return sum(len(text.encode()) for text in texts) if whole else None

    def _picker(self, rows: TokenRows) -> Collate:
        return lambda part, rng: self.collate([rows[int(i)] for i in part], rng)


def sample(model: Model, tokenizer: Tokenizer, prompt: str, cfg: PretrainConfig) -> str:
    """A continuation of `prompt` at temperature 0.8."""
    ids = tokenizer.encode([prompt], cfg.data.boundaries, end=False)[0].tolist() or [tokenizer.start]
    start = torch.tensor([ids], device=cfg.train.device)
    how = Sampling(temperature=0.8, top_k=40, seed=cfg.train.seed)
    chosen = [c.id for c in generate(LanguageStep(model), start, SAMPLE_TOKENS, tokenizer.end, how)]
    return tokenizer.decode([*ids, *chosen])


def _tokenizer(run: Run, corpus: Corpus, cfg: PretrainConfig) -> Tokenizer:
    """The tokenizer of the run, made once: a resumed run must not depend on how ties are broken."""
    path = run.path / "model" / "tokenizer.json"
    if path.exists():
        return Tokenizer.load(path)
    tokenizer = tokenizer_for(corpus.train, cfg.tokenizer)
    run.write_text("model/tokenizer.json", tokenizer.to_json())
    return tokenizer


def _look_back(model: Model, text: LanguageText, cfg: PretrainConfig) -> dict[str, float]:
    """Loss on the training text with dropout off, beside the least that any model could have."""
    rows = text.train
    if len(rows.ids) > LOOKED_BACK_AT:
        whole = [rows[i] for i in range(int((rows.starts <= LOOKED_BACK_AT).sum()) - 1)]
        rows = TokenRows.of(whole or [rows.ids[:LOOKED_BACK_AT]])
    batches = (batch.to(cfg.train.device) for batch in text.measured(rows))
    scores: dict[str, float] = {"loss": Language(None).evaluate(model, batches)["loss"]}
    if text.causal and not text.packed and len(rows) <= COUNTED_ROWS:
        scores["entropy"] = prefix_entropy(rows[i].tolist() for i in range(len(rows)))
    return scores


def _card(cfg: PretrainConfig, result: dict[str, Any]) -> str:
    valid = result["valid"]
    score = f"validation loss {valid['loss']:.4f} nats a token" if valid else "no validation text was held out"
    return (
        f"# A {cfg.objective} language model\n\nPreset {cfg.model.preset}, {cfg.model.layers} layers, width "
        f"{cfg.model.width}, {result['parameters']:,} parameters; trained by Headstart for {result['steps']} steps "
        f"({result['tokens']:,} tokens), seed {cfg.train.seed}: {score}.\n\n"
        f"Text: {', '.join(Path(p).name for p in cfg.data.paths)}. Its settings are in config.toml of the run.\n"
    )
