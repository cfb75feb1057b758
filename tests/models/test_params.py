"""Parameter counts against the arithmetic of the transfer lab."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headstart.config import TransformerConfig
from headstart.errors import ConfigError
from headstart.models.base import freeze
from headstart.train.model_dir import HeadSpec, build_model
from headstart.use.params import describe, preset_parameters


def test_classic_with_a_language_head_counts_as_published() -> None:
    found = preset_parameters({"preset": "classic", "vocab": 50001}, "lm", 2)
    assert (found["total"], found["base"], found["layer"]) == (21_018_401, 10_968_200, 242_000)
    by_name = {m["name"]: m["parameters"] for m in found["modules"]}
    assert by_name["base.tokens"] == 10_000_200
    assert by_name["head"] == 10_050_201


def test_classic_with_a_class_head_counts_as_published() -> None:
    found = preset_parameters({"preset": "classic", "vocab": 50001}, "classify", 2)
    assert found["total"] == 10_968_602
    assert found["modules"][-1]["parameters"] == 402


@pytest.mark.parametrize("preset", ["classic", "gpt", "bert"])
def test_every_formula_gives_its_count_and_the_counts_their_sum(
    tiny: Callable[..., TransformerConfig], preset: str
) -> None:
    found = describe(build_model(tiny(preset), HeadSpec("language")))
    assert sum(m["parameters"] for m in found["modules"]) == found["total"]
    for module in found["modules"]:
        terms = [t for t in module["formula"].split(" + ") if not t.startswith("shared")]
        total = 0
        for term in terms:
            product = 1
            for factor in term.split("×"):
                product *= int(factor)
            total += product
        assert total == module["parameters"]


def test_tied_weights_are_counted_once(tiny: Callable[..., TransformerConfig]) -> None:
    tied = describe(build_model(tiny("gpt"), HeadSpec("language")))
    untied = describe(build_model(tiny("gpt", tied=False), HeadSpec("language")))
    assert untied["total"] - tied["total"] == 53 * 16
    assert "shared with the embedding" in tied["modules"][-1]["formula"]


def test_frozen_modules_are_marked(tiny: Callable[..., TransformerConfig]) -> None:
    model = build_model(tiny("gpt"), HeadSpec("classify", ("a", "b")))
    freeze(model.base, "head")
    found = describe(model)
    assert found["trainable"] == 16 * 2 + 2
    assert [m["name"] for m in found["modules"] if m["trainable"]] == ["head.linear"]


def test_a_preset_needs_a_vocabulary() -> None:
    with pytest.raises(ConfigError, match="--vocab"):
        preset_parameters({"preset": "gpt"}, "lm", 2)
