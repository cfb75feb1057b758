"""Transfer: what is copied, what is frozen, and what the receipt says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig
from headstart.errors import DataError
from headstart.jobs.finetune import finetune
from headstart.runs.checkpoint import weights
from headstart.runs.model_dir import read_model
from headstart.runs.run import Run
from headstart.runs.watch import Watch
from headstart.schema import parse
from headstart.tasks.classify import class_weights
from headstart.text.read import Example


def invoke(*words: object) -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def base(reviews: Path, tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line.rpartition(",")[0] for line in reviews.read_text().splitlines()[1:]))
    out = tmp_path / "base"
    invoke("pretrain", text, "--out", out, "--unit", "line", "--tokenizer", "word", "--size", "nano", "--steps", 30,
           "--batch-size", 8, "--quiet", "--set", "train.tensorboard=false")  # fmt: skip
    return out


def tuned(base: Path, reviews: Path, out: Path, **settings: Any) -> dict[str, Any]:
    train = {"batch_size": 8, "tensorboard": False, "lr": 3e-3, **settings.pop("train", {})}
    cfg = {"base": str(base), "epochs": 6, "data": {"train": str(reviews)}, "train": train, **settings}
    return finetune(parse(FinetuneConfig, cfg), out)


def test_a_classifier_learns_reports_and_predicts(base: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    result = invoke("finetune", reviews, "--base", base, "--out", out, "--epochs", 12, "--lr", 3e-3, "--quiet")
    assert result["valid"]["accuracy"] > 0.9
    assert result["test"]["interval"][0] <= result["test"]["accuracy"] <= result["test"]["interval"][1]
    assert (out / "curves.png").stat().st_size > 5000
    predictions = list(Run.open(out).read_lines("predictions.jsonl"))
    hits = sum(p["label"] == p["prediction"] for p in predictions)
    assert hits / len(predictions) == result["test"]["accuracy"]
    assert len(predictions) == result["test"]["rows"] == 16

    texts = ["film 3 was lovely from end to end", "film 4 was awful from end to end"]
    records = invoke("predict", out, *texts)
    assert [r["label"] for r in records] == ["positive", "negative"]
    assert all(sum(r["probabilities"].values()) == pytest.approx(1) for r in records)
    scores = invoke("evaluate", out, reviews)
    assert sum(map(sum, scores["confusion"])) == 80
    assert scores["accuracy"] > 0.9


def test_the_receipt_names_what_was_copied_and_what_is_new(base: Path, reviews: Path, tmp_path: Path) -> None:
    tuned(base, reviews, tmp_path / "full")
    receipt = Run.open(tmp_path / "full").read_json("receipt.json")
    source = weights(read_model(base / "model").model)
    assert receipt["copied"] == sorted(name for name in source if name.startswith("base."))
    assert receipt["new"] == ["head.linear.bias", "head.linear.weight"]
    assert receipt["unused"] == []  # the language head is tied to the embedding, which was copied
    assert receipt["base_sha256_before"] != receipt["base_sha256_after"]
    assert receipt["frozen"] == {}


def test_a_scratch_run_copies_nothing_and_is_otherwise_the_same(base: Path, reviews: Path, tmp_path: Path) -> None:
    tuned(base, reviews, tmp_path / "full")
    tuned(base, reviews, tmp_path / "scratch", init="scratch")
    full, scratch = Run.open(tmp_path / "full"), Run.open(tmp_path / "scratch")
    assert scratch.read_json("receipt.json")["copied"] == []
    one, other = full.config.model_dump(), scratch.config.model_dump()
    assert {key for key in one if one[key] != other[key]} - {"pool"} == {"init"}  # a probe may choose another pooling
    assert full.read_json("data.json") == scratch.read_json("data.json")


def test_a_frozen_base_does_not_move_by_a_bit(base: Path, reviews: Path, tmp_path: Path) -> None:
    result = tuned(base, reviews, tmp_path / "frozen", scope="head")
    receipt = Run.open(tmp_path / "frozen").read_json("receipt.json")
    assert receipt["base_sha256_before"] == receipt["base_sha256_after"]
    assert receipt["frozen_moved"] == []
    assert len(receipt["frozen"]) == len(receipt["copied"])
    assert result["trained_parameters"] == 2 * 48 + 2


def test_only_the_last_layer_moves_when_it_alone_is_trained(base: Path, reviews: Path, tmp_path: Path) -> None:
    tuned(base, reviews, tmp_path / "last", scope="last:1", fit_head=False)
    before = weights(read_model(base / "model").model.base)
    after = weights(read_model(tmp_path / "last" / "model").model.base)
    moved = {name.split(".")[1] if name.startswith("layers") else name.split(".")[0]
             for name in before if not before[name].equal(after[name])}  # fmt: skip
    assert moved == {"2", "norm"}


@pytest.mark.parametrize("pool", ["last", "cls", "mean"])
def test_every_pooling_trains(pool: str, base: Path, reviews: Path, tmp_path: Path) -> None:
    tuned(base, reviews, tmp_path / pool, pool=pool, epochs=1)
    assert read_model(tmp_path / pool / "model").head.pool == pool


def test_class_weights_make_every_class_count_alike() -> None:
    rows = [Example("x", "a")] * 6 + [Example("x", "b")] * 2
    weight = class_weights(rows, ["a", "b"])
    assert float(weight[0] * 6) == pytest.approx(float(weight[1] * 2))
    assert float(weight[0] * 6 + weight[1] * 2) == pytest.approx(8)


def test_a_few_labels_get_updates_enough_and_no_checkpoint_each(base: Path, reviews: Path, tmp_path: Path) -> None:
    result = tuned(base, reviews, tmp_path / "few", data={"train": str(reviews), "labels": 16}, epochs=10)
    cfg = Run.open(tmp_path / "few").config.train
    assert (result["steps"], cfg.eval_every, cfg.checkpoint_every) == (200, 20, 20)
    assert result["test"]["accuracy"] > 0.9
    asked = tuned(base, reviews, tmp_path / "asked", data={"train": str(reviews), "labels": 16}, least_steps=30)
    assert asked["steps"] == 30


def test_truncated_rows_are_counted(base: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.csv"
    rows = [f"{'film ' * (200 if i < 7 else 3)}{i},{'ab'[i % 2]}" for i in range(40)]
    long.write_text("\n".join(["text,label", *rows]))
    tuned(base, long, tmp_path / "run", epochs=1)
    cut = Run.open(tmp_path / "run").read_json("data.json")["truncated"]
    assert sum(cut.values()) == 7


def test_class_weights_reach_the_loss(base: Path, tmp_path: Path) -> None:
    uneven = tmp_path / "uneven.csv"
    uneven.write_text(
        "\n".join(["text,label", *(f"film {i} was {'ab'[i % 5 == 0]},{'ab'[i % 5 == 0]}" for i in range(80))])
    )
    for name, weighted in (("plain", False), ("weighted", True)):
        tuned(base, uneven, tmp_path / name, epochs=1, class_weights=weighted, fit_head=False, train={"log_every": 1})
    plain, weighted = (
        [r["loss"] for r in Run.open(tmp_path / n).read_lines("log.jsonl") if "loss" in r]
        for n in ("plain", "weighted")
    )
    assert plain != weighted


def test_a_resumed_run_needs_its_base_no_more(base: Path, reviews: Path, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    class Impatient(Watch):
        def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
            if done == 20:
                raise Enough

    train = {"batch_size": 8, "tensorboard": False, "lr": 3e-3}
    settings = {"base": str(base), "epochs": 6, "data": {"train": str(reviews)}, "train": train}
    cfg = parse(FinetuneConfig, settings)
    finetune(cfg, tmp_path / "whole")
    with pytest.raises(Enough):
        finetune(cfg, tmp_path / "run", watch=Impatient())
    shutil.rmtree(base)
    finetune(cfg, tmp_path / "run", resume=True)
    one, other = (tmp_path / name / "model" / "model.safetensors" for name in ("whole", "run"))
    assert one.read_bytes() == other.read_bytes()


def test_an_id_to_predict_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    houses = tmp_path / "houses.csv"
    houses.write_text("\n".join(["text,label", *(f"a house {i},id{i}" for i in range(200))]))
    with pytest.raises(DataError, match="an id, a name or a text"):
        tuned(base, houses, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_python_draws_the_curves_as_the_command_line_does(base: Path, reviews: Path, tmp_path: Path) -> None:
    tuned(base, reviews, tmp_path / "run", epochs=3)
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
