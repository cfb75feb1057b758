"""A frozen base reads every text once, and training on what it made of them is the same training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from headstart.bases.features import FrozenFeatures
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.jobs.finetune import finetune
from headstart.jobs.job import prepare
from headstart.jobs.pretrain import pretrain
from headstart.models.transformer import Transformer
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.train.loop import train


@pytest.fixture
def base(sentences: Path, tmp_path: Path) -> Path:
    train = {"steps": 2, "batch_size": 8, "threads": 1, "tensorboard": False}
    settings = {"data": {"paths": [str(sentences)], "unit": "line"}, "model": {"size": "nano"}, "train": train}
    pretrain(parse(PretrainConfig, settings), tmp_path / "base")
    return tmp_path / "base"


def frozen(base: Path, reviews: Path, **settings: Any) -> FinetuneConfig:
    train = {"threads": 1, "tensorboard": False, "lr": 0.01, **settings.pop("train", {})}
    common = {"base": str(base), "scope": "head", "epochs": 3, "data": {"train": str(reviews)}, "train": train}
    return parse(FinetuneConfig, {**common, **settings})


def losses(run: Run) -> list[float]:
    return [r["loss"] for r in run.read_lines("log.jsonl") if "loss" in r]


def test_training_on_kept_features_is_the_same_training(base, reviews, tmp_path):
    cfg = frozen(base, reviews, train={"log_every": 1})
    finetune(cfg, tmp_path / "kept")
    job = prepare(cfg)
    for part in (job.text, job.valid):
        part.features = None  # the base reads every batch again
    with Run.start(tmp_path / "again", False, cfg, 1) as run:
        train(job.model, job.task, job.batches, job.measured, job.cfg.train, run, Watch())
    kept, again = losses(Run.open(tmp_path / "kept")), losses(Run(tmp_path / "again"))
    assert len(kept) > 12
    assert kept == pytest.approx(again, abs=1e-5)


def test_what_another_base_makes_of_the_texts_is_kept_apart(base, reviews, tmp_path):
    job = prepare(frozen(base, reviews))
    for activation in ("gelu_tanh", "relu"):  # the weights are the same
        model = job.cfg.model.model_copy(update={"activation": activation})
        cfg = job.cfg.model_copy(update={"model": model, "features": str(tmp_path / "kept")})
        FrozenFeatures(job.model, job.tokenizer, cfg, [["a film"]], ["mean"])("mean", ["a film"])
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_the_base_reads_each_text_once_for_all_runs(base, reviews, tmp_path, monkeypatch):
    read = []
    as_it_is = Transformer.read

    def counted(self: Transformer, ids: torch.Tensor, *rest: Any) -> Any:
        read.append(len(ids))
        return as_it_is(self, ids, *rest)

    monkeypatch.setattr(Transformer, "read", counted)
    folder = str(tmp_path / "features")
    results = [
        finetune(frozen(base, reviews, features=folder, train={"seed": seed}), tmp_path / f"seed-{seed}")
        for seed in (0, 1)
    ]
    finetune(frozen(base, reviews, features=folder, data={"train": str(reviews), "labels": 30}), tmp_path / "few")
    assert sum(read) == 80  # the rows of the table, whatever the epochs, seeds and label counts
    assert results[0]["test"]["rows"] == results[1]["test"]["rows"] == 16


def test_a_damaged_file_of_features_is_made_again(base, reviews, tmp_path):
    cfg = frozen(base, reviews, features=str(tmp_path / "features"))
    first = finetune(cfg, tmp_path / "first")
    (file,) = (tmp_path / "features").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    second = finetune(cfg, tmp_path / "second")
    assert file.read_bytes() == whole
    assert second["test"] == first["test"]


def test_another_base_has_features_of_its_own(base, reviews, tmp_path):
    folder = tmp_path / "features"
    finetune(frozen(base, reviews, features=str(folder)), tmp_path / "first")
    finetune(frozen(base, reviews, features=str(folder), init="scratch"), tmp_path / "second")
    finetune(frozen(base, reviews, features=str(folder), pool="mean"), tmp_path / "third")
    assert len(list(folder.iterdir())) == 3


def test_few_labels_are_all_learned_from_and_nothing_is_selected(base, reviews, tmp_path):
    result = finetune(
        frozen(base, reviews, data={"train": str(reviews), "labels": 30}, least_steps=40), tmp_path / "few"
    )
    assert result["valid"] is None
    assert result["steps"] == 40
    assert Run.open(tmp_path / "few").read_json("data.json")["rows"] == {"train": 30, "valid": 0, "test": 16}


def test_texts_of_several_groups_are_found_in_their_places(base, reviews):
    job = prepare(frozen(base, reviews))
    texts = ["a film", "a lovely film", "an awful film", "a film again"]
    whole = FrozenFeatures(job.model, job.tokenizer, job.cfg, [texts], ["mean"])("mean", texts)
    parted = FrozenFeatures(job.model, job.tokenizer, job.cfg, [texts[:2], texts[1:]], ["mean"])
    torch.testing.assert_close(parted("mean", texts), whole)
    torch.testing.assert_close(parted("mean", texts[::-1]), whole.flip(0))
    assert parted("mean", []).shape == (0, whole.size(1))


def test_with_few_labels_of_many_rows_the_base_reads_those_that_are_drawn(base, tmp_path):
    rows = [f"film {i} was {'lovely' if i % 2 else 'awful'},{'good' if i % 2 else 'bad'}" for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    data = {"train": str(tmp_path / "rows.csv"), "labels": 8}
    finetune(frozen(base, tmp_path / "rows.csv", data=data, features=str(tmp_path / "kept")), tmp_path / "run")
    sizes = sorted(load_file(file)["features"].size(1) for file in (tmp_path / "kept").iterdir())
    assert sizes == [8, 40], "eight training rows and the test rows, not all 200"
