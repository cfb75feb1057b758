"""Numbers and several labels per text by scikit-learn's conventions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score, r2_score

from headstart import MultiLabelClassifier, TextClassifier, TextRegressor
from headstart.errors import DataError, UserError

SMALL = {"model": {"size": "nano"}, "tokenizer": {"kind": "word"}, "train": {"threads": 1}}
WORDS = {"awful": -2.0, "bad": -1.0, "good": 1.0, "great": 2.0}
X = [
    f"it was {a} and {b} on day {i}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS for _ in range(10))
]
Y = [WORDS[x.split()[2]] + WORDS[x.split()[4]] for x in X]
SEVERAL = [[word for word in WORDS if word in x] for x in X]


def test_a_regressor_learns_clones_saves_and_loads(tmp_path: Path):
    model = clone(TextRegressor(epochs=25, lr=3e-3, settings=SMALL)).fit(X, Y)
    found = model.predict(X)
    assert found.shape == (len(X),)
    assert model.score(X, Y) == pytest.approx(r2_score(Y, found))
    assert model.score(X, Y) > 0.7
    model.save(tmp_path / "saved")
    assert TextRegressor.load(tmp_path / "saved").predict(X[:5]) == pytest.approx(found[:5])
    with pytest.raises(UserError, match="regression, not multilabel"):
        MultiLabelClassifier.load(tmp_path / "saved")


@pytest.mark.parametrize("matrix", [False, True])
def test_several_labels_come_as_names_or_as_a_matrix(matrix: bool):
    names = sorted(WORDS)
    truth = np.array([[int(name in row) for name in names] for row in SEVERAL])
    model = MultiLabelClassifier(epochs=25, lr=3e-3, settings=SMALL).fit(X, truth if matrix else SEVERAL)
    assert model.classes_.tolist() == ([0, 1, 2, 3] if matrix else names)
    assert model.predict_proba(X).shape == truth.shape
    assert f1_score(truth, model.predict(X), average="micro") > 0.8


def test_what_is_no_number_and_no_list_of_labels_is_refused():
    with pytest.raises(DataError, match=r"y\[1\] is nan"):
        TextRegressor().fit(X[:3], [1.0, float("nan"), 2.0])
    with pytest.raises(DataError, match="a list of labels"):
        MultiLabelClassifier().fit(X[:3], ["a", "b", "c"])
    with pytest.raises(DataError, match="0 and 1"):
        MultiLabelClassifier().fit(X[:3], np.array([[0, 2], [1, 0], [1, 1]]))


def test_a_classifier_refuses_amounts():
    with pytest.raises(DataError, match="different numbers"):
        TextClassifier().fit(X, [float(i) * 1.5 for i in range(len(X))])
