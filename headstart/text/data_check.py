"""What `headstart data check` and the page of an uploaded file report: the checks of hygiene.py on files. No training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headstart.config import TokenizerConfig
from headstart.data import Unit
from headstart.targets.labels import Labels
from headstart.targets.numbers import Numbers
from headstart.targets.target import Target
from headstart.targets.tasks import TARGETS
from headstart.text import hygiene
from headstart.text.classes import found_task
from headstart.text.files import PLAIN, Reading, is_blank
from headstart.text.layouts import shared_task
from headstart.text.read import read_examples, unlabelled
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
    shown = shared_task(paths.values(), text_column, label_column, reading)
    labels = [example.label for examples in parts.values() for example in examples]
    target = TARGETS[shown].of(labels) if shown else Numbers.of_model(()) if numbers else several_labels(labels)
    report = hygiene.check(parts, target)
    report["reading"] = reading.facts()
    if tokenizer:
        first = [example.text for example in next(iter(parts.values()))]
        made = tokenizer_for(first, TokenizerConfig(kind=tokenizer))
        report["vocabulary"] = made.size
        for name, examples in parts.items():
            report["splits"][name] = {**report["splits"][name], **hygiene.token_facts(examples, made, context)}
    report["warnings"] += hygiene.advice(report, context, target.task if target else "classify")
    report["warnings"] += filter(None, (unlabelled(path, label_column, reading) for path in paths.values()))
    return report


def several_labels(labels: Sequence[str]) -> Target | None:
    """The target of rows with several labels; None where they have one each."""
    task, separator = found_task(Counter(label for label in labels if not is_blank(label)), None)
    if task != "multilabel" or any(Labels.fault("", label, separator) for label in labels):
        return None
    return Labels.of(labels, separator)
