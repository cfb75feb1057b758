"""Labels of training rows that are likely wrong: found, written as a table to correct, and put right. Torch is loaded when it runs.

The table (`headstart audit DATA --out suspects.csv`) has a line for each suspect, the likeliest first:

    row         of DATA, from 1, below the header
    text, label as DATA has them; a text that a spreadsheet would compute has ' before it
    suggested   the most probable other label: edit it, or delete the line to keep the label
    confidence  the probability of `suggested`, out of fold; of several labels, of the surest change
    deviation   in place of it where labels are numbers: how far `label` is from `suggested`, in robust standard deviations
    votes       of the models, how many would suggest the same, as 5/6

Test rows are never read into a model, suggested on or changed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.quantities import counted
from headstart.runs.watch import Watch
from headstart.schema import Frozen
from headstart.study.which import training_rows
from headstart.targets.labels import Labels, labels_in
from headstart.targets.target import Target
from headstart.text.columns import Table
from headstart.text.duplicates import normal
from headstart.text.files import PLAIN, Reading
from headstart.text.read import Example, label_columns, read_labelled, text_columns
from headstart.text.rows import escaped
from headstart.text.tables import TABLES, choose_column, header_of, is_table, read_columns

if TYPE_CHECKING:
    from headstart.bases.label_errors import Floats
    from headstart.bases.routes import BaseFeatures

REPEATS = 2  # of the cross-validation, with other folds
READ = ("row", "text", "label", "suggested")  # columns of the table of suspects that correct the data


class Suspect(Frozen):
    """A row whose label is likely wrong."""

    row: int
    text: str
    label: str
    suggested: str
    surety: float  # the confidence, or the deviation
    votes: str


class Audit(Frozen):
    measure: Literal["confidence", "deviation"]  # of the suspects
    rows: int  # that were judged
    held_out: int  # test rows, which were not
    models: dict[str, float]  # their weights
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]

    def as_csv(self) -> str:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*READ, self.measure, "votes"])
        for each in self.suspects:
            writer.writerow(
                [each.row, escaped(each.text), each.label, each.suggested, f"{each.surety:.4f}", each.votes]
            )
        return table.getvalue()

    def record(self) -> Mapping[str, Any]:
        """For JSON, with the surety under its name."""
        found = self.model_dump(mode="json", exclude={"measure"})
        for suspect in found["suspects"]:
            suspect[self.measure] = suspect.pop("surety")
        return found


def audit(data: LabelledConfig, bases: Sequence[str], watch: Watch | None = None) -> Audit:
    """The training rows of `data` whose label is likely wrong, by TF-IDF and by probes on each base."""
    from headstart.bases.at_hand import must_have_weights
    from headstart.bases.routes import ROUTES, Rows
    from headstart.bases.selection import Prompting, opened

    watch, notes = watch or Watch(), list[str]()
    must_have_weights(bases)
    whole = training_rows(data)
    numbered, held_out = judged_rows(data, whole.train)
    examples = [example for _, example in numbered]
    features: dict[str, BaseFeatures] = {}
    for base in dict.fromkeys(bases):
        watch.note(f"Opening {base} ...")
        candidate = opened(base, whole.labels, Prompting(), ROUTES, notes, must_open=True, task=whole.target.task)
        assert candidate is not None
        features[base] = candidate.features(Rows(examples, whole.labels, whole.target))
    found = models_of(examples, whole.target, features, watch)
    return _audit(numbered, whole.target, found, held_out, [*whole.reading.notes(), *notes])


def judged_rows(data: LabelledConfig, training: Sequence[Example]) -> tuple[list[tuple[int, Example]], int]:
    """The training rows with their numbers in the file, and how many others it has. Duplicates are always in one part of a split."""
    known = {normal(example.text) for example in training}
    rows = read_labelled(data.train, data.text_column, data.label_column, Reading(data), keep_blank=True)
    found = [(number, row) for number, row in enumerate(rows, start=1) if normal(row.text) in known]
    return found, len(rows) - len(found)


def models_of(
    rows: Sequence[Example], target: Target, features: Mapping[str, BaseFeatures], watch: Watch
) -> dict[str, Floats]:
    """The out-of-fold outputs of each model, (R, N, K): TF-IDF, and probes on each base."""
    from headstart.bases.out_of_fold import fold_numbers, out_of_fold, probe_model, prompted_model, tfidf_model

    texts, labels = [row.text for row in rows], [row.label for row in rows]
    truth, strata = target.encode(labels), target.strata(labels)
    spread = np.unique([str(stratum) for stratum in strata], return_inverse=True)[1]
    fits = {"tfidf": tfidf_model(texts, target, truth)}
    for base, read in features.items():
        vectors = {pool: found.numpy() for pool, found in read.plain.items()}
        fits[f"{base} frozen"] = probe_model(vectors, target, truth)
        if read.prompts:
            fits[f"{base} prompt:frozen"] = prompted_model(read, truth)
    folds, found, done = [fold_numbers(texts, spread, repeat) for repeat in range(REPEATS)], {}, 0
    with watch.bar("Cross-validating", len(fits) * REPEATS):
        for name, fit in fits.items():
            repeats = []
            for each in folds:
                repeats.append(out_of_fold(fit, target, truth, each))
                done += 1
                watch.reach(done, name)
            found[name] = np.stack(repeats)
    return found


def _audit(
    numbered: Sequence[tuple[int, Example]],
    target: Target,
    models: Mapping[str, Floats],
    held_out: int,
    notes: list[str],
) -> Audit:
    from headstart.bases.label_errors import audited, audited_labels, audited_numbers

    examples, outputs = [example for _, example in numbered], np.stack(list(models.values()))
    truth, single = target.encode([example.label for example in examples]), single_labels(examples, target)
    judged = np.ones(len(examples), dtype=bool)
    if target.numeric:
        found = audited_numbers(outputs[..., 0], truth)
    elif isinstance(target, Labels):
        found = audited_labels(outputs, truth, np.array([name not in single for name in target.names]))
    else:
        judged = np.array([example.label not in single for example in examples])
        found = audited(outputs, truth, judged)
    if single:
        notes.append(f"Labels with one text only cannot be judged: {', '.join(single[:10])}.")
    suspects = tuple(
        Suspect(
            row=numbered[i][0],
            text=examples[i].text,
            label=examples[i].label,
            suggested=target.cell(found.suggested[i], like=examples[i].label),
            surety=float(found.confidence[i]),
            votes=f"{found.votes[i]}/{REPEATS * len(models)}",
        )
        for i in found.flagged
    )
    return Audit(
        measure="deviation" if target.numeric else "confidence",
        rows=int(judged.sum()),
        held_out=held_out,
        models=dict(zip(models, found.weights.tolist(), strict=True)),
        suspects=suspects,
        notes=tuple(notes),
    )


def single_labels(rows: Sequence[Example], target: Target) -> list[str]:
    """Labels that only one text has."""
    texts: dict[str, set[str]] = {name: set() for name in target.names}
    for row in rows:
        for name in target.names_in(row.label):
            texts[name].add(normal(row.text))
    return [name for name, those in texts.items() if len(those) < 2]


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
        raise DataError(f"{path}: labels are corrected in a table ({', '.join(TABLES)}).", "DATA_FORMAT")
    wanted, header = _suggestions(Path(suspects), reading), header_of(path, reading)
    texts = text_columns(path, header, data.text_column, reading)
    rows = read_labelled(path, data.text_column, data.label_column, reading, keep_blank=True)
    table = Table.open(path, choose_column(path, header, texts[0], reading), reading)
    columns = [
        choose_column(path, header, column, reading)
        for column in label_columns(path, header, data.label_column, texts, reading)
    ]
    places, written = [list(table.types).index(column) for column in columns], io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(table.types)
    number, before = 0, dict[str, int]()
    for part in table.parts(1000):
        for values in part.rows:
            number += 1
            if number in wanted:
                label = _suggested(path, number, rows[number - 1], wanted.pop(number))
                if label != rows[number - 1].label:
                    _write(values, places, columns, label)
                    before[rows[number - 1].label] = before.get(rows[number - 1].label, 0) + 1
            writer.writerow(values)
    if wanted:
        raise DataError(
            f"{suspects}: {path} has no row {min(wanted)}; it has {counted(number, 'row')}.", "DATA_CHANGED"
        )
    return Corrected(written.getvalue(), number, sum(before.values()), before)


def _suggested(path: Path, number: int, row: Example, line: tuple[str, str, str]) -> str:
    """The label that a line of the table of suspects has for a row; refused where it was made from another row."""
    text, label, suggested = line
    if normal(text) not in (normal(row.text), normal(escaped(row.text))) or row.label != label:
        raise DataError(
            f"{path}, row {number}: not the text and label that were audited. Audit it again.", "DATA_CHANGED"
        )
    if not suggested.strip():
        raise DataError(
            f"Row {number}: 'suggested' is blank. Give a label, or delete the line to keep '{label}'.", "DATA_LABEL"
        )
    return suggested


def _write(values: list[Any], places: Sequence[int], columns: Sequence[str], label: str) -> None:
    """A label into its cell; several into their columns of 0 and 1."""
    if len(places) == 1:
        values[places[0]] = label
        return
    there = labels_in(label)
    if strange := sorted(set(there) - set(columns)):
        raise DataError(f"'suggested' has the label '{strange[0]}', for which there is no column.", "DATA_LABEL")
    for place, column in zip(places, columns, strict=True):
        values[place] = int(column in there)


def _suggestions(path: Path, reading: Reading) -> dict[int, tuple[str, str, str]]:
    """For each row its text, its label and the suggested one."""
    columns = [(name, (), "--apply") for name in READ]
    found: dict[int, tuple[str, str, str]] = {}
    for row, text, label, suggested in read_columns(path, columns, reading):
        if not row.isdecimal():
            raise DataError(f"{path}: '{row}' is no number of a row.", "DATA_FORMAT")
        found[int(row)] = text, label, suggested
    if not found:
        raise DataError(f"{path}: no rows below the header.", "DATA_EMPTY")
    return found
