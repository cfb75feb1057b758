"""What the log of a run says of its loss: curves.png, and reference points for a language model. No torch."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headstart.errors import ModelError
from headstart.runs.disk import write_file
from headstart.runs.run import Run
from headstart.show.picture import axes, style
from headstart.tasks.metrics import compressed
from headstart.text.split import Corpus
from headstart.text.stretches import StreamedTexts

COMPRESSED = 8_000_000  # bytes of text that xz is given; more takes minutes
FEWEST = 3  # points; fewer are no curve
# The first that is logged is drawn beside the loss: the leading score of the task.
SCORES = {"kappa": "quadratic kappa", "r2": "R²", "f1": "F1", "accuracy": "accuracy"}


def log_records(run: Run) -> list[dict[str, Any]]:
    """The log of a run; a run without steps and evaluations has none."""
    return list(run.read_lines("log.jsonl")) if run.log_length() else []


def curve(records: Sequence[Mapping[str, Any]], split: str, score: str) -> tuple[list[int], list[float]]:
    """Steps and values of one score in the log of a run."""
    found = [r for r in records if r.get("split") == split and r.get(score) is not None]
    return [r["step"] for r in found], [r[score] for r in found]


@style()
def write_curves(run: Run) -> None:
    """Draw the loss on the training and validation rows, and the validation score, by step."""
    records = log_records(run)
    trained, evaluated = curve(records, "train", "loss"), curve(records, "valid", "loss")
    if max(len(trained[0]), len(evaluated[0])) < FEWEST:
        return
    leading = [score for score in SCORES if curve(records, "valid", score)[0]][:1]
    figure, (left, *others) = axes(1 + len(leading), 4.5 * (1 + len(leading)), 3.6)
    pairs = getattr(run.config, "objective", None) == "contrastive"  # two losses, of two units
    left.plot(*trained, alpha=0.4, linewidth=1, label="training (squared error of cosines)" if pairs else "training")
    left.plot(*evaluated, marker="o", markersize=3, label="validation (nats)" if pairs else "validation")
    left.set(xlabel="step", ylabel="loss" if pairs or leading == ["r2"] else "loss (nats)")  # of numbers it is squared
    left.legend()
    for axis, score in zip(others, leading, strict=True):
        axis.plot(*curve(records, "valid", score), marker="o", markersize=3)
        axis.set(xlabel="step", ylabel=f"validation {SCORES[score]}")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    write_file(run.path / "curves.png", drawn.getvalue())


def training_curve(run: Run) -> Iterator[dict[str, float]]:
    """The training loss of each logged step, and the seconds until then."""
    for record in log_records(run):
        if record.get("split") == "train":
            yield {"step": record["step"], "loss": record["loss"], "seconds": record["wall"]["seconds"]}


def reference_losses(run: Run, corpus: Corpus, valid: Mapping[str, Any]) -> dict[str, float]:
    """Bits per byte of the validation text for the same model before its first step, and for xz after the training text."""
    first = next((r for r in run.read_lines("log.jsonl") if r.get("split") == "valid"), None)
    if first is None:
        raise ModelError(f"{run.path / 'log.jsonl'} is damaged (it holds no evaluation).", "RUN_DAMAGED")
    untrained = first["loss"] * valid["bits_per_byte"] / valid["loss"]
    train = corpus.train
    seen = train.tail(COMPRESSED) if isinstance(train, StreamedTexts) else "\n".join(train).encode()[-COMPRESSED:]
    text = "\n".join(corpus.valid).encode()[-COMPRESSED:]
    return {"untrained": untrained, "xz": compressed(seen, text)}
