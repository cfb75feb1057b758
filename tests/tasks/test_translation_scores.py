"""Scores of translations against their definitions."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu

from headstart.tasks.translation_scores import Scored, ratio, translation_scores, where_it_fails


def test_the_error_rates_count_the_edits_of_the_recursive_definition() -> None:
    def slow(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    rng = random.Random(0)
    for _ in range(40):
        a, b = ("".join(rng.choices("abc", k=rng.randrange(6))) for _ in range(2))
        scores = translation_scores([Scored("x", a, (b,))], list, by_character=True)
        for rate in ("character_error_rate", "token_error_rate"):
            assert scores[rate]["value"] == slow(a, b) / max(1, len(b))


def test_the_interval_of_a_ratio_covers_the_truth_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        bottoms = rng.integers(3, 12, 60)
        low, high = ratio(rng.binomial(bottoms, 0.3), bottoms)["interval"]
        covered += low <= 0.3 <= high
    assert 0.92 <= covered / 400 <= 0.98


ROWS = [
    Scored("the dog", "le chien", ("le chien", "un chien")),
    Scored("a cat", "un chat noir", ("un chat", "le chat blanc")),
    Scored("a big house", "une grande maison", ("une grande maison",)),
]


def test_any_reference_is_right_and_errors_count_against_the_nearest() -> None:
    scores = translation_scores(ROWS, str.split, by_character=False)
    assert scores["exact_match"]["value"] == 2 / 3
    assert scores["token_error_rate"]["value"] == 1 / (2 + 2 + 3)
    assert scores["character_error_rate"]["value"] == pytest.approx(5 / (8 + 7 + 17))
    low, high = scores["exact_match"]["interval"]
    assert 0 < low < 2 / 3 < high < 1


def test_bleu_and_chrf_are_those_of_sacrebleu_with_intervals_around_them() -> None:
    rows = [Scored(str(i), f"a b c d {i % 7}", (f"a b c d {i % 5}",)) for i in range(60)]
    said, right = [r.translation for r in rows], [[r.references[0] for r in rows]]
    scores = translation_scores(rows, str.split, by_character=False)
    assert scores["bleu"]["value"] == sacrebleu.corpus_bleu(said, right).score
    assert scores["chrf"]["value"] == sacrebleu.corpus_chrf(said, right).score
    for name in ("bleu", "chrf"):
        low, high = scores[name]["interval"]
        assert low < scores[name]["value"] < high
    words = [Scored(w, w, (w,)) for w in ("oppingshay", "ogday", "atcay")]  # one word has no four in a row
    assert translation_scores(words, list, by_character=True)["bleu"]["value"] == pytest.approx(100)


def test_where_it_fails_is_told_by_length_by_beginning_and_by_the_worst() -> None:
    rows = [Scored("a" * n, "x" if n > 7 else "a" * n, ("a" * n,)) for n in range(1, 11) for _ in range(5)]
    rows += [Scored(f"qu{i}", "", (f"qu{i}",)) for i in range(3)]
    fails = where_it_fails(rows)
    assert fails["wrong"] == 15 + 3
    by_length = {group["length"]: group["error"] for group in fails["by_length"]}
    assert by_length["1"] == 0
    assert by_length["8"] == 1
    assert sum(group["wrong"] for group in fails["by_length"]) == 18
    assert [(g["start"], g["wrong"]) for g in fails["by_start"]] == [("aa", 15), ("qu", 3)]
    assert fails["worst"][0] == {"source": "a" * 10, "translation": "x", "reference": "a" * 10, "edits": 10}


def test_rows_that_are_all_right_or_all_wrong_leave_no_interval_of_width_zero() -> None:
    for said in ("a b c d", "x y"):
        scores = translation_scores(
            [Scored(f"{i}", said, ("a b c d",)) for i in range(6)], str.split, by_character=False
        )
        low, high = scores["exact_match"]["interval"]
        assert low < high
        assert [scores[name]["interval"] for name in ("character_error_rate", "token_error_rate", "bleu", "chrf")] == [
            None
        ] * 4


def test_a_few_long_sources_do_not_make_a_group_of_their_own() -> None:
    rows = [Scored("ab", "x", ("x",))] * 20 + [Scored("abc", "x", ("y",))] * 20 + [Scored("abcdefg", "x", ("x",))]
    groups = where_it_fails(rows)["by_length"]
    assert [(group["length"], group["rows"]) for group in groups] == [("2", 20), ("3-7", 21)]
