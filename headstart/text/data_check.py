"""What `headstart data check` and the page of an uploaded file report: the checks of hygiene.py on files. No training."""

from __future__ import annotations

from collections.abc import Mapping

from headstart.config import TokenizerConfig
from headstart.data import Unit
from headstart.targets.numbers import Numbers
from headstart.targets.tags import Tags
from headstart.text import hygiene
from headstart.text.files import PLAIN, Reading
from headstart.text.read import read_examples, unlabelled
from headstart.text.tagged import is_tagged
from headstart.text.tokenizer import tokenizer_for


def check_data(
    paths: Mapping[str, str],
    unit: Unit = "line",
    text_column: str | None = None,
    label_column: str | None = None,
    reading: Reading = PLAIN,
    tokenizer: str | None = None,
    context: int | None = None,
    numbers: bool = False,
) -> hygiene.HygieneReport:
    """Rows, labels, lengths, duplicates and leaks of files, which stand under the names of their parts.

    With `numbers`, labels are numbers, of which each may stand in one row alone.
    """
    parts = {name: read_examples(path, unit, text_column, label_column, reading) for name, path in paths.items()}
    tagged = all(is_tagged(path, text_column, label_column, reading) for path in paths.values())
    labels = [example.label for examples in parts.values() for example in examples]
    report = hygiene.check(parts, Tags.of(labels) if tagged else Numbers.of_model(()) if numbers else None)
    report["reading"] = reading.facts()
    if tokenizer:
        first = [example.text for example in next(iter(parts.values()))]
        made = tokenizer_for(first, TokenizerConfig(kind=tokenizer))
        report["vocabulary"] = made.size
        for name, examples in parts.items():
            report["splits"][name] = {**report["splits"][name], **hygiene.token_facts(examples, made, context)}
    report["warnings"] += hygiene.advice(report, context)
    report["warnings"] += filter(None, (unlabelled(path, label_column, reading) for path in paths.values()))
    return report
