"""Pairs of texts for contrastive fine-tuning, and the loss that sentence-transformers computes for the same pairs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.testing import assert_close

from headstart.config import FinetuneConfig, TokenizerConfig
from headstart.jobs.job import prepare
from headstart.models.transformer import Transformer
from headstart.schema import parse
from headstart.shapes import TransformerConfig
from headstart.targets.classes import Classes
from headstart.tasks.classify import ClassifyText
from headstart.tasks.contrast import PairBatches
from headstart.text.read import Example
from headstart.text.tokenizer import tokenizer_for


@pytest.fixture
def pairs(tiny: Callable[..., TransformerConfig]) -> Callable[..., PairBatches]:
    base = Transformer(tiny("bert"))
    tokenizer = tokenizer_for(["a film b c"], TokenizerConfig(kind="char"))

    def make(rows: Sequence[tuple[str, str]], batch_size: int = 4, seed: int = 0) -> PairBatches:
        examples = [Example(text, label) for text, label in rows]
        text = ClassifyText(examples, Classes(tuple(sorted({e.label for e in examples}))), tokenizer, base)
        return PairBatches(text, batch_size, seed)

    return make


def drawn(batches: PairBatches, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of the first and of the second texts of a batch."""
    first = batches.contents(index)
    return first, batches.partners(first, np.random.default_rng([batches.seed, 2, index]))


FILMS = [(f"film {'abc'[i % 3]}{i}", "abc"[i % 3]) for i in range(23)]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 16])
def test_half_of_the_pairs_are_positive(batch_size: int, pairs: Callable[..., PairBatches]) -> None:
    batches = pairs(FILMS, batch_size)
    same = [batches.classes[a] == batches.classes[b] for a, b in (drawn(batches, i) for i in range(400))]
    assert all(abs(len(part) - 2 * part.sum()) <= len(part) % 2 for part in same)
    assert np.concatenate(same).mean() == pytest.approx(0.5, abs=0.05)


def test_the_number_of_pairs_is_that_of_the_rows_and_each_row_begins_one(pairs: Callable[..., PairBatches]) -> None:
    batches = pairs(FILMS * 40, 16)  # 920 rows could make 400,000 pairs
    first = np.concatenate([drawn(batches, i)[0] for i in range(batches.per_epoch)])
    assert sorted(first.tolist()) == list(range(920))


def test_a_batch_is_a_function_of_the_seed_and_its_number(pairs: Callable[..., PairBatches]) -> None:
    one, again, other = pairs(FILMS), pairs(FILMS), pairs(FILMS, seed=1)
    again(3)  # what was asked for before changes nothing
    for index in (7, 0, 41):
        assert one(index).ids.equal(again(index).ids)
        assert one(index).target.equal(again(index).target)
    assert any(one(i).target.tolist() != other(i).target.tolist() for i in range(9))


def test_no_text_is_paired_with_itself_where_there_is_another(pairs: Callable[..., PairBatches]) -> None:
    rows = [("film", "a"), ("film", "a"), ("a film", "a"), ("film", "b"), ("b film", "b")]  # "film" under both labels
    batches = pairs(rows, 5)
    for i in range(200):
        assert all(rows[a][0] != rows[b][0] for a, b in zip(*drawn(batches, i), strict=True))


def test_the_only_text_of_a_class_is_its_own_positive_pair(pairs: Callable[..., PairBatches]) -> None:
    batches = pairs([("film", "a"), ("b film", "b"), ("c film", "b")], 3)
    seen = {b for i in range(50) for a, b in zip(*drawn(batches, i), strict=True) if a == 0}
    assert seen == {0, 1, 2}


def test_both_texts_of_a_pair_are_in_the_batch(pairs: Callable[..., PairBatches]) -> None:
    batches = pairs(FILMS, 4)
    first, second = drawn(batches, 2)
    batch = batches(2)
    assert batch.target.tolist() == [int(batches.classes[row]) for row in [*first, *second]]
    assert len(batch.ids) == 8


# --- parity with sentence-transformers


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A tiny BERT of transformers with random weights and without dropout, in a folder."""
    transformers = pytest.importorskip("transformers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "film",
        "was",
        "lovely",
        "awful",
        "cold",
        "warm",
        "the",
        "end",
    ]
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        vocab_size=len(words),
        max_position_embeddings=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **shape,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def theirs(folder: Path, batches: list[tuple[list[str], list[str], list[float]]], train: Any) -> list[float]:
    """The loss of each step by sentence-transformers: its model, its loss, its order of the pairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        st = pytest.importorskip("sentence_transformers")
        from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

        model = st.SentenceTransformer(str(folder), device="cpu")  # mean pooling, unless the folder says otherwise
    loss = CosineSimilarityLoss(model)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": train.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer, found = torch.optim.AdamW(groups, lr=train.lr, betas=(0.9, train.beta2)), []
    model.train()
    for first, second, same in batches:
        optimizer.zero_grad()
        value = loss([model.preprocess(first), model.preprocess(second)], torch.tensor(same))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        optimizer.step()
        found.append(float(value.detach()))
    return found


def test_the_loss_of_every_step_is_that_of_sentence_transformers(bert: Path, reviews: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from headstart.jobs.finetune import finetune
    from headstart.runs.run import Run

    train = {"steps": 5, "eval_every": 5, "batch_size": 8, "lr": 1e-2, "warmup": 0.0, "final_lr": 1.0, "log_every": 1,
             "tensorboard": False}  # fmt: skip
    cfg = parse(FinetuneConfig, {"base": str(bert), "objective": "contrastive", "pool": "mean", "train": train,
                                 "data": {"train": str(reviews)}})  # fmt: skip
    finetune(cfg, tmp_path / "run")
    ours = [r["loss"] for r in Run.open(tmp_path / "run").read_lines("log.jsonl") if r["split"] == "train"]
    job = prepare(cfg)
    batches = []
    for index in range(5):
        first, second = drawn(job.batches, index)
        texts = [[job.text.texts[row] for row in rows] for rows in (first, second)]
        same = [float(job.text.targets[a] == job.text.targets[b]) for a, b in zip(first, second, strict=True)]
        batches.append((*texts, same))
    expected = theirs(bert, batches, cfg.train)
    assert len({round(loss, 4) for loss in expected}) == 5  # it learns
    assert_close(ours, expected, atol=1e-5, rtol=0)
