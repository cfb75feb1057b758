"""The table of arms."""

from __future__ import annotations

import inspect
import re

import pytest

from headstart.imported import imported
from headstart.study.arms import ARM, ARMS, ArmKind, arm_kind
from headstart.study.plan import USUAL, StudyConfig, usual_arms
from headstart.targets.tasks import TARGETS


@pytest.mark.parametrize("kind", ARMS.values(), ids=ARMS)
def test_an_arm_is_a_run_or_names_what_computes_it(kind: ArmKind) -> None:
    assert re.fullmatch(ARM, kind.name.replace("K", "2"))
    assert arm_kind(kind.name.replace("K", "2")) is kind
    assert (bool(kind.made) + kind.run) == (kind.name != "zero-shot")
    assert kind.partner in ("", *ARMS)
    assert kind.based or (kind.words and kind.short and kind.dash)  # a verdict names it, a figure draws it
    if kind.made:
        takes = ["cfg", "cell", "data", "out"] if kind.based else ["data"]
        assert [*inspect.signature(imported(kind.made)).parameters][: len(takes)] == takes
        assert set(kind.given) <= set(StudyConfig.model_fields)


def test_no_two_arms_claim_the_same_place_in_a_verdict() -> None:
    ranks = [kind.rank for kind in ARMS.values() if ":" not in kind.name or kind.name == "last:K"]
    assert sorted(ranks) == list(range(len(ranks)))


def test_a_study_that_names_no_arms_has_those_of_its_rows() -> None:
    assert USUAL == ("majority", "tfidf", "scratch", "frozen", "full")
    assert usual_arms("ordinal", "text") == ("constant", "tfidf", "scratch", "frozen", "full")
    assert usual_arms("regression", "pair") == (
        "constant", "tfidf", "overlap", "first-only", "second-only", "scratch", "frozen", "full", "bi-encoder",
    )  # fmt: skip
    assert "bi-encoder" not in usual_arms("classify", "pair", based=False)
    assert all(set(usual_arms(task, "text")) <= set(ARMS) for task in TARGETS)
