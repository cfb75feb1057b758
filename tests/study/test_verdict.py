"""The verdict says what the intervals say, and no more."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.study.results import Results
from headstart.study.statistics import difference, holm, needed_to_tell
from headstart.study.verdict import verdict as verdict_of

CLAIMS = re.compile(r"\b(helps|hurts|beats|loses|still|ahead|behind|needs|better)\b")
KINDS = ["full", "last:2", "frozen", "scratch", "tfidf", "majority"]


def arm(name: str, mean: float, labels: int = 2000, seeds: int = 5, **more: Any) -> dict[str, Any]:
    kind = name.split()[0]
    interval = [mean - 0.02, mean + 0.02]
    return {"name": name, "kind": kind, "labels": labels, "mean": mean, "interval": interval, "seeds": seeds, **more}


def gap(a: str, b: str, points: float, low: float, high: float, labels: int = 2000, **more: Any) -> dict[str, Any]:
    row = {"a": a, "b": b, "labels": labels, "difference": points / 100, "interval": [low / 100, high / 100]}
    return {**row, "over": "seeds and rows", "adjusted": labels == 2000, **more}


def study(arms: list[dict[str, Any]], differences: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    data = {"rows": {"train": 1600, "valid": 400, "test": 2000}, "overlapping_test_rows": 0}
    return {"score": "accuracy", "data": data, "arms": arms, "differences": differences, **more}


def verdict(facts: dict[str, Any]) -> str:
    return verdict_of(Results.of({"title": "T", "verdict": "", **facts}))


THREE = [arm("majority", 0.5, seeds=1), arm("tfidf", 0.823, seeds=1), arm("scratch", 0.750), arm("full", 0.781)]
ONE_RUN = [{"name": "base"}]


def test_pretraining_that_helps_and_is_still_below_the_linear_model():
    rows = [gap("full", "scratch", 3.1, 1.2, 5.0), gap("full", "tfidf", -4.2, -6.4, -2.0)]
    smaller = [gap("full", "scratch", 0.4, -2.0, 3.0, 300), gap("full", "scratch", 0.3, -3.0, 3.5, 100)]
    assert verdict(study(THREE, rows + smaller, pretraining=ONE_RUN)) == (
        "Yes: pretraining helps here, by about 3.1 points at all 2,000 labels; TF-IDF is still better.\n"
        "- full 0.781 is ahead of scratch 0.750 by 3.1 points (1.2 to 5.0) over 5 seeds.\n"
        "- full is still 4.2 points (2.0 to 6.4) below TF-IDF with logistic regression.\n"
        "- With 300 labels or fewer there is no significant difference.\n"
        "- In brackets: 95 % intervals over seeds and test rows, at all labels adjusted for 2 comparisons.\n"
        "- All this is for one pretraining run: another could give another answer."
    )


def test_another_pretrained_arm_that_is_ahead_of_the_linear_model_is_named():
    arms = [*THREE, arm("bi-encoder", 0.86)]
    rows = [gap("full", "scratch", 3.1, 1.2, 5.0), gap("full", "tfidf", -4.2, -6.4, -2.0), gap("bi-encoder", "scratch", 11.0, 9.0, 13.0)]  # fmt: skip
    told = verdict(study(arms, [*rows, gap("bi-encoder", "tfidf", 3.7, 2.0, 5.4)])).splitlines()
    assert told[0].endswith("; TF-IDF is still better than full, and bi-encoder is better than TF-IDF.")
    assert "- full is still 4.2 points (2.0 to 6.4) below TF-IDF with logistic regression; bi-encoder beats TF-IDF with logistic regression by 3.7 points (2.0 to 5.4)." in told  # fmt: skip
    unclear = verdict(study(arms, [*rows, gap("bi-encoder", "tfidf", 3.7, -0.5, 7.9)])).splitlines()
    assert unclear[0].endswith("; TF-IDF is still better.")


def test_a_base_joined_with_tfidf_is_compared_with_the_base_alone_and_never_leads():
    arms = [
        arm("tfidf", 0.80, seeds=1),
        arm("full", 0.84),
        arm("stack", 0.87),
        arm("frozen", 0.82),
        arm("hybrid", 0.85),
    ]
    rows = [gap("stack", "full", 3.0, 1.0, 5.0), gap("hybrid", "frozen", 3.0, -0.5, 6.5), gap("stack", "tfidf", 7.0, 5.0, 9.0),
            gap("frozen", "tfidf", 2.0, 0.5, 3.5), gap("hybrid", "tfidf", 5.0, 3.0, 7.0), gap("full", "tfidf", 4.0, 2.0, 6.0)]  # fmt: skip
    told = verdict(study(arms, rows)).splitlines()
    assert told[0] == (
        "At all 2,000 labels full is better than TF-IDF, by about 4.0 points; "
        "stack (full and TF-IDF together) is better than either."
    )
    assert (
        "- Joined with TF-IDF, stack beats full by 3.0 points (1.0 to 5.0); "
        "hybrid shows no significant difference from frozen, +3.0 points (-0.5 to 6.5); "
        "stack beats TF-IDF with logistic regression by 7.0 points (5.0 to 9.0); "
        "hybrid beats TF-IDF with logistic regression by 5.0 points (3.0 to 7.0)."
    ) in told


@pytest.mark.parametrize("unclear", ["full", "tfidf"])
def test_a_joined_arm_is_better_than_either_only_where_both_differences_are_clear(unclear):
    arms = [arm("tfidf", 0.80, seeds=1), arm("full", 0.81), arm("stack", 0.84)]
    rows = [gap("stack", b, 3.0, -0.5 if b == unclear else 1.0, 5.0) for b in ("full", "tfidf")]
    told = verdict(study(arms, [*rows, gap("full", "tfidf", 1.0, -1.0, 3.0)])).splitlines()
    assert told[0] == "At all 2,000 labels there is no clear difference between full and TF-IDF."


def test_word_vectors_are_compared_in_words():
    arms = [arm("tfidf", 0.80, seeds=1), arm("static", 0.84, seeds=1)]
    told = verdict(study(arms, [gap("static", "tfidf", 4.0, 2.0, 6.0, over="rows only")]))
    assert told.startswith("At all 2,000 labels averaging word vectors is better than TF-IDF, by about 4.0 points.")
    assert "averaged word vectors with logistic regression 0.840 is ahead of TF-IDF" in told


def test_what_cannot_be_told_apart_and_what_it_would_take():
    rows = [gap("full", "scratch", 1.1, -0.8, 3.0, needed={"seeds": 12, "rows": 5049})]
    text = verdict(study(THREE, rows))
    assert text.startswith(
        "No clear difference from pretraining at all 2,000 labels.\n"
        "- full 0.781 minus scratch 0.750 is +1.1 points (-0.8 to 3.0) over 5 seeds; "
        "if that is the truth, about 12 seeds or 5,000 test rows would give an even chance to show it."
    )
    assert not CLAIMS.search(text)


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        ({"seeds": None, "rows": 8000}, "about 8,000 test rows would"),
        ({"seeds": 30, "rows": None}, "about 30 seeds would"),
        ({"seeds": 5000, "rows": 900_000}, "that small would take about 5,000 seeds or 900,000 test rows"),
        ({"seeds": None, "rows": None}, "neither more seeds nor more test rows alone"),
    ],
)
def test_what_it_would_take_is_told(needed, words):
    text = verdict(study(THREE, [gap("full", "scratch", 0.2, -0.8, 1.2, needed=needed)]))
    assert words in text
    assert "None" not in text


def test_pretraining_that_hurts():
    rows = [gap("full", "scratch", -2.0, -3.5, -0.5), gap("full", "tfidf", -4.2, -6.4, -2.0)]
    text = verdict(study(THREE, rows))
    assert text.startswith(
        "No: pretraining hurts here, by about 2.0 points at all 2,000 labels; TF-IDF is better.\n"
        "- full 0.781 is behind scratch 0.750 by 2.0 points (0.5 to 3.5) over 5 seeds."
    )
    assert "full loses to TF-IDF with logistic regression by 4.2 points (2.0 to 6.4)" in text
    assert "still" not in text


def test_the_row_may_stand_the_other_way_round():
    there = verdict(study(THREE, [gap("full", "scratch", 3.1, 1.2, 5.0), gap("full", "tfidf", -4.2, -6.4, -2.0)]))
    back = verdict(study(THREE, [gap("scratch", "full", -3.1, -5.0, -1.2), gap("tfidf", "full", 4.2, 2.0, 6.4)]))
    assert there == back
    there = verdict(study(THREE, [gap("full", "scratch", 1.0, -0.5, 2.5)]))
    assert there == verdict(study(THREE, [gap("scratch", "full", -1.0, -2.5, 0.5)]))
    assert "+1.0 points (-0.5 to 2.5)" in there


def test_rows_only_says_so_and_warns():
    arms = [arm("scratch", 0.75, seeds=3), arm("full", 0.78, seeds=3)]
    text = verdict(study(arms, [gap("full", "scratch", 3.0, 1.0, 5.0, over="rows only")]))
    assert "95 % intervals over the 2,000 test rows alone; with only 3 seeds, others may give another answer." in text
    assert "seeds and test rows" not in text


def test_other_arms_are_named_by_their_names():
    arms = [*THREE, arm("frozen", 0.74), arm("last:2", 0.79)]
    rows = [gap("frozen", "scratch", -1.0, -2.5, 0.5), gap("last:2", "scratch", 4.0, 2.0, 6.0)]
    text = verdict(study(arms, [*rows, gap("full", "scratch", 3.1, 1.2, 5.0)]))
    assert "full 0.781 is ahead of scratch 0.750 by 3.1 points (1.2 to 5.0) over 5 seeds." in text
    assert "frozen shows no significant difference from scratch, -1.0 points (-2.5 to 0.5)" in text
    assert "last:2 beats scratch by 4.0 points (2.0 to 6.0)" in text


def test_bases_are_compared_with_each_other():
    names = ["scratch causal", "scratch masked", "full causal", "full masked"]
    rows = [
        gap("full causal", "scratch causal", 3.0, 1.0, 5.0),
        gap("full masked", "scratch masked", 2.0, 0.5, 3.5),
        gap("full causal", "full masked", 1.0, -0.3, 2.3),
    ]
    text = verdict(study([arm(n, 0.7) for n in names], rows, pretraining=ONE_RUN * 2))
    assert "full causal 0.700 is ahead of scratch causal 0.700 by 3.0 points" in text
    assert (
        "Between bases, full causal shows no significant difference from full masked, +1.0 points (-0.3 to 2.3)."
        in text
    )
    assert "full masked beats scratch masked by 2.0 points (0.5 to 3.5)" in text
    assert "one pretraining run a base" in text


def test_bases_that_lead_are_compared_once():
    text = verdict(study([arm("full a", 0.7), arm("full b", 0.6)], [gap("full a", "full b", 9.0, 7.0, 11.0)]))
    assert text.count("(7.0 to 11.0)") == 1


def test_without_scratch_what_pretraining_adds_is_not_known():
    text = verdict(study([THREE[1], THREE[3]], [gap("full", "tfidf", 2.0, 1.0, 3.0)]))
    assert text.startswith(
        "At all 2,000 labels full is better than TF-IDF, by about 2.0 points.\n"
        "- full 0.781 is ahead of TF-IDF with logistic regression 0.823 by 2.0 points (1.0 to 3.0)"
    )
    assert "There is no scratch arm, so what pretraining adds is not known" in text
    assert "retraining helps" not in text


def test_baselines_alone():
    text = verdict(study(THREE[:2], [gap("tfidf", "majority", 32.3, 30.0, 34.6, over="rows only")]))
    assert "regression 0.823 is ahead of always predicting the majority class 0.500 by 32.3 points" in text
    assert "seed" not in text
    assert "retraining" not in text


@pytest.mark.parametrize(
    ("full", "frozen", "says"),
    [
        (3.0, -4.0, "Yes: pretraining helps here, by about 3.0 points at all 2,000 labels."),
        (0.0, 4.0, "In part: pretraining helps frozen, by about 4.0 points at all 2,000 labels, and makes no clear "
                   "difference to full."),
        (-3.0, 4.0, "In part: pretraining helps frozen, by about 4.0 points at all 2,000 labels, and hurts full."),
        (-3.0, 0.0, "No: pretraining hurts here, by about 3.0 points at all 2,000 labels."),
        (0.0, -4.0, "No clear gain from pretraining at all 2,000 labels."),
        (0.0, 0.0, "No clear difference from pretraining at all 2,000 labels."),
    ],
)  # fmt: skip
def test_the_answer_weighs_every_arm_that_was_pretrained(full, frozen, says):
    rows = [gap(name, "scratch", d, d - 1, d + 1) for name, d in (("full", full), ("frozen", frozen))]
    assert verdict(study([*THREE, arm("frozen", 0.74)], rows)).startswith(says + "\n")


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (2.0, "full is better than TF-IDF, by about 2.0 points."),
        (-2.0, "TF-IDF is better than full, by about 2.0 points."),
        (0.5, "there is no clear difference between full and TF-IDF."),
    ],
)
def test_the_answer_without_scratch_is_about_what_was_compared(points, says):
    text = verdict(study([THREE[1], THREE[3]], [gap("full", "tfidf", points, points - 1, points + 1)]))
    assert text.startswith(f"At all 2,000 labels {says}\n")


def test_the_answer_says_at_how_many_labels_it_holds():
    arms = [arm("scratch", 0.7, labels=1000), arm("full", 0.766, labels=1000)]
    text = verdict(study(arms, [gap("full", "scratch", 6.6, 4.0, 9.2, 1000)]))
    assert text.startswith("Yes: pretraining helps here, by about 6.6 points at 1,000 labels.\n")


def test_one_arm_is_compared_with_nothing():
    text = verdict(study([arm("full", 0.78)], []))
    assert text == (
        "There is no second arm to compare with.\n- At all 2,000 labels the score of full is 0.780 (0.760 to 0.800)."
    )


def test_few_labels_are_told_from_many():
    rows = [gap("full", "scratch", 0.5, -1.0, 2.0)]
    smaller = [
        gap("full", "scratch", 5.0, 2.0, 8.0, 100),
        gap("full", "scratch", 4.0, 1.5, 6.5, 300),
        gap("full", "scratch", 1.0, -1.0, 3.0, 1000),
    ]
    assert (
        "With fewer labels pretraining helps by 5.0 points (2.0 to 8.0) at 100, and also at 300; at 1,000 there "
        "is no significant difference."
    ) in verdict(study(THREE, rows + smaller))


def test_labels_are_saved_only_where_the_interval_says_so():
    rows = [gap("full", "scratch", 3.1, 1.2, 5.0)]
    found = {"arm": "full", "reference": "scratch", "score": 0.75, "labels": 610, "interval": [400, 900], "saved": 1390}
    words = "For what scratch reaches with all 2,000 labels, full needs about 610 (400 to 900)."
    assert words in verdict(study(THREE, rows, labels_needed=[found]))
    for interval in ([400, None], [400, 2000], None):
        assert "needs" not in verdict(study(THREE, rows, labels_needed=[{**found, "interval": interval}]))
    fewest = {**found, "labels": 100, "interval": [100, 150], "at_most": True}
    assert "full needs 100 or fewer (100 to 150)" in verdict(study(THREE, rows, labels_needed=[fewest]))


def test_uneven_classes_failures_and_overlap_are_mentioned():
    arms = [arm("scratch", 0.75, clean={"mean": 0.74}), arm("full", 0.78, clean={"mean": 0.76})]
    facts = study(arms, [gap("full", "scratch", 3.0, 1.0, 5.0)], failures=[{"cell": "full~2000~3"}])
    facts["score"], facts["data"]["overlapping_test_rows"] = "macro_f1", 54
    text = verdict(facts)
    assert "Scores are macro-F1, since the classes are uneven" in text
    assert "Without the 54 test rows that overlap with training rows: full 0.760 and scratch 0.740." in text
    assert "1 run failed and is left out." in text


def test_arms_no_better_than_the_majority_class_are_told_so():
    arms = [arm("majority", 0.76, seeds=1), *THREE[2:]]
    rows = [gap("full", "scratch", 3.1, 1.2, 5.0)]
    assert "majority class" not in verdict(study(arms, rows))  # full is: 0.761 to 0.801
    arms[0] = arm("majority", 0.77, seeds=1)
    assert "No arm is clearly above always predicting the majority class (0.770)." in verdict(study(arms, rows))


def test_what_matters_least_is_left_out_first():
    kinds = [f"last:{k}" for k in range(1, 9)]
    rows = [gap("full", "scratch", 3.1, 1.2, 5.0), *(gap(kind, "scratch", 3.0, 1.0, 5.0) for kind in kinds)]
    text = verdict(
        study([*THREE, *(arm(kind, 0.7) for kind in kinds)], rows, pretraining=ONE_RUN, failures=[{"cell": "c"}])
    )
    assert len(text.split()) <= 120
    assert text.startswith("Yes: pretraining helps here")
    assert "last:" not in text
    assert "one pretraining run" in text
    assert "failed" in text


ASKED = [
    arm("tfidf", 0.62, 16), arm("tfidf", 0.80), arm("scratch", 0.55, 16), arm("scratch", 0.75),
    arm("prompt", 0.84, 16), arm("prompt", 0.88), arm("zero-shot", 0.82, 0, seeds=1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (
            {"labels": 60, "interval": [40, 110]},
            "worth about 60 labels here (40 to 110): TF-IDF with logistic regression needs that many to match it",
        ),
        ({"labels": 60, "interval": [40, None]}, "worth about 60 labels here (40 or more)"),
        ({"labels": 16, "interval": [16, 30], "at_most": True}, "worth at most 16 labels here (16 to 30)"),
        ({"labels": None}, "worth more than all 2,000 labels: no arm without a prompt reaches it"),
    ],
)
def test_what_a_prompt_is_worth_is_counted_in_labels(needed: dict[str, Any], words: str) -> None:
    rows = [{"arm": "tfidf", "reference": "zero-shot", "score": 0.82, **needed}]
    rows.append({"arm": "prompt", "reference": "zero-shot", "score": 0.82, "labels": 16, "interval": [16, 16]})
    text = verdict(study(ASKED, [gap("prompt", "scratch", 13.0, 10.0, 16.0)], labels_needed=rows))
    assert f"The prompt alone (zero-shot, 0.820 with no labels) is {words}" in text
    assert text.startswith("Yes: pretraining helps here, by about 13.0 points at all 2,000 labels.")
    assert "Next: use prompt, which has the highest mean; with 16 labels it had -4.0 points" in text


def test_a_tuned_prompt_beside_the_prompt_alone_is_not_joined_with_anything() -> None:
    rows = [gap("prompt", "scratch", 13.0, 10.0, 16.0), gap("prompt", "zero-shot", 6.0, 4.0, 8.0)]
    assert "Joined with TF-IDF" not in verdict(study(ASKED, rows))


def test_what_uses_no_labels_depends_on_no_seed() -> None:
    arms = [arm("tfidf", 0.80, seeds=1), arm("zero-shot", 0.82, 0, seeds=1)]
    assert "seed" not in verdict(study(arms, [gap("zero-shot", "tfidf", 2.0, -1.0, 5.0, over="rows only")]))


def test_where_labels_add_nothing_the_prompt_is_the_advice() -> None:
    weaker = [a for a in ASKED if a["name"] != "prompt"]
    text = verdict(study(weaker, [gap("zero-shot", "scratch", 7.0, 5.0, 9.0)]))
    assert "Next: use zero-shot; the mean of no arm that was trained on these labels is higher" in text


def test_an_arm_without_a_model_that_is_best_is_named_beside_the_best_that_gives_one() -> None:
    arms = [
        arm("tfidf", 0.70, seeds=1),
        arm("scratch", 0.6),
        arm("zero-shot", 0.82, 0),
        arm("ensemble", 0.87),
        arm("prompt", 0.85),
    ]
    rows = [gap("prompt", "scratch", 25.0, 22.0, 28.0), gap("prompt", "tfidf", 15.0, 12.0, 18.0), gap("ensemble", "tfidf", 17.0, 14.0, 20.0), gap("ensemble", "zero-shot", 5.0, 3.0, 7.0)]  # fmt: skip
    told = verdict(study(arms, rows)).splitlines()
    assert "- With a linear probe added, ensemble beats zero-shot by 5.0 points (3.0 to 7.0)." in told
    assert "- Next: ensemble has the highest mean, but gives no model; of the others, use prompt." in told


def test_a_bound_close_to_zero_is_not_rounded_onto_it():
    assert "(0.03 to 5.0)" in verdict(study(THREE, [gap("full", "scratch", 2.5, 0.03, 5.0)]))
    assert "(-0.004 to 5.0)" in verdict(study(THREE, [gap("full", "scratch", 2.5, -0.004, 5.0)]))


@st.composite
def studies(draw, told: bool):
    """Any arms on one or two bases with any differences; `told` says whether an interval may exclude zero."""
    bases = draw(st.sampled_from([[""], [" causal", " masked"]]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5, unique=True))
    names = [k + b for k in kinds for b in (bases if k not in ("tfidf", "majority") else [""])]
    seeds = draw(st.sampled_from([1, 3, 5]))
    arms = [arm(n, draw(st.floats(0.3, 0.95)), seeds=1 if n in ("tfidf", "majority") else seeds) for n in names]
    counts = draw(st.sampled_from([[], [2000], [100, 2000], [100, 300, 1000, 2000]]))
    over = "seeds and rows" if seeds >= 5 else "rows only"
    needed = draw(st.sampled_from([None, {"seeds": 12, "rows": None}, {"seeds": None, "rows": None}]))
    rows = []
    for i, a in enumerate(names):
        for b in names[max(0, i - 3) : i]:
            for labels in counts:
                points, reach = (
                    draw(st.integers(-999, 999)) / 50 + 0.01,
                    draw(st.integers(1, 500)) / 50,
                )  # no bound is zero
                if not told:
                    reach += abs(points)
                rows.append(gap(a, b, points, points - reach, points + reach, labels, over=over, needed=needed))
    return study(arms, rows, pretraining=ONE_RUN * len(bases), failures=[{"cell": "c"}] * draw(st.integers(0, 2)))


def parted(text: str) -> tuple[str, str]:
    """The answer, and what follows; no answer where nothing was compared."""
    answer, _, rest = text.partition("\n")
    return ("", rest) if "compare" in answer else (answer, rest)


def _clear(row: dict[str, Any]) -> bool:
    low, high = row["interval"]
    return low > 0 or high < 0


@settings(deadline=None)
@given(studies(told=False))
def test_nothing_is_claimed_when_every_interval_includes_zero(facts):
    assert not CLAIMS.search(verdict(facts))


@settings(deadline=None)
@given(studies(told=True))
def test_every_claim_is_an_interval_without_zero_and_the_paragraph_is_short(facts):
    answer, text = parted(verdict(facts))
    bounds = [sorted(abs(100 * x) for x in row["interval"]) for row in facts["differences"] if _clear(row)]
    claimed = re.findall(r"points \(([\d.]+) to ([\d.]+)\)", text)
    for low, high in claimed:
        assert any(abs(float(low) - b[0]) < 0.051 and abs(float(high) - b[1]) < 0.051 for b in bounds), text
    assert len(claimed) == len(CLAIMS.findall(text)), text  # each with its interval
    assert len(f"{answer} {text}".split()) <= 150
    assert text.endswith(".")
    assert all(line.startswith("- ") for line in text.splitlines())
    assert ".." not in text
    assert not re.search(r"None|nan|inf\b", text)


@settings(deadline=None)
@given(studies(told=True))
def test_nothing_of_the_answer_is_said_again(facts):
    answer, *points = verdict(facts).splitlines()
    words = answer.rstrip(".").split()
    for five in (" ".join(words[i : i + 5]) for i in range(len(words) - 4)):
        assert not [point for point in points if five.lower() in point.lower()]
    assert len(set(points)) == len(points)


@settings(deadline=None)
@given(studies(told=True))
def test_the_answer_agrees_with_every_interval(facts):
    answer, _ = parted(verdict(facts))
    at_all = [(r["a"], r["b"], *r["interval"]) for r in facts["differences"] if r["labels"] == 2000]
    at_all += [(b, a, -high, -low) for a, b, low, high in at_all]  # each both ways
    better = {(a, b) for a, b, low, _ in at_all if low > 0}

    def of(name: str) -> str:
        return name.split()[0].partition(":")[0]

    asked = [(a, b) for a, b, *_ in at_all if of(a) in ("full", "last", "frozen") and of(b) == "scratch"]
    helps, hurts = [p for p in asked if p in better], [p for p in asked if p[::-1] in better]
    if not asked:
        assert not re.search(r"retraining|Yes|No\b", answer)
    elif answer.startswith(("Yes", "In part")):
        assert helps
    elif answer.startswith("No:"):
        assert hurts
        assert not helps
    else:
        assert answer.startswith(f"No clear {'gain' if hurts else 'difference'}")
        assert not helps
    if "TF-IDF is" in answer:
        assert any(a == "tfidf" for a, _ in better)
    for said in re.findall(r"about ([\d.]+) points", answer):
        clear = [r for r in facts["differences"] if _clear(r) and r["labels"] == 2000]
        assert any(abs(float(said) - abs(100 * r["difference"])) < 0.051 for r in clear)


def test_equal_arms_rarely_make_a_verdict_that_claims():
    rng, claims, trials = np.random.default_rng(11), 0, 200
    for _ in range(trials):
        chance = 0.9 - 0.4 * rng.random(200)
        right = {n: (rng.random((5, 200)) < chance + 0.02 * rng.standard_normal((5, 1))) * 1.0 for n in KINDS[:4]}
        right["tfidf"] = (rng.random((1, 200)) < chance) * 1.0
        pairs = [(a, b) for a in KINDS[:4] for b in ("scratch", "tfidf") if a != b]
        rows = [
            gap(a, b, 100 * e.value, 100 * e.low, 100 * e.high, needed=asdict(needed_to_tell(e)))
            for (a, b), e in zip(pairs, holm([difference(right[a], right[b]) for a, b in pairs]), strict=True)
        ]
        claims += bool(CLAIMS.search(verdict(study([arm(n, r.mean()) for n, r in right.items()], rows))))
    assert claims / trials <= 0.05
