"""Effects of labs: what the verdict claims, by the interval that was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart.errors import ConfigError, DataError
from headstart.labs.effect import Effect, measured
from headstart.labs.lab import Lab, lab_files, open_lab
from headstart.labs.results import pick
from headstart.schema import parse

EXPERIMENTS = [name for name in lab_files() if open_lab(name)[1].step]
QUICK = {
    "arithmetic": "Does frozen MiniLM know the sign of a difference better than the majority class, in macro-F1",
    "book-reviews": "Does a base of word vectors, tuned, have more of the test reviews right than the same model from scratch",
    "captions": "Does the name of an emoji that was held out find it among the first five more often than guessing",
    "pig-latin": "Does additive attention lower the validation loss of a GRU",
    "pretrained-gpt": "Does a frozen encoder that has read much have more of the test rows right than a frozen small GPT that has read these rows only",
    "small-gpt": "Is the loss lower without the square mask, which hides the token that is to be predicted",
}  # the claim of each lab that its quick run is about
FOUND: dict[str, Any] = {
    "study": {"difference": 0.1, "interval": [0.02, 0.18], "wide": [-0.02, 0.22], "chance": 0.05},
    "grid": {"gru": [0.7, 0.8, 0.75], "attention": [0.05, 0.04, 0.06], "one": [0.1]},
}


def find(place: str) -> Any:
    step, _, path = place.partition(": ")
    return pick(FOUND[step], path)


def effect(**settings: Any) -> Effect:
    return parse(Effect, {"claim": "Does it help", **settings})


@pytest.mark.parametrize(
    ("settings", "shown", "said"),
    [
        ({"interval": "study: interval"}, True, "Yes: +10.0 points (+2.0 to +18.0; 95 % interval"),
        ({"interval": "study: wide"}, False, "Not shown by this run: +10.0 points (-2.0 to +22.0;"),
        ({"interval": "study: interval", "lower": True}, False, "Not shown by this run: +10.0"),
        (
            {"interval": "study: interval", "minus": ["study: chance"]},
            False,
            "Not shown by this run: +5.0 points (-3.0",
        ),
    ],
)
def test_a_claim_is_made_where_the_interval_excludes_zero(settings: dict[str, Any], shown: bool, said: str) -> None:
    found = measured(effect(of=["study: difference"], **settings), find)
    assert found["shown"] is shown
    assert f"Does it help? {said}" in found["sentence"]


def test_seeds_are_compared_by_welch() -> None:
    found = measured(effect(of=["grid: attention"], minus=["grid: gru"], lower=True, unit="nats"), find)
    assert found["difference"] == pytest.approx(-0.7)
    assert found["interval"] == pytest.approx([-0.818, -0.582], abs=2e-3)
    assert found["shown"]
    assert "-0.700 nats" in found["sentence"]
    assert "over 3 and 3 seeds" in found["sentence"]


def test_one_seed_is_no_difference() -> None:
    with pytest.raises(ValueError, match="needs 2 of each"):
        measured(effect(of=["grid: attention"], minus=["grid: one"]), find)


@pytest.mark.parametrize("settings", [{"of": ["s: a", "s: b"], "interval": "s: c"}, {"of": ["s: a"]}])
def test_an_effect_without_an_interval_or_seeds_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="effect"):
        effect(**settings)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_quick_lab_is_about_one_effect_and_has_answers_and_pictures(name: str) -> None:
    part = open_lab(name)[1].part(quick=True, given=False)
    assert [effect.claim for effect in part.effect] == [QUICK[name]]
    assert part.answer
    assert part.picture


def test_what_rests_on_a_step_that_is_left_out_is_not_on_the_quick_page() -> None:
    lab = parse(
        Lab,
        {
            "title": "t",
            "question": "q",
            "verdict": ["a: v", "b: v"],
            "rows": {"T1": "p"},
            "step": [
                {"name": "a", "shows": "x", "command": "headstart data check rows.csv --plot {out}/a.png"},
                {"name": "b", "shows": "x", "command": "headstart compare r.csv --out {out}/b", "quick": False},
            ],
            "figure": [{"row": "T1", "what": name, "value": f"{name}: v"} for name in "ab"],
            "answer": [{"question": name, "text": "t", "values": {"v": f"{name}: v"}} for name in "ab"],
            "picture": [{"file": "a.png", "caption": "a"}, {"file": "b/figures/b.svg", "caption": "b"}],
        },
    )
    quick, full = lab.part(quick=True, given=True), lab.part(quick=False, given=True)
    assert (
        [f.what for f in quick.figure]
        == [a.question for a in quick.answer]
        == [p.caption for p in quick.picture]
        == ["a"]
    )
    assert quick.verdict == ("a: v",)
    assert (len(full.figure), len(full.answer), len(full.picture)) == (2, 2, 2)


def test_packs_stand_in_where_no_data_is_given(tmp_path: Path) -> None:
    step = {
        "name": "a",
        "shows": "x",
        "command": "headstart data check {data}/rows.csv",
        "packs": "headstart data check bbc-news",
    }
    needed = {"what": "rows", "files": ["rows.csv"], "source": "s", "licence": "l"}
    lab = parse(
        Lab, {"title": "t", "question": "q", "step": [step], "data": [{**needed, "packs": "the pack bbc-news"}]}
    )
    lab.check_data(None, quick=False)
    assert lab.commands("OUT", "", False) == {"a": ["data", "check", "bbc-news"]}
    assert lab.commands("OUT", "DIR", False) == {"a": ["data", "check", "DIR/rows.csv"]}
    with pytest.raises(DataError, match="Licence"):
        lab.check_data(tmp_path, quick=False)  # a folder was given, and the file is not in it
    with pytest.raises(DataError, match="Licence"):
        parse(Lab, {"title": "t", "question": "q", "step": [step], "data": [needed]}).check_data(None, quick=False)


def test_a_step_for_packs_alone_is_left_out_where_data_is_given() -> None:
    step = {"name": "a", "shows": "x", "command": "headstart data check bbc-news", "data": False}
    both = {"name": "b", "shows": "x", "command": "headstart runs"}
    lab = parse(
        Lab,
        {
            "title": "t",
            "question": "q",
            "step": [step, both],
            "rows": {"T1": "p"},
            "figure": [{"row": "T1", "what": "w", "value": "a: v"}],
        },
    )
    assert list(lab.commands("OUT", "", False)) == ["a", "b"]
    assert list(lab.commands("OUT", "DIR", False)) == ["b"]
    assert list(lab.commands("OUT", "DIR", True)) == ["a", "b"], "a quick run reads no data"
    assert len(lab.part(quick=False, given=False).figure) == 1
    assert lab.part(quick=False, given=True).figure == ()
