"""The head that fine-tuning begins with: a logistic regression on what the base makes of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from headstart.config import FinetuneConfig, PretrainConfig
from headstart.models.heads import ClassHead, mean_real
from headstart.schema import parse
from headstart.train import fit_head as module
from headstart.train.finetune import finetune
from headstart.train.fit_head import fit_head
from headstart.train.pretrain import pretrain


def rows(count: int, classes: int, seed: int) -> tuple[torch.Tensor, list[int]]:
    """Vectors of which the first numbers tell the class, on scales that differ, far from zero."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, classes, count)
    vectors = rng.normal(size=(count, 8)) + 2 * np.eye(8)[target]
    return torch.tensor(vectors * np.arange(1, 9) + 3, dtype=torch.float32), target.tolist()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_gives_the_probabilities_of_scikit_learn(classes: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLOOR", 0.0)  # then it is plain standardizing
    head, (vectors, target) = ClassHead(8, classes, mean_real, bias=bias), rows(200, classes, 0)
    head.weights.copy_(torch.tensor([1.0, 3.0, 2.0][:classes]))
    strength = fit_head(head, (vectors, target), rows(60, classes, 1))
    x = vectors.numpy()
    scaled = (x - bias * x.mean(0)) / x.std(0)
    importance = {0: 1.0, 1: 3.0, 2: 2.0}
    theirs = LogisticRegression(C=strength, class_weight=importance, max_iter=1000, fit_intercept=bias)
    theirs.fit(scaled, target)
    ours = head.eval().logits(vectors).softmax(-1).detach().numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(scaled), atol=1e-4)


def test_its_strength_is_the_one_that_validation_rows_choose() -> None:
    train, valid = rows(24, 2, 0), rows(400, 2, 1)
    hits = {}
    for strength in module.STRENGTHS:
        alone = ClassHead(8, 2, mean_real)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "STRENGTHS", (strength,))
            fit_head(alone, train, valid)
        said = alone.eval().logits(valid[0]).argmax(-1)
        hits[strength] = int((said == torch.tensor(valid[1])).sum())
    assert len(set(hits.values())) > 1
    assert fit_head(ClassHead(8, 2, mean_real), train, valid) == max(hits, key=lambda s: (hits[s], -s))
    assert fit_head(ClassHead(8, 2, mean_real), train, (valid[0][:0], [])) == module.USUAL


def test_a_class_without_rows_leaves_the_head_as_it_was() -> None:
    head, (vectors, target) = ClassHead(8, 3, mean_real), rows(40, 2, 0)
    before = head.linear.weight.clone()
    assert fit_head(head, (vectors, target), (vectors[:0], [])) is None
    assert torch.equal(head.linear.weight, before)


def test_many_rows_are_taken_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    chosen = module.rows_to_fit(1000)
    assert len(chosen) == len(set(chosen)) == 100
    assert 300 < np.mean(chosen) < 700  # a sorted file would give one class if they came from its beginning
    assert module.rows_to_fit(5) == [0, 1, 2, 3, 4]


def test_numbers_that_hardly_vary_are_not_blown_up() -> None:
    head, (vectors, target) = ClassHead(8, 2, mean_real), rows(200, 2, 0)
    fit_head(head, (1.0 + 1e-4 * vectors, target), (vectors[:0], []))
    assert head.linear.weight.abs().max() < 20


@pytest.mark.parametrize("scope", ["full", "head", "last:1"])
def test_a_pretrained_base_begins_with_a_fitted_head_and_can_do_without(
    scope: str, reviews: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line.rpartition(",")[0] for line in reviews.read_text().splitlines()[1:]))
    model = {"layers": 1, "heads": 1, "width": 96, "ff": 16, "context": 32}
    shared = {"objective": "masked", "start": "cooccurrence", "tokenizer": {"kind": "word"}, "model": model}
    pretrain(parse(PretrainConfig, {**shared, "data": {"paths": [str(text)], "unit": "line"},
                                    "train": {"steps": 0, "tensorboard": False}}), tmp_path / "base")  # fmt: skip
    given = {"base": str(tmp_path / "base"), "scope": scope, "pool": "mean", "epochs": 1,
             "data": {"train": str(reviews)}, "train": {"tensorboard": False, "lr": 1e-6}}  # fmt: skip
    accuracy = {}
    for name, changes in (("fitted", {}), ("random", {"fit_head": False}), ("scratch", {"init": "scratch"})):
        finetune(parse(FinetuneConfig, {**given, **changes}), tmp_path / name)
        log = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        accuracy[name] = next(r["accuracy"] for r in log if r["split"] == "valid")
        strength = json.loads((tmp_path / name / "receipt.json").read_text())["head_strength"]
        assert (strength is not None) == (name == "fitted")
    assert accuracy["fitted"] > 0.8 > max(accuracy["random"], accuracy["scratch"])
