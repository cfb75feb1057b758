"""Tags and the entities in them, against seqeval; scores of sentences, against the whole."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.metrics import f1_score as plain_f1

from headstart.targets.tags import Tags, are_iob, as_iob2, entities
from headstart.text.tagged import as_bioes, scheme_of

TAGS = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC"))]
SENTENCE = st.lists(st.sampled_from(TAGS), min_size=1, max_size=8)
IOB = st.lists(st.sampled_from([tag for tag in TAGS if tag[0] in "BIO"]), min_size=1, max_size=8)
POS = ("NOUN", "PUNCT", "VERB")


@given(SENTENCE)
def test_entities_are_those_of_seqeval(tags: list[str]):
    assert [(kind, start, end - 1) for kind, start, end in entities(tags)] == get_entities(tags)


@given(SENTENCE)
def test_a_change_of_scheme_changes_no_entity(tags: list[str]):
    assert entities(as_iob2(tags)) == entities(tags)
    assert entities(as_bioes(tags)) == entities(tags)


@given(st.lists(st.tuples(IOB, st.randoms(use_true_random=False)), min_size=1, max_size=6))
def test_scores_are_those_of_seqeval(rows):
    known = [tags for tags, _ in rows]
    said = [[dice.choice([tag, "O", "B-PER", "I-LOC"]) for tag in tags] for tags, dice in rows]
    target = Tags.of(["B-PER", "I-LOC"]).wide_enough([" ".join(tags) for tags in known])
    truth, answers = (target.encode([" ".join(tags) for tags in part]) for part in (known, said))
    found = target.scores(truth, answers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval, where there is nothing to divide by
        expected = {
            "f1": f1_score(known, said),
            "precision": precision_score(known, said),
            "recall": recall_score(known, said),
            "accuracy": accuracy_score(known, said),
        }
        each = classification_report(known, said, output_dict=True, zero_division=0)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    for kind, scores in target.by_type(truth, answers).items():
        got = [scores[key] or 0.0 for key in ("precision", "recall", "f1")]
        assert got == pytest.approx([each[kind][key] for key in ("precision", "recall", "f1-score")])
        assert scores["rows"] == each[kind]["support"]


def drawn(names: tuple[str, ...], seed: int = 0) -> tuple[Tags, np.ndarray, np.ndarray]:
    """A target, and the tags of 40 sentences, of which 7 of 10 words are right."""
    dice = np.random.default_rng(seed)
    known = [dice.choice(names, size=dice.integers(1, 9)).tolist() for _ in range(40)]
    said = [[tag if dice.random() < 0.7 else str(dice.choice(names)) for tag in tags] for tags in known]
    target = Tags.of([" ".join(tags) for tags in known])
    truth, answers = (target.encode([" ".join(tags) for tags in part]) for part in (known, said))
    return target, truth, answers


@pytest.mark.parametrize("names", [("B-PER", "I-PER", "O", "B-LOC"), POS], ids=["entities", "parts of speech"])
def test_the_values_of_sentences_have_the_score_as_their_mean(names: tuple[str, ...]):
    target, truth, answers = drawn(names)
    whole = target.scores(truth, answers)
    for score in target.measures:
        assert target.row_values(score, truth, answers).mean() == pytest.approx(whole[score])


def test_the_interval_of_f1_is_near_that_of_the_bootstrap_over_sentences():
    target, truth, answers = drawn(("B-PER", "I-PER", "O", "B-LOC"))
    values, dice = target.row_values("f1", truth, answers), np.random.default_rng(1)
    again = [
        target.scores(truth[rows], answers[rows])["f1"]
        for rows in (dice.integers(0, len(truth), len(truth)) for _ in range(500))
    ]
    assert values.std(ddof=1) / np.sqrt(len(values)) == pytest.approx(np.std(again), rel=0.15)


def test_tags_that_mark_no_entities_are_scored_by_word():
    target, truth, answers = drawn(POS)
    found, words = target.scores(truth, answers), truth >= 0
    assert target.leading([]) == "accuracy"
    assert found["macro_f1"] == pytest.approx(plain_f1(truth[words], answers[words], average="macro"))
    assert "f1" not in found


def test_what_is_written_is_read_back():
    target, truth, answers = drawn(("B-PER", "I-PER", "O", "B-LOC"))
    for known, said in zip(truth, answers, strict=True):
        record = target.record(" ".join(target.written(known)), said, said.tolist())
        assert target.read(record)[0].tolist() == said.tolist()
        assert len(record["label"]) == len(record["prediction"])


def test_both_tags_of_a_type_are_known_where_one_of_them_occurs():
    assert Tags.of(["B-PER O", "O I-LOC"]).names == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    assert Tags.of(["NOUN VERB"]).names == ("NOUN", "VERB")


@pytest.mark.parametrize(
    ("rows", "scheme"),
    [
        ([["I-PER", "I-PER", "O"], ["I-LOC", "B-LOC"]], "IOB1"),
        ([["B-PER", "I-PER", "O"], ["I-LOC"]], "IOB2"),
        ([["B-PER", "E-PER"], ["S-LOC"]], "BIOES"),
        ([["B-PER", "L-PER"], ["U-LOC"]], "BIOES"),
    ],
)
def test_the_scheme_of_tags_is_found(rows: list[list[str]], scheme: str):
    assert scheme_of(rows) == scheme
    assert are_iob([tag for row in rows for tag in row])
