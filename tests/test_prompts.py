"""Templates and label words: found by the names of the labels, given by users, refused where they make no sense."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headstart.errors import ConfigError
from headstart.prompts import Prompt, prompts_for


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["neg", "pos"], {"neg": "negative", "pos": "positive"}),
        (["Negative", "Neutral", "Positive"], {"Negative": "negative", "Neutral": "neutral", "Positive": "positive"}),
        (["business", "sport"], {"business": "business", "sport": "sport"}),
        (["card_arrival", "lostCard"], {"card_arrival": "card arrival", "lostCard": "lost card"}),
        (["ham", "spam"], {"ham": "normal", "spam": "spam"}),
        (["1 star", "5 stars"], {"1 star": "terrible", "5 stars": "great"}),
    ],
)
def test_words_follow_from_the_names_of_the_labels(labels: list[str], words: dict[str, str]) -> None:
    prompts = prompts_for(labels, causal=True)
    assert all(prompt.words == words for prompt in prompts)


def test_a_family_brings_its_templates_and_those_of_a_masked_model() -> None:
    assert prompts_for(["neg", "pos"], causal=True)[0].template == "Review: {text}\nSentiment: {label}"
    masked = prompts_for(["neg", "pos"], causal=False)[0]
    assert (masked.template, masked.words["pos"]) == ("{text} It was {label}.", "great")


def test_what_is_given_wins() -> None:
    (prompt,) = prompts_for(["0", "1"], True, ["{text} So it is"], {"0": "bad", "1": "good"})
    assert (prompt.template, prompt.words) == ("{text} So it is", {"0": "bad", "1": "good"})
    assert prompts_for(["0", "1"], True, (), {"0": "negative", "1": "positive"})[0].template.startswith("Review:")


@pytest.mark.parametrize(
    ("labels", "words", "message"),
    [
        (["0", "1"], {}, r"label '0' is not a word.*--label-words 0=negative,1=positive"),
        (["1", "2", "3", "4"], {}, "label '1' is not a word"),  # topics are often numbered, too
        (["a", "b"], {"c": "d"}, "no label 'c'. The labels are a, b"),
        (["a", "b"], {"a": "x", "b": "x"}, "two labels have the word 'x'"),
    ],
)
def test_labels_without_words_are_refused(labels: list[str], words: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prompts_for(labels, True, (), words)


@pytest.mark.parametrize(
    "template", ["no place", "{text} and {text}", "{label}: {text}", "{text} {label} {label}", "{text}" + "x" * 10_000]
)
def test_a_template_has_its_places(template: str) -> None:
    with pytest.raises(ValidationError):
        Prompt(template=template, words={"a": "a"})


def test_a_template_without_a_place_for_the_label_ends_with_it() -> None:
    assert Prompt(template="Review: {text}\nSentiment:", words={}).parts == ("Review: ", "\nSentiment: ", "")
    assert Prompt(template="{text} It was {label}.", words={}).parts == ("", " It was ", ".")
