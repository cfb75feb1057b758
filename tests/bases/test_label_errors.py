"""Wrong labels by out-of-fold probabilities: counted as cleanlab counts them, found where they were planted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import check_grad

from headstart.bases import label_errors
from headstart.bases.label_errors import Floats, Ints, audited, confident_errors, pool_weights, pooled
from headstart.bases.out_of_fold import fold_numbers, out_of_fold, probe_model, tfidf_model

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")


def planted(rows: int, classes: int, seed: int, wrong: float = 0.05) -> tuple[Floats, Ints, Ints]:
    """Two models of different strength, noisy labels, and the true ones."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    labels = np.where(rng.random(rows) < wrong, (truth + rng.integers(1, classes, rows)) % classes, truth)
    models = []
    for strength in (2.5, 0.3):
        logits = rng.normal(size=(rows, classes))
        logits[np.arange(rows), truth] += strength
        models.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    return np.stack(models), labels, truth


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_count_is_that_of_confident_learning(classes: int, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = pytest.importorskip("cleanlab.count")
    models, labels, _ = planted(400, classes, seed)
    joint = count.compute_confident_joint(labels, models[0], calibrate=False)
    assert confident_errors(models[0], labels) == joint.sum() - np.trace(joint) > 0


def test_a_model_that_knows_nothing_has_no_weight() -> None:
    models, labels, _ = planted(2000, 3, 0)
    chance = np.random.default_rng(1).dirichlet(np.ones(3), 2000)
    weights = pool_weights(np.stack([models[0], chance]), labels)
    assert weights[0] > 0.3
    assert weights[1] < 0.1


def test_the_weights_are_where_the_loss_is_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    models, labels, _ = planted(300, 3, 0)
    rows = np.arange(300)

    def loss(weights: Floats) -> float:
        return float(-np.log(pooled(models, weights)[rows, labels]).mean())

    best = pool_weights(models, labels)
    for step in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        assert loss(np.maximum(best + step, 0)) >= loss(best) - 1e-9
    seen = []
    monkeypatch.setattr("scipy.optimize.minimize", lambda f, *_, **__: seen.append(f) or _Found())
    pool_weights(models, labels)
    assert check_grad(lambda w: seen[0](w)[0], lambda w: seen[0](w)[1], np.array([0.7, 0.4])) < 1e-6


class _Found:
    x = np.array([1.0, 1.0])


def test_planted_errors_come_first_and_better_than_by_the_mean() -> None:
    gains = []
    for seed in range(5):
        models, labels, truth = planted(1500, 3, seed)
        found = audited(models[:, None], labels)
        wrong = labels != truth
        hits = wrong[found.flagged]
        assert hits.mean() > 0.5
        assert hits.sum() / wrong.sum() > 0.6
        assert (found.suggested[found.flagged][hits] == truth[found.flagged][hits]).mean() > 0.9
        assert (np.diff(found.margin[found.flagged]) <= 0).all()
        plain = models.mean(0)
        others = plain.copy()
        others[np.arange(1500), labels] = -1
        order = np.argsort(plain[np.arange(1500), labels] - others.max(1))[: len(found.flagged)]
        gains.append(hits.sum() - wrong[order].sum())
    assert min(gains) >= 0
    assert sum(gains) > 5


def test_only_judged_rows_are_flagged_and_votes_are_counted() -> None:
    models, labels, _ = planted(400, 3, 0)
    judged = np.arange(400) % 2 == 0
    found = audited(models[:, None], labels, judged)
    assert len(found.flagged)
    assert judged[found.flagged].all()
    i = found.flagged[0]
    assert found.votes[i] == sum(int(model[i].argmax() == found.suggested[i]) for model in models)


def test_a_model_cannot_forbid_a_class() -> None:
    found = pooled(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([1.0, 1.0]))
    assert_allclose(found, [[0.5, 0.5]])
    assert label_errors.LEAST > 0


# --- out of fold


@pytest.fixture
def texts() -> list[str]:
    return [f"film {i % 50} was {(GOOD if i % 2 else BAD)[i // 2 % 4]}" for i in range(120)]


@pytest.fixture
def labels() -> Ints:
    return np.array([i % 2 for i in range(120)])


def test_duplicates_are_in_one_fold_and_classes_in_all(texts: list[str], labels: Ints) -> None:
    again = [*texts, *(text.upper() + " " for text in texts[:40])]
    folds = fold_numbers(again, np.concatenate([labels, labels[:40]]), seed=0)
    assert (folds[120:] == folds[:40]).all()
    for fold in range(5):
        assert set(labels[folds[:120] == fold]) == {0, 1}
    assert (fold_numbers(again[::-1], np.concatenate([labels, labels[:40]])[::-1], 0)[::-1] == folds).all()
    assert (fold_numbers(again, np.concatenate([labels, labels[:40]]), 1) != folds).any()


@pytest.mark.parametrize("kind", ["tfidf", "probe"])
def test_the_label_of_a_row_does_not_touch_its_own_probabilities(texts: list[str], labels: Ints, kind: str) -> None:
    folds = fold_numbers(texts, labels, 0)
    vectors = {"mean": np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)}
    fold = np.flatnonzero(folds == folds[7])

    def probabilities(of: Ints) -> Floats:
        model = tfidf_model(texts, of, 2) if kind == "tfidf" else probe_model(vectors, of, 2)
        return next(iter(model(np.flatnonzero(folds != folds[7]), fold).values()))

    changed = labels.copy()
    changed[fold] = 1 - changed[fold]
    assert_allclose(probabilities(changed), probabilities(labels))


def test_the_setting_is_kept_that_makes_the_labels_most_probable(labels: Ints) -> None:
    right, wrong = np.eye(2)[labels] * 0.8 + 0.1, np.eye(2)[1 - labels] * 0.8 + 0.1
    found = out_of_fold(lambda train, test: {"a": wrong[test], "b": right[test]}, labels, 2, np.arange(120) % 5)
    assert_allclose(found, right)
