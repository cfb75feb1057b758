"""The fine-tuning job: labelled text and a base in, a run directory with a classifier out.

Pretrained, scratch and frozen differ in one line each, and in nothing else.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from headstart.config import PRESETS, FinetuneConfig, TransformerConfig
from headstart.errors import ConfigError, did_you_mean
from headstart.models.base import freeze
from headstart.models.heads import ClassHead, Model
from headstart.tasks.classify import Classify
from headstart.tasks.metrics import class_scores
from headstart.text.batch import Batch, Collate, Numbers, Rng, RowBatches, by_length, in_order, pad
from headstart.text.files import file_facts
from headstart.text.read import Example, text_files
from headstart.text.split import Labelled, split_labelled
from headstart.text.tokenizer import Tokenizer, TokenRows, tokenizer_for, truncated
from headstart.train.checkpoint import fingerprint, load_weights, remove_checkpoints, weights
from headstart.train.loop import prepare_device, train
from headstart.train.model_dir import HeadSpec, Saved, build_model, read_model, write_model
from headstart.train.run import Run
from headstart.train.watch import Watch


def finetune(cfg: FinetuneConfig, out: str | Path, resume: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Train a classifier on `cfg.data` into the run directory `out`; its result."""
    watch = watch or Watch()
    prepare_device(cfg.train)
    with Run.start(out, resume) as run:
        if run.finished:
            watch.note("This run is finished already.")
            return run.read_json("result.json")
        run.write_env(cfg.train)
        paths = [path for path in (cfg.data.train, cfg.data.valid, cfg.data.test) if path]
        data = split_labelled(cfg.data)
        source = None if cfg.base in PRESETS else _open_base(cfg.base)
        tokenizer = source.tokenizer if source else _preset_tokenizer(run, cfg, data)
        run.write_text("model/tokenizer.json", tokenizer.to_json())
        shape = source.config if source else cfg.model.model_copy(update={"vocab": tokenizer.size})
        texts = ClassifyText(data, tokenizer, shape)
        cfg = _resolved(cfg, shape, len(data.train))
        facts = data.facts()
        run.keep_data_facts({"files": file_facts(text_files(paths)), **facts, "truncated": texts.cut})
        for warning in facts["hygiene"]["warnings"]:
            watch.note(f"Note: {warning}")
        run.write_config(cfg)

        torch.manual_seed(cfg.train.seed)
        assert cfg.pool is not None
        spec = HeadSpec("classify", tuple(data.labels), cfg.pool, cfg.head_dropout)
        model = build_model(shape, spec)
        if source and cfg.init == "pretrained":
            load_weights(model.base, weights(source.model.base))
        freeze(model.base, cfg.scope)
        if cfg.class_weights and isinstance(model.head, ClassHead):
            model.head.weights.copy_(class_weights(data.train, data.labels))
        receipt = _open_receipt(run, cfg, model, source)
        model.to(cfg.train.device)

        task = Classify(len(data.labels))
        batches = RowBatches(texts.train.lengths, cfg.train.batch_size, texts.collate_train, cfg.train.seed)
        progress = train(model, task, batches, texts.valid_batches, cfg.train, run, watch)

        _close_receipt(run, receipt, model)
        assert progress.best is not None
        result = {
            "run": str(run.path),
            "steps": progress.step,
            "best_step": progress.best_step,
            "valid": progress.best,
            "test": _open_test_rows(run, model, texts, data, cfg) if data.test else None,
            "parameters": sum(p.numel() for p in model.parameters()),
            "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "seconds": round(progress.seconds, 3),
        }
        write_model(run.path / "model", Saved(model, tokenizer, shape, spec), _card(cfg, result, data))
        run.finish(result)
        if not cfg.train.keep_checkpoints:
            remove_checkpoints(run)
        return result


class ClassifyText:
    """Split rows as tokens, cut to the base's context, and their batches."""

    def __init__(self, data: Labelled, tokenizer: Tokenizer, shape: TransformerConfig) -> None:
        self.pad = tokenizer.pad
        number = {label: i for i, label in enumerate(data.labels)}
        parts = {"train": data.train, "valid": data.valid, "test": data.test}
        self.cut: dict[str, int] = {}
        rows = {}
        for name, examples in parts.items():
            rows[name], self.cut[name] = class_rows([e.text for e in examples], tokenizer, shape)
        self.train, self.valid, self.test = rows["train"], rows["valid"], rows["test"]
        self.collate_train = self._collate(self.train, [number[e.label] for e in data.train])
        self._collate_valid = self._collate(self.valid, [number[e.label] for e in data.valid])

    def valid_batches(self) -> Iterable[Batch]:
        return in_order(self.valid.lengths, 64, self._collate_valid)

    def _collate(self, rows: TokenRows, targets: Sequence[int]) -> Collate:
        def collate(part: Numbers, rng: Rng) -> Batch:
            ids, mask = pad([rows[int(i)] for i in part], self.pad)
            return Batch(ids, mask, torch.tensor([targets[int(i)] for i in part]))

        return collate


def class_rows(texts: Sequence[str], tokenizer: Tokenizer, shape: TransformerConfig) -> tuple[TokenRows, int]:
    """Texts as a classifier reads them, and how many had to be cut.

    A causal base has read the whole text at its last token, so no end token follows it; a two-way base sees
    start and end, as in pretraining.
    """
    rows = tokenizer.encode(texts, end=not shape.causal)
    return truncated(rows, shape.context, None if shape.causal else tokenizer.end)


@torch.inference_mode()
def probabilities(model: Model, rows: TokenRows, pad_id: int, device: str = "cpu") -> list[list[float]]:
    """The class probabilities of each row, in the order of the rows."""
    model.eval()
    found: dict[int, list[float]] = {}
    for part in by_length(rows.lengths, 64):
        ids, mask = pad([rows[int(i)] for i in part], pad_id)
        scores = model(ids.to(device), mask.to(device)).softmax(-1).tolist()
        found.update(zip((int(i) for i in part), scores, strict=True))
    return [found[i] for i in range(len(rows))]


def class_weights(rows: Sequence[Example], labels: Sequence[str]) -> torch.Tensor:
    """Weights under which every class counts alike, however many rows it has."""
    counts = Counter(e.label for e in rows)
    return torch.tensor([len(rows) / (len(labels) * counts[label]) for label in labels])


def _open_base(base: str) -> Saved:
    if not os.path.exists(base):
        raise ConfigError(
            f"Base '{base}' is neither a run nor a preset ({', '.join(PRESETS)}).{did_you_mean(base, PRESETS)}"
        )
    return read_model(Run.open(base).path / "model")


def _preset_tokenizer(run: Run, cfg: FinetuneConfig, data: Labelled) -> Tokenizer:
    if cfg.init == "pretrained":
        raise ConfigError(
            f"The preset '{cfg.base}' has no weights. Give a pretrained run as --base, or train from nothing with "
            "--init scratch."
        )
    kept = run.path / "model" / "tokenizer.json"
    return Tokenizer.load(kept) if kept.exists() else tokenizer_for([e.text for e in data.train], cfg.tokenizer)


def _resolved(cfg: FinetuneConfig, shape: TransformerConfig, rows: int) -> FinetuneConfig:
    """`cfg` with what the data and the base decide."""
    per_epoch = -(-rows // (cfg.train.batch_size * cfg.train.accumulate))
    pool = cfg.pool or ("last" if shape.causal else "cls")
    train = cfg.train.scheduled(cfg.epochs * per_epoch, eval_every=per_epoch)
    return cfg.model_copy(update={"model": shape, "pool": pool, "train": train})


def _open_receipt(run: Run, cfg: FinetuneConfig, model: Model, source: Saved | None) -> dict[str, Any]:
    """What was taken over, written before the first update; a resumed run keeps the one that is there."""
    if (run.path / "receipt.json").exists():
        return run.read_json("receipt.json")
    base = {f"base.{name}": t for name, t in weights(model.base).items()}
    head = [f"head.{name}" for name in weights(model.head)]
    taken = source is not None and cfg.init == "pretrained"
    frozen = [f"base.{name}" for name, p in model.base.named_parameters() if not p.requires_grad]
    receipt = {
        "base": cfg.base,
        "init": cfg.init,
        "copied": sorted(base) if taken else [],
        "new": sorted(head) if taken else sorted([*base, *head]),
        "unused": sorted(n for n in weights(source.model) if n.startswith("head.")) if taken and source else [],
        "base_sha256_before": fingerprint(base),
        "frozen": {name: fingerprint({name: base[name]}) for name in frozen},
    }
    run.write_json("receipt.json", receipt)
    return receipt


def _close_receipt(run: Run, receipt: dict[str, Any], model: Model) -> None:
    base = {f"base.{name}": t for name, t in weights(model.base).items()}
    moved = [name for name, before in receipt["frozen"].items() if fingerprint({name: base[name]}) != before]
    run.write_json("receipt.json", {**receipt, "base_sha256_after": fingerprint(base), "frozen_moved": moved})


def _open_test_rows(run: Run, model: Model, texts: ClassifyText, data: Labelled, cfg: FinetuneConfig) -> dict[str, Any]:
    """Predict the test rows, once, with the kept weights."""
    scores = probabilities(model, texts.test, texts.pad, cfg.train.device)
    predicted = [max(range(len(row)), key=row.__getitem__) for row in scores]
    run.write_lines(
        "predictions.jsonl",
        [
            {
                "row": i,
                "text": example.text,
                "label": example.label,
                "prediction": data.labels[guess],
                "probabilities": dict(zip(data.labels, row, strict=True)),
            }
            for i, (example, guess, row) in enumerate(zip(data.test, predicted, scores, strict=True))
        ],
    )
    return class_scores([data.labels.index(e.label) for e in data.test], predicted, len(data.labels))


def _card(cfg: FinetuneConfig, result: dict[str, Any], data: Labelled) -> str:
    test = result["test"]
    low, high = test["interval"] if test else (0, 0)
    score = (
        f"Accuracy on {test['rows']} test rows: {test['accuracy']:.4f} (95 % interval {low:.4f} to {high:.4f})."
        if test
        else f"Accuracy on {len(data.valid)} validation rows: {result['valid']['accuracy']:.4f}."
    )
    start = "fresh weights" if cfg.init == "scratch" else f"the base {Path(cfg.base).name}"
    return (
        f"# A text classifier: {', '.join(data.labels)}\n\nTrained by Headstart from {start} "
        f"(trained: {cfg.scope}) on {len(data.train)} rows of {Path(cfg.data.train).name}, seed {cfg.train.seed}. "
        f"{score}\n"
    )
