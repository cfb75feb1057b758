"""Arms that join a base with TF-IDF, and the baseline of word vectors: proper probabilities, nothing fitted to test rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.sparse import hstack
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from headstart.bases.regression import ENOUGH, Standard, held_out_likelihood
from headstart.config import PretrainConfig
from headstart.errors import ConfigError
from headstart.jobs.pretrain import pretrain
from headstart.schema import parse
from headstart.study import joined
from headstart.study.baselines import CS, USUAL_C, static, tfidf_rows
from headstart.study.figures import looks
from headstart.study.joined import PENALTY, fit_hybrid, fit_pool, log_linear
from headstart.study.plan import StudyConfig
from headstart.study.study import Study
from headstart.text.read import Example
from headstart.text.split import Labelled

GOOD, BAD = ("lovely", "warm", "bright", "clever"), ("awful", "cold", "dull", "stupid")
ARMS = ("tfidf", "static", "frozen", "full", "hybrid", "stack")


def example(i: int) -> Example:
    return Example(f"film {i} was {(GOOD if i % 2 else BAD)[i // 2 % 4]}", "1" if i % 2 else "0")  # numerals are names


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pretrained word vectors in which one dimension is praise."""
    rng = np.random.default_rng(0)
    lines = [f"{word} {1 if word in GOOD else -1} {rng.normal():.3f} {rng.normal():.3f}" for word in (*GOOD, *BAD)]
    path = tmp_path_factory.mktemp("vectors") / "words.vec"
    path.write_text("\n".join([*lines, "film 0 1 0", "was 0 0 1"]) + "\n")
    return path


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, vectors: Path) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("settings")
    (folder / "rows.csv").write_text(
        "\n".join(["text,label", *(f"{e.text},{e.label}" for e in map(example, range(300)))])
    )
    (folder / "text.txt").write_text("\n".join(example(i).text for i in range(60)))
    tiny = {"data": {"paths": [str(folder / "text.txt")], "unit": "line"}, "model": {"size": "nano", "context": 16},
            "train": {"steps": 2, "batch_size": 8, "threads": 1, "tensorboard": False}}  # fmt: skip
    pretrain(parse(PretrainConfig, tiny), folder / "base")
    return {"data": {"train": str(folder / "rows.csv")}, "bases": [str(folder / "base")], "arms": ARMS, "seeds": 2,
            "labels": [30, 0], "rates": [0.01], "least_steps": 4, "static_vectors": str(vectors),
            "finetune": {"epochs": 1, "train": {"threads": 1}}}  # fmt: skip


@pytest.fixture(scope="module")
def study(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study.run(parse(StudyConfig, settings), tmp_path_factory.mktemp("studies") / "study")


def test_every_arm_is_in_the_table_the_figures_the_verdict_and_the_page(study: Study) -> None:
    results = study.results
    assert not results.failures
    assert {(arm.name, arm.labels) for arm in results.arms} == {(name, n) for name in ARMS for n in (30, 240)}
    seeds = {arm.name: arm.seeds for arm in results.at(240)}
    assert seeds == {"tfidf": 1, "static": 1, "frozen": 2, "full": 2, "hybrid": 1, "stack": 2}
    assert {arm.seeds for arm in results.at(30)} == {2}
    compared = {(d.a, d.b) for d in results.differences}
    assert compared == {*((arm, "tfidf") for arm in ARMS[1:]), ("hybrid", "frozen"), ("stack", "full")}
    assert set(results.curves) == {receipt.arm for receipt in results.receipts} == {"frozen", "full"}
    page = study.page.read_text()
    assert all(f"<bdi>{arm}</bdi>" in page for arm in ARMS)
    assert set(looks(results)) == set(ARMS)
    assert study.verdict.startswith("At all 240 labels there is no clear difference between full and TF-IDF.")


def test_probabilities_are_proper_and_under_the_names_of_the_labels(study: Study) -> None:
    for cell in (path for path in (study.folder / "cells").iterdir() if path.name.startswith(("hyb", "sta"))):
        records = [json.loads(line) for line in (cell / "predictions.jsonl").read_text().splitlines()]
        for record in records:
            assert set(record["probabilities"]) == {"0", "1"}
            assert sum(record["probabilities"].values()) == pytest.approx(1)
            assert record["prediction"] == max(record["probabilities"], key=record["probabilities"].get)


def test_words_that_tell_the_label_are_enough_for_all_but_the_base(study: Study) -> None:
    scores = {arm.name: arm.mean for arm in study.results.at(240)}
    assert scores["tfidf"] == scores["static"] == scores["hybrid"] == scores["stack"] == 1.0


def test_exponents_are_fitted_where_there_are_validation_rows_and_even_otherwise(study: Study) -> None:
    few, many = (
        json.loads((study.folder / "cells" / f"stack-base~{n}~0" / "result.json").read_text()) for n in (30, "all")
    )
    assert few["exponents"] == {"full": 0.5, "tfidf": 0.5}
    assert many["exponents"]["tfidf"] > 0.5
    assert not (study.folder / "cells" / "full-base~30~0" / "valid_predictions.jsonl").exists()
    lines = (study.folder / "cells" / "full-base~all~0" / "valid_predictions.jsonl").read_text().splitlines()
    assert len(lines) == study.results.data.rows["valid"]


def test_stack_is_added_to_a_study_that_had_full_already(settings: dict[str, Any], tmp_path: Path) -> None:
    first = {**settings, "arms": ["tfidf", "full"], "labels": [0], "seeds": 1}
    Study.run(parse(StudyConfig, first), tmp_path / "study")
    again = Study.run(parse(StudyConfig, {**first, "arms": ["tfidf", "full", "stack"]}), tmp_path / "study")
    assert not again.results.failures
    assert again.results.arm_names == ["tfidf", "full", "stack"]


def test_stack_without_full_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the arm stack joins the scores of the arm full"):
        parse(StudyConfig, {**settings, "arms": ["tfidf", "stack"]})


def test_the_frozen_base_reads_the_rows_once_for_both_of_its_arms(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headstart.bases.features import FrozenFeatures

    made, original = [], FrozenFeatures._made
    monkeypatch.setattr(FrozenFeatures, "_made", lambda self, texts: made.append(1) or original(self, texts))
    arms = ["tfidf", "frozen", "hybrid"]
    Study.run(parse(StudyConfig, {**settings, "arms": arms, "labels": [0], "seeds": 1}), tmp_path / "study")
    assert len(made) == 1


# --- the pool


def scores(rows: int, seed: int = 0) -> np.ndarray:
    """Log-probabilities by two models of rows with three classes; the first model knows class 0."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, rows, 3))
    logits[0, :, 0] += 1.5
    return np.log(softmax(logits, axis=2))


def test_the_fitted_pool_has_no_slope_left() -> None:
    found, target = scores(50), np.zeros(50, dtype=np.int64)
    exponents = fit_pool(found, target)

    def loss(w: np.ndarray) -> float:
        return float(-log_linear(found, w)[:, 0].sum() + PENALTY / 2 * np.square(w - 0.5).sum())

    assert np.abs(approx_fprime(exponents, loss, 1e-6)).max() < 0.05
    assert exponents[0] > exponents[1]


def test_a_pool_of_one_row_stays_near_even() -> None:
    assert np.abs(fit_pool(scores(1), np.zeros(1, dtype=np.int64)) - 0.5).max() < 1.5


def test_a_pool_of_equals_is_either_of_them() -> None:
    same = np.repeat(scores(5)[:1], 2, axis=0)
    assert np.allclose(log_linear(same, np.full(2, 0.5)), same[0])


# --- features beside TF-IDF


def labelled(train: int, test: int = 40) -> Labelled:
    """Rows whose label no word tells."""
    rng = np.random.default_rng(1)
    rows = [
        Example(" ".join(f"w{word}" for word in rng.integers(0, 300, size=8)), "pos" if i % 2 else "neg")
        for i in range(train + test)
    ]
    return Labelled(rows[:train], [], rows[train:], ["neg", "pos"])


@pytest.mark.parametrize(("width", "signal"), [(5, 0.6), (40, 0.15), (2, 1.2), (20, 0.0)])
def test_share_and_c_make_held_out_labels_most_likely(width: int, signal: float) -> None:
    data, rng = labelled(150), np.random.default_rng(0)
    states = {
        name: rng.normal(size=(len(rows), width)) + signal * np.array([[e.label == "pos"] for e in rows])
        for name, rows in data.parts().items()
        if rows
    }
    words, standard = tfidf_rows(data), Standard.of(states["train"])
    share, found, _ = fit_hybrid(data, words, states, {0: 1.0, 1: 1.0})
    target, losses = np.array([e.label == "pos" for e in data.train]), {}
    for s in joined.SHARES:
        both = hstack([np.sqrt(1 - s) * words["train"], np.sqrt(s) * standard.unit(states["train"])], "csr")
        for c in CS:
            folds = StratifiedKFold(5, shuffle=True, random_state=0)
            said = cross_val_predict(
                LogisticRegression(C=c, max_iter=1000), both, target, cv=folds, method="predict_proba"
            )
            losses[s, c] = log_loss(target, said)
    assert (share, found.c) == min(losses, key=losses.__getitem__)


def test_labels_that_only_the_validation_rows_have_are_given_no_probability() -> None:
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    train, valid = (np.array([[0.0], [1.0]]), np.array([0, 1])), (np.zeros((ENOUGH, 1)), np.full(ENOUGH, 2))
    np.testing.assert_allclose(held_out_likelihood(model, train, valid), np.log(1e-6))


def test_without_candidates_neither_c_nor_share_is_chosen() -> None:
    data, rng = labelled(120), np.random.default_rng(0)
    states = {name: rng.normal(size=(len(rows), 5)) for name, rows in data.parts().items() if rows}
    share, found, _ = fit_hybrid(data, tfidf_rows(data), states, {0: 1.0, 1: 1.0}, cs=())
    assert (share, found.c, len(found.hits)) == (joined.USUAL_SHARE, USUAL_C, 0)


def test_words_that_no_label_depends_on_get_the_smaller_share() -> None:
    data, rng = labelled(300), np.random.default_rng(0)
    states = {
        name: rng.normal(size=(len(rows), 5)) + 0.6 * np.array([[e.label == "pos"] for e in rows])
        for name, rows in data.parts().items()
        if rows
    }
    assert fit_hybrid(data, tfidf_rows(data), states, {0: 1.0, 1: 1.0})[0] == 0.9


def test_both_blocks_have_the_same_length() -> None:
    data = labelled(120)
    states = {
        name: 100 + 50 * np.random.default_rng(0).normal(size=(len(rows), 64))
        for name, rows in data.parts().items()
        if rows
    }
    share, _, rows = fit_hybrid(data, tfidf_rows(data), states, {0: 1.0, 1: 1.0})
    words, base = rows["train"][:, :-64] / np.sqrt(1 - share), rows["train"][:, -64:] / np.sqrt(share)
    assert np.sqrt(words.multiply(words).sum(1)).mean() == pytest.approx(1.0)
    assert np.sqrt(base.multiply(base).sum(1).mean()) == pytest.approx(1.0, abs=0.1)


# --- word vectors


def test_static_reads_words_that_no_training_row_has(vectors: Path) -> None:
    train = [Example(f"film was {word}", "pos" if word in GOOD else "neg") for word in (*GOOD[:3], *BAD[:3])] * 3
    test = [Example("film was clever", "pos"), Example("film was stupid", "neg")]
    made = static(Labelled(train, [], test, ["neg", "pos"]), str(vectors))
    assert made.predictions == ["pos", "neg"]


def test_static_predicts_a_row_alike_whatever_other_test_rows_there_are(vectors: Path) -> None:
    train = [example(i) for i in range(24)]
    row = Example("film was warm", "1")
    alone, among = (
        static(Labelled(train, [], test, ["0", "1"]), str(vectors)).probabilities[0]
        for test in ([row], [row, *[Example("awful awful", "0")] * 30])
    )
    assert alone == pytest.approx(among)


def test_a_text_without_any_known_word_gets_a_prediction(vectors: Path) -> None:
    made = static(Labelled([example(i) for i in range(24)], [], [Example("xyz", "1"), Example("warm", "1")], ["0", "1"]), str(vectors))  # fmt: skip
    assert sum(made.probabilities[0].values()) == pytest.approx(1)
