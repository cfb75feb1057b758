"""Linear probing before fine-tuning: the head that training begins with, and the pooling that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from headstart.bases import linear_probe as module
from headstart.bases import regression
from headstart.bases.linear_probe import Probe, best_probe, fit_probes, install
from headstart.bases.regression import clearly_better, fit_regression, held_out_hits
from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ModelError
from headstart.jobs.finetune import finetune
from headstart.jobs.pretrain import pretrain
from headstart.models.heads import ClassHead, mean_real
from headstart.schema import parse

Rows = tuple[torch.Tensor, list[int]]


def rows(count: int, classes: int, seed: int) -> Rows:
    """Vectors of which the first numbers tell the class, on scales that differ, far from zero."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, classes, count)
    vectors = rng.normal(size=(count, 8)) + 2 * np.eye(8)[target]
    return torch.tensor(vectors * np.arange(1, 9) + 3, dtype=torch.float32), target.tolist()


def none() -> Rows:
    return torch.zeros(0, 8), []


def fitted(head: ClassHead, train: Rows, valid: Rows | None = None) -> Probe:
    (probe,) = fit_probes(head, ["mean"], lambda pool: (train, valid or none()))
    install(head, probe)
    return probe


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_gives_the_probabilities_of_scikit_learn(classes: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "FLOOR", 0.0)  # then it is plain standardizing
    head, (vectors, target) = ClassHead(8, classes, mean_real, bias=bias), rows(200, classes, 0)
    head.weights.copy_(torch.tensor([1.0, 3.0, 2.0][:classes]))
    probe = fitted(head, (vectors, target), rows(60, classes, 1))
    x = vectors.numpy()
    scaled = (x - bias * x.mean(0)) / x.std(0)
    importance = {0: 1.0, 1: 3.0, 2: 2.0}
    theirs = LogisticRegression(C=probe.c, class_weight=importance, max_iter=1000, fit_intercept=bias)
    theirs.fit(scaled, target)
    ours = head.eval().logits(vectors).softmax(-1).detach().numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(scaled), atol=1e-4)


def hidden_rule(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class depends on small numbers behind large ones that mean nothing: a strong prior cannot see it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6)) * np.array([0.05, 0.05, 1, 1, 1, 1])
    return x, (x[:, 0] + x[:, 1] > 0).astype(int)


def test_c_is_chosen_by_cross_validation_where_validation_rows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    train, few = hidden_rule(300, 0), hidden_rule(40, 1)
    found = fit_regression(train, few, (0.01, 100.0), usual=0.01)
    assert found.c == 100.0
    assert len(found.hits) == 300  # each training row was held out once
    monkeypatch.setattr(regression, "ENOUGH", 40)
    assert len(fit_regression(train, few, (0.01, 100.0), usual=0.01).hits) == 40


def test_the_usual_c_stays_unless_another_is_better_by_a_standard_error() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 6)), rng.integers(0, 2, 60)
    for usual in (0.01, 1.0):
        assert fit_regression(noise, None, (0.01, 1.0), usual).c == usual


def test_a_class_of_one_row_cannot_be_held_out_and_takes_the_usual_c() -> None:
    x, y = hidden_rule(30, 0)
    y[:] = 0
    y[3] = 1
    found = fit_regression((x, y), None, (0.01, 1.0), usual=0.01)
    assert (found.c, len(found.hits)) == (0.01, 0)


def test_held_out_hits_are_those_of_scikit_learn() -> None:
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    x, y = hidden_rule(100, 0)
    model, folds = LogisticRegression(C=10.0), StratifiedKFold(5, shuffle=True, random_state=0)
    assert held_out_hits(model, (x, y), None).mean() == pytest.approx(cross_val_score(model, x, y, cv=folds).mean())


def test_a_class_without_rows_leaves_the_head_as_it_was() -> None:
    head, (vectors, target) = ClassHead(8, 3, mean_real), rows(40, 2, 0)
    assert fit_probes(head, ["mean"], lambda pool: ((vectors, target), none())) == ()


@pytest.mark.parametrize("large", [float("nan"), float("inf"), 1e30])
def test_a_base_that_overflows_is_told(large: float) -> None:
    vectors, target = rows(40, 2, 0)
    vectors[3, 3] = large
    with pytest.raises(ModelError, match=r"not finite, or far too large\. Is the base damaged\?"):
        fitted(ClassHead(8, 2, mean_real), (vectors, target))


def test_many_rows_are_taken_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    chosen = module.rows_to_fit(1000)
    assert len(chosen) == len(set(chosen)) == 100
    assert 300 < np.mean(chosen) < 700  # a sorted file would give one class if they came from its beginning
    assert module.rows_to_fit(5) == [0, 1, 2, 3, 4]


def test_the_same_rows_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []
    fit = module._fit
    monkeypatch.setattr(module, "_fit", lambda head, pool, *rows: (fitted.append(pool), fit(head, pool, *rows))[1])
    monkeypatch.setattr(module, "_FITTED", {})
    rng = np.random.default_rng(0)
    features, target = torch.tensor(rng.normal(size=(24, 4)), dtype=torch.float32), np.arange(24) % 2
    rows, none = (features, target), (features[:0], target[:0])

    def probe(weight: float = 1.0, rows: tuple[torch.Tensor, np.ndarray] = rows) -> Probe:
        head = ClassHead(4, 2, mean_real)
        head.weights.fill_(weight)
        return fit_probes(head, ["mean"], lambda pool: (rows, none))[0]

    one, again = probe(), probe()
    assert np.array_equal(one.weight, again.weight)
    assert len(fitted) == 1
    probe(2.0)
    probe(rows=(features, target[::-1].copy()))
    probe(rows=(features + 1, target))
    assert len(fitted) == 4
    for i in range(2 * module.KEPT):
        probe(3.0 + i)
    assert len(module._FITTED) == module.KEPT


def test_numbers_that_hardly_vary_are_not_blown_up() -> None:
    head, (vectors, target) = ClassHead(8, 2, mean_real), rows(200, 2, 0)
    fitted(head, (1.0 + 1e-4 * vectors, target))
    assert head.linear.weight.abs().max() < 20


def probe(pool: str, right: int, rows: int) -> Probe:
    hits = np.arange(rows) < right
    return Probe(pool, 1.0, np.zeros((2, 2)), np.zeros(2), hits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "own", "other", "chosen"),
    [
        (400, 260, 260, "mean"),
        (400, 260, 261, "mean"),  # one row is no more than one standard error
        (400, 260, 270, "cls"),
        (60, 40, 43, "mean"),  # with few rows two standard errors are asked for
        (60, 40, 50, "cls"),
        (0, 0, 0, "mean"),
    ],
)
def test_the_usual_pooling_stays_unless_another_is_clearly_better(rows: int, own: int, other: int, chosen: str) -> None:
    assert best_probe([probe("mean", own, rows), probe("cls", other, rows)]).pool == chosen


def test_better_is_a_matter_of_the_same_rows() -> None:
    a, b = np.array([True] * 6 + [False] * 4), np.array([True] * 4 + [False] * 6)
    assert clearly_better(a, b)
    assert not clearly_better(b, a)
    assert not clearly_better(a, a)


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
    given = {"base": str(tmp_path / "base"), "scope": scope, "epochs": 1,
             "data": {"train": str(reviews)}, "train": {"tensorboard": False, "lr": 1e-6}}  # fmt: skip
    accuracy = {}
    for name, changes in (("fitted", {}), ("random", {"fit_head": False}), ("scratch", {"init": "scratch"})):
        finetune(parse(FinetuneConfig, {**given, **changes}), tmp_path / name)
        log = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        accuracy[name] = next(r["accuracy"] for r in log if r["split"] == "valid")
        receipt = json.loads((tmp_path / name / "receipt.json").read_text())
        assert (receipt["head_strength"] is not None) == (name == "fitted")
        assert receipt["pool"] == "mean"
        assert set(receipt["probe_accuracy"]) == (set() if name == "scratch" else {"mean", "cls"})
    assert accuracy["fitted"] > 0.8 > max(accuracy["random"], accuracy["scratch"])
