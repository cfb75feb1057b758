"""Parameter counts against the arithmetic of the transfer lab."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from headstart.errors import ConfigError
from headstart.models.base import freeze
from headstart.runs.model_dir import HeadSpec, build_model
from headstart.shapes import TransformerConfig
from headstart.use.params import describe, translator_parameters
from headstart.use.preset_parameters import preset_parameters


def test_classic_with_a_language_head_counts_as_published() -> None:
    found = preset_parameters({"preset": "classic", "vocab": 50001}, "lm", 2).data()
    assert (found["total"], found["base"]) == (21_018_401, 10_968_200)
    assert (found["layer"], found["layers"]) == (242_000, 968_000)
    by_name = {m["name"]: m["parameters"] for m in found["modules"]}
    assert by_name["base.tokens"] == 10_000_200
    assert by_name["head"] == 10_050_201


def test_classic_with_a_class_head_counts_as_published() -> None:
    found = preset_parameters({"preset": "classic", "vocab": 50001}, "classify", 2).data()
    assert found["total"] == 10_968_602
    assert found["modules"][-1]["parameters"] == 402


@pytest.mark.parametrize("preset", ["classic", "gpt", "bert"])
def test_every_formula_gives_its_count_and_the_counts_their_sum(
    tiny: Callable[..., TransformerConfig], preset: str
) -> None:
    found = describe(build_model(tiny(preset), HeadSpec("language"))).data()
    assert sum(m["parameters"] for m in found["modules"]) == found["total"]
    for module in found["modules"]:
        assert value(module["formula"]) == module["parameters"]


def value(formula: str) -> int:
    """What a sum of products comes to."""
    terms = [term for term in formula.split(" + ") if not term.startswith("shared")]
    return sum(math.prod(map(int, term.split("×"))) for term in terms if term)


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("lstm", 4)])
def test_recurrent_layers_are_counted_gate_by_gate(kind: str, gates: int) -> None:
    found = translator_parameters({"kind": kind, "vocab": 30, "hidden": 16})
    formulas = [m.formula for m in found.modules if f"{gates}×16×16" in m.formula]
    assert formulas[0] == f"{gates}×16×16 + {gates}×16×16 + {gates}×16 + {gates}×16"
    assert sum(m.parameters for m in found.modules) == found.total
    assert all(value(m.formula) == m.parameters for m in found.modules)
    assert f"{gates}·D·H·K + {gates}·H²·K" in str(found)
    assert found.data()["encoder"] < found.total


@pytest.mark.parametrize("preset", ["classic", "gpt", "bert"])
def test_operations_are_those_of_the_products(tiny: Callable[..., TransformerConfig], preset: str) -> None:
    """Twice each weight of a matrix, and in each layer twice a query by every key, and every weight by every value."""
    cfg = tiny(preset)
    found = describe(build_model(cfg, HeadSpec("language")))
    layer = 4 * cfg.width**2 + 2 * cfg.width * cfg.ff
    head = cfg.vocab * cfg.width + (cfg.width**2 if cfg.head_transform else 0)
    assert found.flops == 2 * (cfg.layers * layer + head) + cfg.layers * 4 * cfg.width * cfg.context
    assert found.context == cfg.context


def test_memory_is_four_two_and_one_bytes_a_parameter() -> None:
    found = preset_parameters({"preset": "classic", "vocab": 50001}, "lm", 2)
    assert found.memory == {"fp32": 84_073_604, "bf16": 42_036_802, "int8": 21_018_401}
    assert "fp32 84.1 MB, bf16 42.0 MB, int8 21.0 MB" in str(found)


def test_the_tree_sums_what_is_inside_and_the_treemap_is_as_large(tiny: Callable[..., TransformerConfig]) -> None:
    model = build_model(tiny("gpt"), HeadSpec("classify", ("a", "b")))
    freeze(model.base, "last:1")
    found = describe(model)
    lines = {line.split()[0]: line.split()[1:] for line in found.tree().splitlines() if line}
    assert lines["model"][0] == f"{found.total:,}"
    assert lines["base"][0] == f"{found.counts['base']:,}"
    assert lines["head"] == ["34"]
    assert lines["tokens"] == [f"{53 * 16:,}", "frozen"]
    assert "learn" in lines["base"]
    for branch, (_, _, width, height) in found.leaves:
        assert width * height == pytest.approx(branch.parameters / found.total)
    assert {branch.name for branch, _ in found.leaves} == {m.name for m in found.modules if m.parameters}


def test_tied_weights_are_counted_once(tiny: Callable[..., TransformerConfig]) -> None:
    tied = describe(build_model(tiny("gpt"), HeadSpec("language"))).data()
    untied = describe(build_model(tiny("gpt", tied=False), HeadSpec("language"))).data()
    assert untied["total"] - tied["total"] == 53 * 16
    assert "shared with the embedding" in tied["modules"][-1]["formula"]


def test_frozen_modules_are_marked(tiny: Callable[..., TransformerConfig]) -> None:
    model = build_model(tiny("gpt"), HeadSpec("classify", ("a", "b")))
    freeze(model.base, "head")
    found = describe(model).data()
    assert found["trainable"] == 16 * 2 + 2
    assert [m["name"] for m in found["modules"] if m["trainable"]] == ["head.linear"]


def test_a_preset_needs_a_vocabulary() -> None:
    with pytest.raises(ConfigError, match="--vocab"):
        preset_parameters({"preset": "gpt"}, "lm", 2)
