"""A table labelled row by row: every column of the input, and behind them the label and its probability. No torch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np

from headstart.errors import UserError
from headstart.runs.disk import draft_file
from headstart.runs.watch import Watch
from headstart.strict_json import to_json
from headstart.targets.classes import Classes
from headstart.targets.target import Target
from headstart.tasks.calibration import label_set
from headstart.text.files import PLAIN, Reading
from headstart.text.inputs import lacks_text
from headstart.text.table_stream import TableStream, must_not_be_blank
from headstart.text.table_writer import Added, format_of, must_fit, must_not_clash, writer_of
from headstart.use.label_sets import Doubt


class Classifier(Protocol):
    """A run, or an .onnx file."""

    @property
    def target(self) -> Target: ...

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]: ...

    def predict(self, texts: Sequence[str]) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Columns:
    """The columns to add."""

    prefix: str = ""  # before the names of all of them
    every: bool = False  # also the probability of every label
    doubt: Doubt = field(default_factory=Doubt)
    numbered: bool = False  # where columns with the prefix are there already, the next number joins it

    def beside(self, names: Sequence[str]) -> Columns:
        """The columns for a table with columns of these names.

        >>> Columns("predicted_", numbered=True).beside(["text", "predicted_label"]).prefix
        'predicted_2_'
        """
        if not self.numbered:
            return self
        prefixes = (self.prefix, *(f"{self.prefix}{i}_" for i in range(2, len(names) + 3)))
        return replace(self, prefix=next(new for new in prefixes if not any(name.startswith(new) for name in names)))

    def added(self, target: Target) -> Added:
        """Their names, and what they hold."""
        if target.list_column:
            return {f"{self.prefix}{target.list_column}": str}
        number = target.numeric
        names: dict[str, type] = {"label": float} if number else {"label": str, "probability": float}
        if self.doubt.largest is not None:
            names["label_set"] = list
        if self.every and not number:
            names |= {f"probability_{label}": float for label in target.names}
        return {f"{self.prefix}{name}": kind for name, kind in names.items()}

    def values(self, target: Target, row: Sequence[float] | None) -> list[Any]:
        """Their values for a row of outputs; None: the text is blank. Several labels are joined by |."""
        if row is None:
            return [None] * len(self.added(target))
        answer = target.answers(np.array([row]))[0]
        written = target.written(answer)
        if isinstance(written, float):
            return [written]
        label: str | None = written if isinstance(written, str) else "|".join(written)
        sure = row[int(answer)] if isinstance(written, str) else max(row)
        if sure < self.doubt.abstain_below:
            label = None
        found = [] if self.doubt.largest is None else [label_set(target.names, row, self.doubt.largest)]
        return [label, sure, *found, *(row if self.every else ())]


class LabelledFile(TypedDict):
    file: str
    rows: int
    blank: int  # rows without a text, which have no label
    abstained: int  # rows that the model was not sure enough of
    labels: dict[str, int]  # rows of each label


def label_file(
    load: Callable[[], Classifier],
    source: str | Path,
    out: str | Path,
    columns: Columns,
    text_column: str | None = None,
    reading: Reading = PLAIN,
    skip_blank: bool = False,
    overwrite: bool = False,
    watch: Watch | None = None,
) -> LabelledFile:
    """Write the table `source` with its labels to `out`, whole or not at all; what was written.

    The rows are read twice and never all at once: a fault in any of them is found before the model is loaded.
    """
    source, out, watch = Path(source), Path(out), watch or Watch()
    form = format_of(out, source)
    _must_be_free(out, source, overwrite)
    stream = TableStream(source, text_column, reading)
    scan = stream.scan(lambda chunk, before: must_fit(chunk, form, source, before))
    if not skip_blank:
        must_not_be_blank(scan, source)
    columns = columns.beside(scan.names)
    must_not_clash(source, scan, columns.added(Classes(())), form)
    model = load()
    columns.doubt.must_suit(model.target)
    added = columns.added(model.target)
    must_not_clash(source, scan, added, form)
    found: Counter[str] = Counter()
    done = unsure = 0
    with (
        draft_file(out) as draft,
        watch.bar(f"labelling {source.name}", scan.rows),
        closing(writer_of(form, draft, source, scan, added)) as writer,
    ):
        for chunk in stream.chunks(scan):
            if model.target.list_column:
                values, counted = _listed(model, chunk.texts, form)
                found.update(counted)
            else:
                values = list(map(partial(columns.values, model.target), _probabilities(model, chunk.texts)))
                found.update(str(label) for label, *_ in values if label is not None and not isinstance(label, float))
            writer.write(chunk, values)
            unsure += sum(label is None for label, *_ in values)
            done += len(values)
            watch.reach(done, "rows")
    abstained = unsure - scan.blanks
    return {
        "file": str(out),
        "rows": done,
        "blank": scan.blanks,
        "abstained": abstained,
        "labels": dict(sorted(found.items())),
    }


def _listed(model: Classifier, texts: Sequence[str], form: str) -> tuple[list[list[Any]], Counter[str]]:
    """The list of each text, as JSON where a column has one type; and how many parts there are of each label."""
    found = [model.target.listed(record) for record in model.predict([text for text in texts if not lacks_text(text)])]
    counts = Counter(part["label"] if isinstance(part, Mapping) else part for parts in found for part in parts)
    cells = iter(found)
    values = [None if lacks_text(text) else next(cells) for text in texts]
    whole = form not in (".parquet", ".arrow")
    return [[value if whole or value is None else to_json(value)] for value in values], counts


def _probabilities(model: Classifier, texts: Sequence[str]) -> list[list[float] | None]:
    """A row for each text; None for a blank one."""
    rows = iter(model.probabilities([text for text in texts if not lacks_text(text)]))
    return [None if lacks_text(text) else next(rows) for text in texts]


def _must_be_free(out: Path, source: Path, overwrite: bool) -> None:
    if os.path.exists(out) and os.path.exists(source) and os.path.samefile(out, source):
        raise UserError(f"--out {out} is the file that is read. Choose another.", "FILE_EXISTS")
    if os.path.lexists(out) and not overwrite:
        raise UserError(f"{out} already exists. Choose another --out, or give --overwrite.", "FILE_EXISTS")
    if os.path.isdir(out):
        raise UserError(f"--out {out} is a folder. Name a file.", "FILE_EXISTS")
