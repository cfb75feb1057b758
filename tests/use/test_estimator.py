"""The estimators behave as scikit-learn expects of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import headstart
from headstart import LanguageModel, TextClassifier
from headstart.errors import Stopped, UserError
from headstart.runs.run import Run
from headstart.use import estimator

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
X = [f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]} to the end" for i in range(48)]
Y = [i % 2 for i in range(48)]
SMALL = {"model": {"size": "nano"}, "tokenizer": {"kind": "word"}}


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return LanguageModel(steps=30, batch_size=8, unit="line", settings=SMALL).fit(X)


def test_the_whole_transfer_is_two_calls(language: LanguageModel, tmp_path: Path) -> None:
    model = TextClassifier(base=language, epochs=8, lr=3e-3).fit(X, Y)
    assert model.score(X, Y) > 0.9
    rows = model.predict_proba(X[:5])
    assert rows.shape == (5, 2)
    assert np.allclose(rows.sum(1), 1)
    assert model.predict(X[:5]).tolist() == model.classes_[rows.argmax(1)].tolist()
    assert set(model.predict(X).tolist()) == {0, 1}  # labels as they were given, not as texts

    model.save(tmp_path / "saved")
    again = TextClassifier.load(tmp_path / "saved")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert not list(tmp_path.rglob("*.pkl"))
    with pytest.raises(UserError, match="already exists"):
        model.save(tmp_path / "saved")
    assert language.generate("film", tokens=3)["tokens"]


def test_a_clone_is_not_fitted_and_has_the_same_parameters(language: LanguageModel) -> None:
    model = TextClassifier(base=language, epochs=3, seed=7)
    copy = clone(model)
    assert copy.get_params(deep=False) == model.get_params(deep=False)
    assert copy.base is language  # fitted as it is: what it knows is a parameter
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert clone(LanguageModel(steps=5)).get_params() == LanguageModel(steps=5).get_params()


def test_it_works_in_a_pipeline_and_in_a_search(language: LanguageModel) -> None:
    pipeline = Pipeline([("lower", FunctionTransformer(lambda texts: [t.lower() for t in texts])),
                         ("model", TextClassifier(base=language, lr=3e-3))])  # fmt: skip
    search = GridSearchCV(pipeline, {"model__epochs": [1, 8]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_score_ > 0.8
    assert search.predict(X).shape == (48,)


def test_wrong_lengths_are_one_sentence(language: LanguageModel) -> None:
    with pytest.raises(UserError, match="48 texts and 47 labels"):
        TextClassifier(base=language).fit(X, Y[1:])


@pytest.mark.parametrize("gap", [None, float("nan"), np.nan, 7])
def test_a_gap_among_the_texts_is_told_with_its_place(gap: object) -> None:
    told = rf"^X\[1\] is {gap}, not a text\. Fill the gap, or leave the row out\.$"
    texts = ["fine", gap, "fine"]
    with pytest.raises(UserError, match=told):
        TextClassifier().fit(texts, [0, 1, 0])
    with pytest.raises(UserError, match=told):
        LanguageModel().fit(texts)


def test_a_gap_among_the_texts_to_label_is_told_with_its_place(language: LanguageModel) -> None:
    fitted = TextClassifier(base=language, train="head", epochs=1).fit(X[:8], Y[:8])
    with pytest.raises(UserError, match=r"^X\[0\] is None, not a text"):
        fitted.predict([None, "fine"])


@pytest.mark.parametrize("labels", [np.float32([0.1, 0.2]), [1, 2.0]])
def test_labels_come_back_as_they_were_given(labels: Any, language: LanguageModel) -> None:
    fitted = TextClassifier(base=language, train="head", epochs=1).fit(X[:8], [labels[i] for i in Y[:8]])
    assert fitted.classes_.tolist() == sorted(np.asarray(labels).tolist())
    assert set(fitted.predict(X[:8]).tolist()) <= set(fitted.classes_.tolist())


def test_one_text_is_refused_and_none_gives_no_rows(language: LanguageModel) -> None:
    fitted = TextClassifier(base=language, train="head", epochs=1).fit(X[:8], Y[:8])
    with pytest.raises(UserError, match=r"^X is one text, not several\. Give a list: \[text\]\.$"):
        fitted.predict("a film")
    assert fitted.predict_proba([]).shape == (0, 2)
    assert fitted.predict([]).tolist() == []


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_row_without_a_label_is_told_with_its_place(gap: object) -> None:
    with pytest.raises(UserError, match=rf"^y\[2\] is {gap}: every row needs a label\.$"):
        TextClassifier().fit(["a", "b", "c"], [0, 1, gap])


def test_a_fit_that_is_stopped_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Stopped("at step 3 of 30", 2)

    monkeypatch.setattr(estimator, "run_job", stopped)
    with pytest.raises(Stopped, match=r"^Stopped at step 3 of 30; nothing of it is kept\. fit begins anew\.$"):
        LanguageModel().fit(X)


def test_the_public_names_are_these() -> None:
    assert headstart.TextClassifier is TextClassifier


def test_python_chooses_the_objective_and_the_minutes_as_the_command_line_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        "headstart.jobs.recipe.within_minutes",
        lambda cfg, minutes: (
            asked.append(minutes),
            cfg.model_copy(update={"train": cfg.train.model_copy(update={"steps": 2})}),
        )[1],
    )
    model = LanguageModel(objective="auto", unit="line", settings={"train": {"threads": 1}}).fit(X)
    config = Run.open(model.folder_.run).config
    assert (config.objective, config.train.steps, config.start) == ("masked", 2, "random")
    LanguageModel(minutes=0.5, unit="line", settings=SMALL).fit(X)
    assert asked == [10.0, 0.5]
    with pytest.raises(UserError, match="steps and minutes"):
        LanguageModel(steps=5, minutes=1).fit(X)
