"""Time to a verdict: one question answered by `headstart compare` and by a plain script of scikit-learn and transformers' Trainer.

python -m benchmarks.verdict [--base minilm] [--seeds 5] [--samples 1] [--least-steps N] [--epochs N]

Does pretraining help with 400 labelled sentences of film reviews? TF-IDF, scratch, frozen and full, three learning rates tried for
each arm that is trained, five seeds. Both read the same rows, take as many steps in batches of the same size, evaluate as often
and keep the best weights; the script pads each batch to its longest row, keeps the best weights in memory and writes nothing.
Each is a process of its own, so imports count. With a base that is given, both take 60 steps a run, or three epochs: some 12 minutes
are expected on two cores; without, 300 steps, or ten epochs. What the script leaves out: intervals, resuming, hygiene, calibration, a page.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.timing import spent_by

RATES = (1e-4, 3e-4, 1e-3)
ARMS = ("scratch", "frozen", "full")
STEPS, STEPS_OF_A_BASE = (300, 10), (60, 3)  # steps and epochs, each at least
TRIAL_SEED = 1000  # as in a study


@dataclass(frozen=True)
class Question:
    data: str  # a folder with labelled.csv and test.csv
    base: str
    seeds: int
    steps: int  # of each run, at least
    folder: str  # of the base, as transformers opens it
    epochs: int
    batch: int = 16


@dataclass(frozen=True)
class Taken:
    """What a process took."""

    seconds: float
    processor: float  # seconds of user and system
    megabytes: float  # at most
    accuracy: dict[str, float]  # mean over the seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a run or a model; a small masked model is pretrained, which is not timed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1, help="times that both are run, in turn")
    parser.add_argument("--least-steps", type=int, help="of each run that is trained; 300, with --base 60")
    parser.add_argument("--epochs", type=int, help="at least; 10, with --base 3")
    parser.add_argument("--pretraining-steps", type=int, default=60)
    parser.add_argument("--peer", help=argparse.SUPPRESS)  # the question of the plain script
    args = parser.parse_args()
    if args.peer:
        print(json.dumps(plain_script(Question(**json.loads(args.peer)))))  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        question = ask(Path(folder), args)
        pairs = [(ours(question, Path(folder) / f"study-{i}"), theirs(question)) for i in range(args.samples)]
    print("\n".join(table(args.base or "micro, masked", question, pairs)))  # noqa: T201


def table(name: str, question: Question, pairs: list[tuple[Taken, Taken]]) -> list[str]:
    ratios, processor = ([getattr(b, of) / getattr(a, of) for a, b in pairs] for of in ("seconds", "processor"))
    lines = [
        f"| {name}: {question.seeds} seeds, {question.steps} steps or {question.epochs} epochs | seconds | processor seconds | peak memory | accuracy |",
        "|---|---|---|---|---|",
    ]
    for who, taken in (("Headstart", [a for a, _ in pairs]), ("scikit-learn and Trainer", [b for _, b in pairs])):
        scores = ", ".join(f"{arm} {score:.3f}" for arm, score in taken[0].accuracy.items())
        seconds, used, memory = (median(getattr(t, of) for t in taken) for of in ("seconds", "processor", "megabytes"))
        lines.append(f"| {who} | {seconds:,.1f} | {used:,.1f} | {memory:,.0f} MB | {scores} |")
    ranges = [f"**{median(found):.2f}** ({min(found):.2f} to {max(found):.2f})" for found in (ratios, processor)]
    return [*lines, f"| ratio | {ranges[0]} | {ranges[1]} | | |"]


def ask(folder: Path, args: argparse.Namespace) -> Question:
    """The rows, and a base."""
    from headstart.bases.pretrained import find_base
    from headstart.hub.packs import get_pack
    from headstart.study.demo import PACK, write_data

    write_data(get_pack(PACK), folder / "data")
    base = args.base or str(folder / "base")
    if not args.base:
        words = (
            f"pretrain {folder}/data/some.csv --objective masked --preset bert --size micro --context 128 --vocab 16384"
        )
        _headstart(*words.split(), "--steps", str(args.pretraining_steps), "--out", base, "--quiet")
    steps, epochs = STEPS_OF_A_BASE if args.base else STEPS
    steps, epochs = args.least_steps or steps, args.epochs or epochs
    return Question(str(folder / "data"), base, args.seeds, steps, str(find_base(base)), epochs)


def comparison(question: Question, out: Path) -> list[str]:
    words = ["compare", f"{question.data}/labelled.csv", "--test", f"{question.data}/test.csv", "--base", question.base]
    words += ["--arms", ",".join(["tfidf", *ARMS]), "--seeds", str(question.seeds), "--out", str(out)]
    words += ["--rates", ",".join(map(str, RATES)), "--epochs", str(question.epochs)]
    return [*words, "--batch-size", str(question.batch), "--set", f"least_steps={question.steps}", "--quiet", "--yes"]


def ours(question: Question, out: Path) -> Taken:
    shown, spent = spent_by([sys.executable, "-m", "headstart", *comparison(question, out), "--json"])
    return Taken(*spent, {arm["name"]: arm["mean"] for arm in json.loads(shown)["arms"]})


def theirs(question: Question) -> Taken:
    shown, spent = spent_by([sys.executable, "-m", "benchmarks.verdict", "--peer", json.dumps(asdict(question))])
    return Taken(*spent, json.loads(shown.splitlines()[-1]))


def _headstart(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headstart", *words], check=True, stdout=subprocess.DEVNULL)


def plain_script(question: Question) -> dict[str, float]:
    """The accuracy of each arm, as a script of some hundred lines finds it."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline

    rows, (texts, targets) = (_read(Path(question.data) / name) for name in ("labelled.csv", "test.csv"))
    fitted, held_out, known, wanted = train_test_split(*rows, test_size=0.2, stratify=rows[1], random_state=0)
    linear = LogisticRegressionCV(
        Cs=[1.0, 10.0, 100.0], cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"
    )
    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), linear).fit(fitted, known)
    found = {"tfidf": float(np.mean(pipeline.predict(texts) == np.array(targets)))}
    parts = _tokenized(question, (fitted, known), (held_out, wanted), (texts, targets))
    for arm in ARMS:
        best = max(RATES, key=lambda rate: _trained(question, arm, rate, TRIAL_SEED, *parts[:2])[0])
        runs = [_trained(question, arm, best, seed, *parts) for seed in range(question.seeds)]
        found[arm] = mean(test for _, test in runs)
    return found


def _read(file: Path) -> tuple[list[str], list[int]]:
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    return [row["text"] for row in rows], [int(row["label"] == "positive") for row in rows]


def _tokenized(question: Question, *parts: tuple[list[str], list[int]]) -> list[list[dict[str, Any]]]:
    """The rows of each part, tokenized once for all runs."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{question.folder}/tokenizer.json")
    longest = json.loads(Path(question.folder, "config.json").read_text())["max_position_embeddings"]
    return [
        [
            {"input_ids": ids, "labels": target}
            for ids, target in zip(
                tokenizer(texts, truncation=True, max_length=longest)["input_ids"], targets, strict=True
            )
        ]
        for texts, targets in parts
    ]


def _trained(
    question: Question, arm: str, rate: float, seed: int, train: Any, valid: Any, test: Any = ()
) -> tuple[float, float]:
    """Accuracy on the validation rows, the best of all evaluations, and on the test rows with the weights of then."""
    import torch
    import transformers

    transformers.set_seed(seed)
    transformers.logging.set_verbosity_error()
    kind = transformers.AutoModelForSequenceClassification
    config = transformers.AutoConfig.from_pretrained(question.folder, num_labels=2)
    model = kind.from_config(config) if arm == "scratch" else kind.from_pretrained(question.folder, config=config)
    if arm == "frozen":
        model.base_model.requires_grad_(False)
    best: dict[str, Any] = {"accuracy": -1.0}

    class KeepBest(transformers.TrainerCallback):
        def on_evaluate(self, *_: Any, **told: Any) -> None:
            metrics = told["metrics"]
            if metrics["eval_accuracy"] > best["accuracy"]:
                weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                best.update(accuracy=metrics["eval_accuracy"], weights=weights)

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=config.pad_token_id)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
        return {"input_ids": padded, "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in rows])}

    def accuracy(told: Any) -> dict[str, float]:
        return {"accuracy": float((told.predictions.argmax(-1) == told.label_ids).mean())}

    per_epoch = -(-len(train) // question.batch)
    settings = transformers.TrainingArguments(
        tempfile.gettempdir(), max_steps=max(question.steps, question.epochs * per_epoch), learning_rate=rate, seed=seed,
        per_device_train_batch_size=question.batch, per_device_eval_batch_size=64, lr_scheduler_type="cosine",
        warmup_steps=0.05, weight_decay=0.1, max_grad_norm=1.0, eval_strategy="steps", eval_steps=per_epoch,
        eval_on_start=True, save_strategy="no", logging_steps=10, report_to=[], disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, settings, collate, train, valid, compute_metrics=accuracy, callbacks=[KeepBest()]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    model.load_state_dict(best["weights"])
    return best["accuracy"], accuracy(trainer.predict(test))["accuracy"] if test else 0.0


if __name__ == "__main__":
    main()
