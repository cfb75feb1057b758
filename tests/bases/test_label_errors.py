"""Wrong labels by out-of-fold probabilities: counted as cleanlab counts them, found where they were planted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import check_grad

from headstart.bases import label_errors
from headstart.bases.label_errors import (
    Floats,
    Ints,
    audited,
    audited_labels,
    audited_numbers,
    confident_errors,
    pool_weights,
    pooled,
)
from headstart.bases.out_of_fold import fold_numbers, misfit, out_of_fold, probe_model, tfidf_model
from headstart.targets.classes import Classes
from headstart.targets.labels import Labels
from headstart.targets.numbers import Numbers

TWO = Classes(("no", "yes"))
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


def test_a_class_that_is_predicted_with_less_confidence_is_not_suspected_more() -> None:
    probabilities = np.array([[0.9, 0.1]] * 20 + [[0.4, 0.6]] * 20 + [[0.55, 0.45], [0.45, 0.55]])
    labels = np.array([0] * 20 + [1] * 20 + [1, 0])
    found = audited(probabilities[None, None], labels)
    assert found.margin[41] > found.margin[40]  # equally far from their labels, but 0.55 is much for class 1


def test_a_model_cannot_forbid_a_class() -> None:
    found = pooled(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([1.0, 1.0]))
    assert_allclose(found, [[0.5, 0.5]])
    assert label_errors.LEAST > 0


def several(rows: int = 600) -> tuple[Floats, Floats, Floats]:
    """Two models of three labels, one of them rare, (M, 1, N, L); labels of which every twentieth is flipped; the right ones."""
    rng = np.random.default_rng(0)
    truth = (rng.random((rows, 3)) < [0.5, 0.3, 0.05]).astype(float)
    labels = np.where(rng.random(truth.shape) < 0.05, 1 - truth, truth)
    logits = np.stack([rng.normal(size=truth.shape) + strength * (2 * truth - 1) for strength in (3.0, 0.3)])
    return (1 / (1 + np.exp(-logits)))[:, None], labels, truth


def test_of_several_labels_each_is_judged_as_if_it_were_alone() -> None:
    models, labels, truth = several()
    found = audited_labels(models, labels, np.ones(3, dtype=bool))
    for i in range(3):
        alone = audited(np.stack([1 - models[..., i], models[..., i]], axis=-1), labels[:, i].astype(int))
        assert set(np.flatnonzero(found.suggested[:, i] != labels[:, i])) == set(alone.flagged)
    changed = (found.suggested != labels).any(1)
    assert sorted(found.flagged) == np.flatnonzero(changed).tolist()
    assert (np.diff(found.margin[found.flagged]) <= 0).all()
    assert (found.suggested[found.flagged] == truth[found.flagged]).all(1).mean() > 0.8
    assert (found.confidence[found.flagged] > 0.5).all()


def test_a_label_that_is_not_judged_stays_as_it_is() -> None:
    models, labels, _ = several()
    found = audited_labels(models, labels, np.array([True, False, True]))
    assert (found.suggested[:, 1] == labels[:, 1]).all()
    assert len(audited_labels(models, labels, np.zeros(3, dtype=bool)).flagged) == 0


def test_numbers_far_from_what_is_expected_are_found_and_normal_errors_are_not() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=800)
    models = np.stack([truth + rng.normal(size=800) * size for size in (0.3, 2.0)])[:, None]
    assert len(audited_numbers(models, truth).flagged) <= 2
    wrong = rng.choice(800, 40, replace=False)
    given = truth.copy()
    given[wrong] += 5.0 * np.sign(rng.normal(size=40))
    found = audited_numbers(models, given)
    assert set(wrong) <= set(found.flagged.tolist())
    assert len(found.flagged) <= 43
    assert np.abs(found.suggested[wrong] - truth[wrong]).mean() < 0.5
    assert found.weights[0] > 5 * found.weights[1] >= 0
    assert (np.diff(found.margin[found.flagged]) <= 0).all()
    assert (found.votes[wrong] >= 1).all()


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
        model = tfidf_model(texts, TWO, of) if kind == "tfidf" else probe_model(vectors, TWO, of)
        return next(iter(model(np.flatnonzero(folds != folds[7]), fold).values()))

    changed = labels.copy()
    changed[fold] = 1 - changed[fold]
    assert_allclose(probabilities(changed), probabilities(labels))


def test_the_setting_is_kept_that_makes_the_labels_most_probable(labels: Ints) -> None:
    right, wrong = np.eye(2)[labels] * 0.8 + 0.1, np.eye(2)[1 - labels] * 0.8 + 0.1
    found = out_of_fold(lambda train, test: {"a": wrong[test], "b": right[test]}, TWO, labels, np.arange(120) % 5)
    assert_allclose(found, right)


@pytest.mark.parametrize(
    ("target", "truth", "good", "bad"),
    [
        (Classes(("a", "b", "c")), np.array([0, 2]), [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]),
        (Labels(("a", "b")), np.array([[0, 1], [1, 1.0]]), [[0.1, 0.9], [0.9, 0.9]], [[0.9, 0.9], [0.9, 0.9]]),
        (Numbers(0.0, 1.0), np.array([1.0, -1.0]), [[0.9], [-1.0]], [[0.9], [1.0]]),
    ],
    ids=["classes", "labels", "numbers"],
)  # fmt: skip
def test_outputs_that_are_closer_to_the_labels_fit_better(target, truth, good, bad) -> None:
    assert misfit(target, truth, np.array(good)) < misfit(target, truth, np.array(bad))
