"""What rows are labelled with: reading, encoding, and scores that are those of scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
)

from headstart.targets.labels import Labels, labels_in
from headstart.targets.numbers import Numbers
from headstart.targets.ordered import Ordered, in_order
from headstart.targets.target import Target

RNG = np.random.default_rng(3)
STARS = Ordered(("1", "2", "3", "4", "5"))
LABELS = Labels(("a", "b", "c"), "|")
NUMBERS = Numbers(50.0, 7.0)


def some(target: Target, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Random labels, and answers that are right more often than not."""
    match target.task:
        case "multilabel":
            truth = (RNG.random((rows, 3)) < [0.5, 0.3, 0.1]).astype(np.float32)
            return truth, np.where(RNG.random(truth.shape) < 0.8, truth, 1 - truth).astype(np.float32)
        case "regression":
            truth = RNG.normal(size=rows).astype(np.float32)
            return truth, truth + RNG.normal(size=rows)
    truth = RNG.integers(0, 5, rows)
    return truth, np.clip(truth + RNG.integers(-1, 2, rows), 0, 4)


def test_scores_of_several_labels_are_those_of_scikit_learn():
    truth, answers = some(LABELS)
    scores = LABELS.scores(truth, answers)
    assert scores["f1"] == pytest.approx(f1_score(truth, answers, average="micro"))
    assert scores["macro_f1"] == pytest.approx(f1_score(truth, answers, average="macro"))
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, answers))


def test_scores_of_numbers_are_those_of_scikit_learn_and_scipy_in_their_unit():
    truth, answers = some(NUMBERS)
    scores, known, said = NUMBERS.scores(truth, answers), 50 + 7 * truth.astype(float), 50 + 7 * answers
    assert scores["r2"] == pytest.approx(r2_score(known, said))
    assert scores["mae"] == pytest.approx(mean_absolute_error(known, said))
    assert scores["rmse"] == pytest.approx(root_mean_squared_error(known, said))
    assert scores["spearman"] == pytest.approx(spearmanr(known, said).statistic)


def test_scores_of_ordered_classes_are_those_of_scikit_learn_and_scipy():
    truth, answers = some(STARS)
    scores = STARS.scores(truth, answers)
    assert scores["kappa"] == pytest.approx(cohen_kappa_score(truth, answers, weights="quadratic"))
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, answers))
    assert scores["mae"] == pytest.approx(mean_absolute_error(truth, answers))
    assert scores["spearman"] == pytest.approx(spearmanr(truth, answers).statistic)


@pytest.mark.parametrize("target", [LABELS, NUMBERS, STARS], ids=lambda target: target.task)
def test_the_values_of_rows_have_the_score_as_their_mean_and_its_spread(target: Target):
    truth, answers = some(target, 600)
    picks = RNG.integers(0, 600, (300, 600))
    for score in target.titles:
        values = target.row_values(score, truth, answers)
        if values is None:
            assert score == "spearman"
            continue
        assert values.mean() == pytest.approx(target.scores(truth, answers)[score])
        again = [target.scores(truth[p], answers[p])[score] for p in picks]
        assert values.std(ddof=1) / np.sqrt(600) == pytest.approx(np.std(again), rel=0.2)


@pytest.mark.parametrize(
    ("cell", "separator", "found"),
    [
        ("a|b", "|", ["a", "b"]),
        (" a ; b;", ";", ["a", "b"]),
        ("a|a", "|", ["a"]),
        ("", "|", []),
        ('["x", "y z"]', "", ["x", "y z"]),
        ("['x', 'y']", "", ["x", "y"]),
        ("[]", "", []),
        ("[1, 2]", "", ["1", "2"]),
    ],
)
def test_labels_of_a_cell(cell: str, separator: str, found: list[str]):
    assert labels_in(cell, separator) == found


@pytest.mark.parametrize("cell", ["[1, [2]]", "[a, b]", "[" * 3000, "[1, 2", "[None]"])
def test_a_list_that_holds_no_texts_is_refused(cell: str):
    with pytest.raises(ValueError, match="list"):
        labels_in(cell)


def test_thresholds_are_fitted_where_a_label_is_frequent_and_shared_where_it_is_rare():
    outputs = RNG.random((400, 2)) * 0.2
    truth = np.zeros((400, 2), dtype=np.float32)
    truth[:50, 0], truth[:3, 1] = 1, 1
    outputs[:50, 0] += 0.2  # all above 0.2, none at 0.5
    outputs[:3, 1] += 0.5
    fitted = Labels(("often", "rare")).fitted(truth, outputs)
    assert fitted.scores(truth, fitted.answers(outputs))["f1"] == 1.0
    assert Labels(("often", "rare")).answers(outputs)[:, 0].sum() == 0  # what 0.5 finds
    assert 0.19 < fitted.thresholds[0] < 0.25


def test_what_is_written_can_be_read_again():
    for target, label, outputs in (
        (LABELS, "a|c", [0.9, 0.1, 0.7]),
        (NUMBERS, "57", [1.25]),
        (STARS, "4", [0.1, 0.1, 0.1, 0.6, 0.1]),
    ):
        answer = target.answers(np.array([outputs]))[0]
        record = target.record(label, answer, outputs)
        read, again = target.read(record)
        assert np.allclose(read, answer)
        assert np.allclose(again, outputs)
    assert NUMBERS.record("57", 1.25, [1.25]) == {"label": 57.0, "prediction": 58.75}


def test_ordered_classes_are_ordered_by_number_and_answered_by_the_median():
    assert in_order(["10", "9", "1", "9"]) == ("1", "9", "10")
    assert STARS.answers(np.array([[0.4, 0.0, 0.0, 0.3, 0.3]])).tolist() == [3]  # not the most probable


def test_rare_labels_are_in_every_part():
    cells = ["a"] * 40 + ["a|rare"] * 10
    assert set(Labels.of(cells, "|").strata(cells)[40:]) == {"rare"}
    assert Labels.of(cells, "|").counts(cells) == {"a": 50, "rare": 10}
