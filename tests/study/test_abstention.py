"""The abstention curve: accuracy on the surest rows, as counted by hand, and its place on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.study.abstention import abstention, calibration
from headstart.study.figures import pictures
from headstart.study.report import write_report
from headstart.study.results import Results
from headstart.targets.class_scores import calibration_error

Study = Callable[..., dict[str, Any]]


def drawn(seeds: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([1, 1, 1], (seeds, rows))
    return probabilities, rng.integers(0, 3, rows)


@pytest.mark.parametrize("rows", [1, 7, 40, 333])
def test_the_curve_is_the_accuracy_on_the_surest_rows(rows):
    probabilities, target = drawn(3, rows)
    curve = abstention(probabilities, target)
    assert curve.coverage[-1] == 1
    for coverage, accuracy in zip(curve.coverage, curve.accuracy, strict=True):
        expected = []
        for seed in probabilities:
            surest = sorted(range(rows), key=lambda i: -seed[i].max())[: round(coverage * rows)]
            expected.append(np.mean([seed[i].argmax() == target[i] for i in surest]))
        assert accuracy == pytest.approx(np.mean(expected))


def test_the_error_before_scaling_is_known_only_if_all_seeds_know_it():
    probabilities, target = drawn(2, 50)
    known: Any = {"calibration": {"temperature": 2.0, "test": {"ece_before": 0.3, "ece_after": 0.1}}}
    found = calibration(probabilities, target.tolist(), [known, known])
    assert found.ece == pytest.approx(np.mean([calibration_error(p, target.tolist()) for p in probabilities]))
    assert found.ece_before == pytest.approx(0.3)
    assert calibration(probabilities, target.tolist(), [known, {}]).ece_before is None
    assert calibration(probabilities, target.tolist(), [{"calibration": {"test": None}}] * 2).ece_before is None


def test_the_page_has_the_curve_where_there_is_one(study: Study, tmp_path: Path):
    found = study(kinds=("majority", "tfidf", "full"), counts=(100,))
    assert "abstention" not in {picture.name for picture in pictures(Results.of(found))}
    assert "Abstention" not in write_report(tmp_path, Results.of(found)).read_text("utf-8")
    for arm in found["arms"]:
        arm["abstention"] = {"coverage": [0.5, 1.0], "accuracy": [0.9, 0.7]}
        arm["calibration"] = {**arm.get("calibration", {}), "ece": 0.05, "ece_before": 0.1234}
    picture = next(p for p in pictures(Results.of(found)) if p.name == "abstention")
    assert "tfidf 90.0 % on half of the rows, 70.0 % on all" in picture.alt
    assert "majority" not in picture.alt
    page = write_report(tmp_path, Results.of(found)).read_text("utf-8")
    assert "<h2>Abstention</h2>" in page
    assert "12.3</td>" in page
