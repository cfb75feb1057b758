"""Long texts in windows: every token is read, and a text is the mean of its windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.testing import assert_close

from headstart.config import FinetuneConfig, TokenizerConfig
from headstart.jobs.finetune import finetune
from headstart.models.heads import ClassHead, Model, mean_real
from headstart.models.transformer import Transformer
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.shapes import TransformerConfig
from headstart.targets.classes import Classes
from headstart.tasks.classify import Classify, ClassifyText, WindowBatch, predicted, rows_of
from headstart.text.read import Example
from headstart.text.tokenizer import Tokenizer
from headstart.use.predict import LoadedClassifier

LONG = " ".join(f"w{i}" for i in range(60))
TEXTS = ["w1 w2", LONG, "w3"]


def model_and_tokenizer(tiny: Callable[..., TransformerConfig], preset: str) -> tuple[Model, Tokenizer]:
    tokenizer = Tokenizer.train([LONG], TokenizerConfig(kind="word"))
    torch.manual_seed(0)
    base = Transformer(tiny(preset, vocab=tokenizer.size))
    return Model(base, ClassHead(16, 2, mean_real)).eval(), tokenizer


def test_every_token_is_in_a_window_and_no_window_is_too_long(tiny: Callable[..., TransformerConfig]) -> None:
    for preset in ("gpt", "bert"):
        model, tokenizer = model_and_tokenizer(tiny, preset)
        rows, owner, cut = rows_of(TEXTS, tokenizer, model.base, "window")
        assert owner.tolist() == [0, 1, 1, 1, 1, 2][: len(owner)] or owner.tolist() == [0, *[1] * (len(owner) - 2), 2]
        assert cut == 0
        assert int(rows.lengths.max()) <= model.base.max_len
        read = {int(i) for n in range(len(rows)) if owner[n] == 1 for i in rows[n]}
        assert set(tokenizer.encode([LONG], boundaries=False)[0].tolist()) <= read
        short, _, _ = rows_of(TEXTS[:1], tokenizer, model.base, "truncate")
        assert rows[0].tolist() == short[0].tolist()  # a text that fits is read as ever


def test_a_text_is_the_mean_of_its_windows(tiny: Callable[..., TransformerConfig]) -> None:
    model, tokenizer = model_and_tokenizer(tiny, "bert")
    rows, owner, _ = rows_of(TEXTS, tokenizer, model.base, "window")
    each = [model.features(torch.tensor(rows[i][None]).long(), torch.ones(1, len(rows[i]), dtype=torch.bool)) for i in range(len(rows))]  # fmt: skip
    long = torch.cat([v for v, o in zip(each, owner, strict=True) if o == 1]).mean(0)
    expected = model.head.logits(torch.stack([each[0][0], long, each[-1][0]])).softmax(-1)
    found = torch.tensor(predicted(model, TEXTS, tokenizer, "window")).float()
    assert_close(found, expected, atol=1e-5, rtol=0)
    text = ClassifyText(
        [Example(t, "ab"[i % 2]) for i, t in enumerate(TEXTS)], Classes(("a", "b")), tokenizer, model.base, "window"
    )
    batch = text.collate(torch.tensor([1, 0]).numpy(), None)  # type: ignore[arg-type]
    assert isinstance(batch, WindowBatch)
    loss, count = Classify(Classes(("a", "b")), "accuracy").loss(model, batch)
    assert_close(loss / count, -expected[[1, 0], [1, 0]].log().mean(), atol=1e-5, rtol=0)


def test_the_label_may_stand_at_the_end_of_a_long_text(tmp_path: Path) -> None:
    """What a cut text has lost is learned from windows: the same run without them cannot tell the labels apart."""
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "\n".join(["text,label", *(f"{'so ' * 70}{('bad ', 'good ')[i % 2] * 20}{i},{i % 2}" for i in range(120))])
    )
    score = {}
    for long in ("truncate", "window"):
        settings = {"base": "bert", "init": "scratch", "long": long, "pool": "mean", "epochs": 12, "check": False,
                    "model": {"layers": 1, "heads": 2, "width": 16, "ff": 32, "context": 32}, "tokenizer": {"kind": "word"},
                    "data": {"train": str(rows)}, "train": {"lr": 1e-2, "tensorboard": False, "batch_size": 8}}  # fmt: skip
        score[long] = finetune(parse(FinetuneConfig, settings), tmp_path / long)["test"]["accuracy"]
        assert sum(Run.open(tmp_path / long).read_json("data.json")["truncated"].values()) == (
            120 if long == "truncate" else 0
        )
    assert score["window"] == 1.0 > score["truncate"]
    assert LoadedClassifier.load(tmp_path / "window").predict([f"{'so ' * 70}{'good ' * 20}"])[0]["label"] == "1"
