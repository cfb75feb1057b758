"""The arm ensemble: a linear probe and zero-shot scores in one pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from headstart.study.ensemble import PENALTY, fit_probe
from headstart.study.joined import fit_pool
from headstart.study.plan import Arm, BaseRun
from headstart.targets.classes import Classes

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
ROWS = RNG.normal(size=(60, 8)) + np.eye(3, 8)[LABELS]
TRUE = np.eye(3)[LABELS] - 1 / 3  # (60, 3) centred scores that are right
NOISE = RNG.normal(size=(60, 3))


def test_scores_of_the_probe_are_out_of_fold_as_scikit_learn_has_them() -> None:
    _, found = fit_probe(Classes(("a", "b", "c")), ROWS, LABELS)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    theirs = cross_val_predict(LogisticRegression(C=1.0, max_iter=1000), ROWS, LABELS, cv=folds, method="predict_log_proba")  # fmt: skip
    assert found is not None
    np.testing.assert_allclose(found, theirs - theirs.mean(1, keepdims=True), atol=1e-6)


def test_a_class_of_one_row_has_no_scores_out_of_fold() -> None:
    few = np.array([0, 1, 1, 2, 2])
    probe, found = fit_probe(Classes(("a", "b", "c")), ROWS[:5], few)
    assert found is None
    assert probe.outputs(ROWS, Classes(("a", "b", "c"))).shape == (60, 3)


@pytest.mark.parametrize(("rows", "least"), [(6, 1.0), (60, 2.0)])
def test_the_better_of_two_weighs_more_the_more_rows_say_so(rows: int, least: float) -> None:
    good, bad = fit_pool(np.array([TRUE, NOISE])[:, :rows], LABELS[:rows], PENALTY)
    assert good > least * bad


def test_with_all_labels_nothing_in_it_is_drawn() -> None:
    arm = Arm("ensemble", "ensemble", BaseRun("b", Path("b"), ""), BaseRun("l", Path("l"), ""))
    assert [arm.varies(labels) for labels in (0, 8)] == [False, True]
    assert replace(arm, name="stack", kind="stack").varies(0)  # its fine-tuned model is


def test_two_that_are_alike_weigh_the_same() -> None:
    one, other = fit_pool(np.array([TRUE, TRUE]), LABELS, PENALTY)
    assert one == pytest.approx(other)
