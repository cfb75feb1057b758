"""The table of kinds of runs: every row can be opened, named and refused."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from headstart.cli import app
from headstart.cli.summary import SUMMARIES
from headstart.errors import ConfigError, ModelError
from headstart.jobs.job import Job, job_class
from headstart.runs.kinds import KINDS, kind_of, must_be, parse_run_config
from headstart.schema import parse

SETTINGS: dict[str, dict[str, Any]] = {
    "pretrain": {"data": {"paths": ["a"]}},
    "finetune": {"data": {"train": "a"}, "base": "b"},
    "translate": {"data": {"pairs": ["a"]}},
    "match": {"data": {"pairs": "a"}},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_row_names_a_job_a_verb_and_a_summary(name: str) -> None:
    kind = KINDS[name]
    cfg = parse(kind.config, SETTINGS[name])
    assert kind_of(cfg) is kind
    assert issubclass(job_class(cfg), Job)
    assert parse_run_config(cfg.model_dump(mode="json"), "it") == cfg
    assert name in SUMMARIES
    for words in (kind.verb, kind.use):
        command: Any = typer.main.get_command(app)
        for word in words.split():
            command = command.commands[word]


@pytest.mark.parametrize("found", KINDS)
@pytest.mark.parametrize("wanted", KINDS)
def test_a_run_of_another_kind_is_refused_with_what_it_is_and_what_makes_the_right_one(found: str, wanted: str) -> None:
    cfg = parse(KINDS[found].config, SETTINGS[found])
    if found == wanted:
        assert must_be(cfg, KINDS[wanted].config, "runs/a") is cfg
        return
    with pytest.raises(ModelError) as caught:
        must_be(cfg, KINDS[wanted].config, "runs/a")
    assert str(caught.value) == (
        f"runs/a holds {KINDS[found].noun} (for headstart {KINDS[found].use}), not {KINDS[wanted].noun}. "
        f"Train one: headstart {KINDS[wanted].verb}."
    )


@pytest.mark.parametrize(
    ("job", "says"),
    [("pretian", "Did you mean 'pretrain'"), (None, "not None"), (["a"], "job is one of"), (3, "not 3")],
)
def test_settings_of_no_known_job_are_refused(job: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_run_config({"job": job}, "it")
