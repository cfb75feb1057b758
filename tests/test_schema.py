"""Whatever stands in the settings, the answer is settings, or one ConfigError that names every fault."""

from __future__ import annotations

import re
import string
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from headstart.config import FinetuneConfig, PretrainConfig
from headstart.errors import ConfigError
from headstart.runs.kinds import load_run_config, parse_run_config
from headstart.schema import Frozen, parse, tables, to_toml, with_override
from headstart.study.plan import StudyConfig

VALID: dict[type[Frozen], dict[str, Any]] = {
    PretrainConfig: {"data": {"paths": ["a.txt"]}},
    FinetuneConfig: {"base": "gpt", "init": "scratch", "data": {"train": "a.csv"}},
}
KINDS = st.sampled_from(sorted(VALID, key=lambda kind: kind.__name__))


def fields(kind: type[Frozen], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], FieldInfo]:
    """Every setting by its full name."""
    found: dict[tuple[str, ...], FieldInfo] = {}
    for name, field in kind.model_fields.items():
        inner = tables(kind).get(name)
        found |= fields(inner, (*prefix, name)) if inner else {(*prefix, name): field}
    return found


def wrong(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of the wrong type, and just out of range."""
    kinds = {field.annotation, *get_args(field.annotation)}
    values: list[Any] = [{"a": 1}]
    for kind, others in {
        int: ["many", "5", 1.5, True, [1], 1e300, float("nan")],
        float: ["fast", "0.1", True, [1.0], float("inf"), float("nan")],
        bool: ["no", "true", 1, 0.0],
        str: [5, True, 0.5, ["a"]],
    }.items():
        if kind in kinds and get_origin(field.annotation) is not tuple:
            values += others
    if get_origin(field.annotation) is tuple:
        values += ["abc", 3, [1], [["a"]]]
    if any(get_origin(kind) is Literal for kind in kinds):
        values += ["nope", 5, [1]]
    for bound in field.metadata:
        values += [value - 1 for key in ("ge", "gt") if (value := getattr(bound, key, None)) is not None]
        values += [value + 1 for key in ("le", "lt") if (value := getattr(bound, key, None)) is not None]
    return st.sampled_from(values)


def put(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**table, first: put(table.get(first, {}), tuple(rest), value) if rest else value}


@given(st.data())
def test_all_faults_are_named_at_once(data):
    kind = data.draw(KINDS)
    known = fields(kind)
    given_settings, expected = VALID[kind], []
    for path in data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=5, unique=True)):
        given_settings = put(given_settings, path, data.draw(wrong(known[path])))
        expected.append(rf"\b{re.escape('.'.join(path))}(\.\w)?: ")
    for table in data.draw(st.lists(st.sampled_from(["train.", "model.", "data.", "tokenizer.", ""]), unique=True)):
        name = data.draw(st.text(string.ascii_lowercase, min_size=12, max_size=12))
        given_settings = put(given_settings, (*table.split(".")[:-1], name), 1)
        expected.append(f"unknown setting '{name}'" + (rf" in \[{table[:-1]}\]" if table else ""))
    with pytest.raises(ConfigError) as caught:
        parse(kind, given_settings)
    assert all(re.search(fault, str(caught.value)) for fault in expected), str(caught.value)


NAMES = st.sampled_from(sorted({name for kind in VALID for path in fields(kind) for name in path})) | st.text(
    max_size=6
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["gpt", "masked"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)


@given(st.dictionaries(NAMES, ANYTHING, max_size=6), st.sampled_from([PretrainConfig, FinetuneConfig, StudyConfig]))
def test_anything_at_all_is_settings_or_a_config_error(given_settings, kind):
    for understood in (
        lambda: parse(kind, given_settings),
        lambda: parse(kind, {**VALID.get(kind, {}), **given_settings}),
        lambda: parse_run_config({"job": kind.__name__.removesuffix("Config").lower(), **given_settings}, "it"),
    ):
        with suppress(ConfigError):  # anything else fails the test
            assert isinstance(understood(), Frozen)


@pytest.mark.parametrize("value", ["9" * 5000, "-" + "9" * 5000, "[" * 5000, "{" * 5000, '"\\ud800"'])
def test_a_value_that_the_toml_library_chokes_on_is_a_fault_of_the_value(value, tmp_path):
    with pytest.raises(ConfigError, match=r"train\.steps: ") as caught:
        parse(PretrainConfig, with_override(VALID[PretrainConfig], f"train.steps={value}"))
    assert len(str(caught.value)) < 300
    (tmp_path / "config.toml").write_text(f"value = {value}")
    with pytest.raises(ConfigError):
        load_run_config(tmp_path / "config.toml")


@given(st.text(max_size=30) | st.builds("train.steps={}".format, st.text(max_size=20)))
def test_any_assignment_is_applied_or_refused(assignment):
    with suppress(ConfigError):
        assert with_override({"train": {}}, assignment)


@given(st.binary(max_size=60))
def test_a_config_file_of_any_bytes_is_settings_or_a_config_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        load_run_config(path)


@pytest.mark.parametrize("kind", VALID)
def test_written_settings_are_read_back_as_they_were(kind, tmp_path: Path):
    config = parse(kind, VALID[kind])
    (tmp_path / "config.toml").write_text(to_toml(config), "utf-8")
    assert load_run_config(tmp_path / "config.toml") == config
    assert parse_run_config(config.model_dump(mode="json"), "env.json") == config


@pytest.mark.parametrize(
    ("assignment", "value"),
    [("train.lr=1e-3", 0.001), ("train.lr=1", 1.0), ("data.text_column=no", "no"), ("data.text_column=12:30", "12:30")],
)
def test_values_are_what_they_look_like(assignment, value):
    """What YAML would make a string, False and 750."""
    config = parse(PretrainConfig, with_override(VALID[PretrainConfig], assignment))
    table, name = assignment.partition("=")[0].split(".")
    assert getattr(getattr(config, table), name) == value


def test_a_number_that_cannot_be_written_is_described():
    with pytest.raises(ConfigError, match=r"train\.seed: .* \(got a number of thousands of digits\)"):
        parse(PretrainConfig, {**VALID[PretrainConfig], "train": {"seed": 16**5000}})


@pytest.mark.parametrize("settings", [{"train": {"steps": 10**30}}, {"epochs": 10**400}])
def test_a_number_with_too_many_digits_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="number with too many digits"):
        parse(FinetuneConfig, {"base": "gpt", "data": {"train": "rows.csv"}, **settings})
