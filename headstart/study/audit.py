"""Labels of training rows that are likely wrong: found, written as a table to correct, and put right. Torch is loaded when it runs.

The table (`headstart audit DATA --out suspects.csv`) has a line for each suspect, the likeliest first:

    row         of DATA, from 1, below the header
    text, label as DATA has them; a text that a spreadsheet would compute has ' before it
    suggested   the most probable other label: edit it, or delete the line to keep the label
    confidence  the probability of `suggested`, out of fold
    votes       of the models, how many find `suggested` the most probable, as 5/6

Test rows are never read into a model, suggested on or changed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.quantities import counted
from headstart.runs.watch import Watch
from headstart.schema import Frozen
from headstart.study.which import training_rows
from headstart.text.columns import Table
from headstart.text.duplicates import normal
from headstart.text.files import PLAIN, Reading
from headstart.text.read import LABEL_COLUMNS, Example, read_labelled
from headstart.text.rows import escaped
from headstart.text.tables import choose_column, header_of, is_table, read_columns

if TYPE_CHECKING:
    from headstart.bases.label_errors import Floats, Ints
    from headstart.bases.routes import BaseFeatures

REPEATS = 2  # of the cross-validation, with other folds
COLUMNS = ("row", "text", "label", "suggested", "confidence", "votes")


class Suspect(Frozen):
    """A row whose label is likely wrong."""

    row: int
    text: str
    label: str
    suggested: str
    confidence: float
    votes: str


class Audit(Frozen):
    rows: int  # that were judged
    held_out: int  # test rows, which were not
    models: dict[str, float]  # their weights
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]

    def as_csv(self) -> str:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(COLUMNS)
        for each in self.suspects:
            writer.writerow(
                [each.row, escaped(each.text), each.label, each.suggested, f"{each.confidence:.4f}", each.votes]
            )
        return table.getvalue()


def audit(data: LabelledConfig, bases: Sequence[str], watch: Watch | None = None) -> Audit:
    """The training rows of `data` whose label is likely wrong, by TF-IDF and by probes on each base."""
    from headstart.bases.routes import ROUTES, Rows
    from headstart.bases.selection import Prompting, opened

    watch, notes = watch or Watch(), list[str]()
    whole = training_rows(data, ("classify", "ordinal"))
    numbered, held_out = judged_rows(data, whole.train)
    examples = [example for _, example in numbered]
    features: dict[str, BaseFeatures] = {}
    for base in dict.fromkeys(bases):
        watch.note(f"Opening {base} ...")
        candidate = opened(base, whole.labels, Prompting(), ROUTES, notes, must_open=True)
        assert candidate is not None
        features[base] = candidate.features(Rows(examples, whole.labels))
    found = models_of(examples, whole.labels, features, watch)
    return _audit(numbered, whole.labels, found, held_out, [*whole.reading.notes(), *notes])


def judged_rows(data: LabelledConfig, training: Sequence[Example]) -> tuple[list[tuple[int, Example]], int]:
    """The training rows with their numbers in the file, and how many others it has. Duplicates are always in one part of a split."""
    known = {normal(example.text) for example in training}
    rows = read_labelled(data.train, data.text_column, data.label_column, Reading(data))
    found = [(number, row) for number, row in enumerate(rows, start=1) if normal(row.text) in known]
    return found, len(rows) - len(found)


def models_of(
    rows: Sequence[Example], labels: Sequence[str], features: Mapping[str, BaseFeatures], watch: Watch
) -> dict[str, Floats]:
    """The out-of-fold probabilities by each model, (R, N, C): TF-IDF, and probes on each base."""
    from headstart.bases.out_of_fold import fold_numbers, out_of_fold, probe_model, prompted_model, tfidf_model

    texts, targets = [row.text for row in rows], np.array([labels.index(row.label) for row in rows])
    fits = {"tfidf": tfidf_model(texts, targets, len(labels))}
    for base, read in features.items():
        vectors = {pool: found.numpy() for pool, found in read.plain.items()}
        fits[f"{base} frozen"] = probe_model(vectors, targets, len(labels))
        if read.prompts:
            fits[f"{base} prompt:frozen"] = prompted_model(read, targets)
    folds, found, done = [fold_numbers(texts, targets, repeat) for repeat in range(REPEATS)], {}, 0
    with watch.bar("Cross-validating", len(fits) * REPEATS):
        for name, fit in fits.items():
            repeats = []
            for each in folds:
                repeats.append(out_of_fold(fit, targets, len(labels), each))
                done += 1
                watch.reach(done, name)
            found[name] = np.stack(repeats)
    return found


def _audit(
    numbered: Sequence[tuple[int, Example]],
    labels: Sequence[str],
    models: Mapping[str, Floats],
    held_out: int,
    notes: list[str],
) -> Audit:
    from headstart.bases.label_errors import audited

    targets: Ints = np.array([labels.index(example.label) for _, example in numbered])
    different = {label: {normal(e.text) for _, e in numbered if e.label == label} for label in labels}
    single = [label for label in labels if len(different[label]) < 2]
    if single:
        notes.append(f"Labels with one text only cannot be judged: {', '.join(single[:10])}.")
    judged = np.array([example.label not in single for _, example in numbered])
    found = audited(np.stack(list(models.values())), targets, judged)
    suspects = tuple(
        Suspect(
            row=numbered[i][0],
            text=numbered[i][1].text,
            label=numbered[i][1].label,
            suggested=labels[found.suggested[i]],
            confidence=float(found.probabilities[i, found.suggested[i]]),
            votes=f"{found.votes[i]}/{REPEATS * len(models)}",
        )
        for i in found.flagged
    )
    weights = dict(zip(models, found.weights.tolist(), strict=True))
    return Audit(rows=int(judged.sum()), held_out=held_out, models=weights, suspects=suspects, notes=tuple(notes))


@dataclass(frozen=True)
class Corrected:
    """A table with other labels, and how many they are."""

    csv: str
    rows: int
    changed: int
    before: dict[str, int]  # changes by the label before


def corrected(data: LabelledConfig, suspects: str | Path, reading: Reading = PLAIN) -> Corrected:
    """The table of `data`, every column kept, with the labels that the table of suspects suggests."""
    path = Path(data.train)
    if not is_table(path):
        raise DataError(f"{path}: labels are corrected in a table, not in a folder.", "DATA_FORMAT")
    wanted = _suggestions(Path(suspects), reading)
    table = Table.open(path, data.text_column, reading)
    column = choose_column(
        path, header_of(path, reading), (data.label_column, LABEL_COLUMNS, "--label-column"), reading
    )
    place, written = list(table.types).index(column), io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(table.types)
    number, before = 0, dict[str, int]()
    for part in table.parts(1000):
        for text, values in zip(part.texts, part.rows, strict=True):
            number += 1
            if number in wanted:
                _correct(path, number, text, values, place, wanted.pop(number), before)
            writer.writerow(values)
    if wanted:
        raise DataError(
            f"{suspects}: {path} has no row {min(wanted)}; it has {counted(number, 'row')}.", "DATA_CHANGED"
        )
    return Corrected(written.getvalue(), number, sum(before.values()), before)


def _correct(
    path: Path,
    number: int,
    text: str,
    values: list[Any],
    place: int,
    wanted: tuple[str, str, str],
    before: dict[str, int],
) -> None:
    old, label, suggested = str(values[place]), wanted[1], wanted[2]
    if normal(wanted[0]) not in (normal(text), normal(escaped(text))) or old != label:
        raise DataError(
            f"{path}, row {number}: not the text and label that were audited. Audit it again.", "DATA_CHANGED"
        )
    if not suggested.strip():
        raise DataError(
            f"Row {number}: 'suggested' is blank. Give a label, or delete the line to keep '{label}'.", "DATA_LABEL"
        )
    if suggested != old:
        values[place] = suggested
        before[old] = before.get(old, 0) + 1


def _suggestions(path: Path, reading: Reading) -> dict[int, tuple[str, str, str]]:
    """For each row its text, its label and the suggested one."""
    columns = [(name, (), "--apply") for name in COLUMNS[:4]]
    found: dict[int, tuple[str, str, str]] = {}
    for row, text, label, suggested in read_columns(path, columns, reading):
        if not row.isdecimal():
            raise DataError(f"{path}: '{row}' is no number of a row.", "DATA_FORMAT")
        found[int(row)] = text, label, suggested
    if not found:
        raise DataError(f"{path}: no rows below the header.", "DATA_EMPTY")
    return found
