"""Settings as frozen models: checked and complained of by name, laid over one another, read and written as TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from headstart.errors import ConfigError, did_you_mean, shortened
from headstart.regular_file import read_regular


class Frozen(BaseModel):
    """Settings that are what they say: "no" is not False, and True is not 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def lists_become_tuples(cls, given: Any) -> Any:
        """TOML and JSON have lists only."""
        if not isinstance(given, Mapping):
            return given
        return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}

    @model_validator(mode="after")
    def numbers_have_63_bits(self) -> Self:
        """A number of TOML and JSON may have any number of digits, which neither torch nor a float takes."""
        for key, value in self.__dict__.items():
            if any(isinstance(n, int) and abs(n) >= 2**63 for n in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"{key} is a number with too many digits")
        return self


C = TypeVar("C", bound=Frozen)
MOST_BYTES = 4 * 2**20  # of a file of settings
OTHER_NAMES = {  # that settings have in other tools
    "learning_rate": "lr",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "gradient_accumulation_steps": "accumulate",
    "max_grad_norm": "clip",
    "hidden_size": "width",
    "num_layers": "layers",
    "max_length": "context",
}
_KINDS_OF_MODEL = ("ours", "theirs")  # pydantic puts the kind that it tried into the place of an error


def parse(
    kind: type[C],
    settings: Mapping[str, Any],
    source: str = "the settings",
    flags: Mapping[str, str] = MappingProxyType({}),
) -> C:
    """`settings` as a checked `kind`; every contradiction and unknown key is named at once, beside its flag."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, [kind], source, flags)) from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(path, MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:  # also how tomllib refuses too many digits or brackets
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def to_toml(config: Frozen) -> str:
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def with_override(settings: dict[str, Any], assignment: str) -> dict[str, Any]:
    """`settings` with one `a.b=c` applied; the value is read as TOML, or as plain text.

    >>> with_override({"train": {"lr": 0.1}}, "train.steps=20")
    {'train': {'lr': 0.1, 'steps': 20}}
    """
    key, separator, text = assignment.partition("=")
    names = key.strip().split(".")
    if not separator or not all(names):
        raise ConfigError(f"--set takes name=value, such as train.lr=0.001, not '{assignment}'.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also how tomllib refuses too many digits or brackets
        value = text
    for name in reversed(names):
        value = {name: value}
    return merge(settings, value)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their dotted names as tables.

    >>> nested({"train.lr": 0.1, "train.steps": 5, "base": "minilm"})
    {'train': {'lr': 0.1, 'steps': 5}, 'base': 'minilm'}
    """
    tables: dict[str, Any] = {}
    for name, value in settings.items():
        for part in reversed(name.split(".")):
            value = {part: value}
        tables = merge(tables, value)
    return tables


def is_given(settings: Mapping[str, Any], name: str) -> bool:
    """Whether nested settings hold one, by its dotted name; None is not given.

    >>> is_given({"train": {"lr": 0.1}}, "train.lr"), is_given({"train": {"lr": None}}, "train.lr")
    (True, False)
    """
    first, _, rest = name.partition(".")
    value = settings.get(first)
    return is_given(value, rest) if rest and isinstance(value, Mapping) else value is not None and not rest


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """`first` with `second` laid over it, table by table."""
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def shortest(config: Frozen, without: Iterable[str] = ()) -> dict[str, Any]:
    """The fewest settings that give `config`, those `without` aside, by their dotted names."""
    settings = config.model_dump(exclude_none=True)
    for name in without:
        settings = _without(settings, name.split("."))
    whole = type(config).model_validate(settings)
    for names in list(_leaves(settings)):
        less = _without(settings, names)
        with suppress(ValidationError):
            settings = less if type(config).model_validate(less) == whole else settings
    return settings


def _leaves(settings: Mapping[str, Any]) -> Iterator[list[str]]:
    for key, value in settings.items():
        yield from ([key, *rest] for rest in _leaves(value)) if isinstance(value, dict) else [[key]]


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    first, *rest = names
    return {
        key: _without(value, rest) if rest and key == first else value
        for key, value in settings.items()
        if rest or key != first
    }


def differences(config: Frozen, settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The given settings that are not those of `config`, as `train.lr: 0.001, not 0.01`."""
    found = []
    for key, asked in settings.items():
        name, stored = f"{prefix}{key}", getattr(config, key, None)
        if isinstance(asked, Mapping) and isinstance(stored, Frozen):
            found += differences(stored, asked, f"{name}.")
        elif (tuple(asked) if isinstance(asked, list) else asked) != stored:
            found.append(f"{name}: {stored}, not {asked}")
    return found


def explain(
    error: ValidationError,
    kinds: Sequence[type[Frozen]],
    source: str,
    flags: Mapping[str, str] = MappingProxyType({}),
    tag: str = "",
) -> str:
    """What is wrong with settings of one of the `kinds`; of several, the value of their key `tag` leads each place."""
    tags = {kind.model_fields[tag].default for kind in kinds} if tag else set()
    problems = []
    for problem in error.errors():
        where = [str(part) for part in problem["loc"] if part not in _KINDS_OF_MODEL]
        if where and where[0] in tags:
            where = where[1:]
        if problem["type"] == "extra_forbidden":
            hint = _nearest(where[-1], _names_beside(kinds, where[:-1]), kinds)
            table = f" in [{'.'.join(where[:-1])}]" if where[:-1] else ""
            problems.append(f"unknown setting '{where[-1]}'{table}.{hint}")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            value = problem["input"]
            shown = f" (got {shortened(value)})" if isinstance(value, (str, int, float)) else ""
            name = ".".join(where) or "together"
            hint = did_you_mean(value, _choices(problem)) if isinstance(value, str) else ""
            problems.append(f"{name}{f' ({flags[name]})' if name in flags else ''}: {message}{shown}.{hint}")
    return f"{source}: " + " ".join(problems)


def _choices(problem: Mapping[str, Any]) -> list[str]:
    """What a setting may be, where that is one of a few words."""
    return re.findall(r"'([^']+)'", problem["ctx"]["expected"]) if problem["type"] == "literal_error" else []


def _nearest(name: str, beside: Sequence[str], kinds: Sequence[type[Frozen]]) -> str:
    """What may have been meant by a setting that is not there: one beside it, one in another table, or any beside it."""
    also = {other: ours for other, ours in OTHER_NAMES.items() if ours in beside}
    known = f" Known: {', '.join(beside)}." if beside else ""
    return did_you_mean(name, beside, also) or _elsewhere(name, kinds) or known


def _elsewhere(name: str, kinds: Iterable[type[Frozen]]) -> str:
    """The full name of a setting that stands in another table."""
    pairs = [pair for kind in kinds for pair in tables(kind).items()]
    found = next((f"{table}.{name}" for table, kind in pairs if name in kind.model_fields), None)
    return f" Did you mean '{found}'?" if found else ""


def _names_beside(kinds: Sequence[type[Frozen]], where: Iterable[str]) -> list[str]:
    for name in where:
        kinds = [found[name] for found in map(tables, kinds) if name in found]
    return [name for kind in kinds for name in kind.model_fields]


def tables(kind: type[Frozen]) -> dict[str, type[Frozen]]:
    """The settings that are tables; of one that has several kinds, the first."""
    found: dict[str, type[Frozen]] = {}
    for name, field in kind.model_fields.items():
        inside = [inner for outer in get_args(field.annotation) for inner in (outer, *get_args(outer))]
        of = [of for of in (field.annotation, *inside) if isinstance(of, type) and issubclass(of, Frozen)]
        found |= {name: of[0]} if of else {}
    return found
