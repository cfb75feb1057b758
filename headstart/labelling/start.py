"""How a labelling session begins: a table or a text becomes a folder with features, or none at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headstart.errors import ConfigError, DataError, UserError
from headstart.labelling.features import AUTO, chosen_base, features_of
from headstart.labelling.journal import HEADER, line_of
from headstart.labelling.query import random_order
from headstart.labelling.session import FILE, FORMAT, RECORD, Record, Session
from headstart.quantities import counted
from headstart.runs.disk import write_folder
from headstart.runs.watch import Watch
from headstart.strict_json import to_json
from headstart.text.columns import Table
from headstart.text.duplicates import normal
from headstart.text.files import PLAIN, Reading, is_blank
from headstart.text.tables import choose_column, header_of
from headstart.text.visible import shown

FEWEST_ROWS = 20
MOST_ROWS = 20_000  # of a file; of more, a random sample
MOST_LABELS, LONGEST_LABEL = 50, 60

Row = tuple[int, str, str]  # its number in the file, its text, its label or nothing


def start(
    file: str | Path,
    labels: Sequence[str],
    out: str | Path,
    base: str = AUTO,
    text_column: str | None = None,
    label_column: str | None = None,
    reading: Reading = PLAIN,
    watch: Watch | None = None,
    seed: int = 0,
) -> Session:
    """A session of the rows of `file`. With a label column, the labels that it has are taken; others are asked for."""
    watch, out = watch or Watch(), Path(out)
    if os.path.lexists(out):
        raise UserError(f"{out} is there already. Choose another --out.", "FILE_EXISTS")
    used = chosen_base(base)
    rows, column = _rows(Path(file), text_column, label_column, reading)
    names = list(dict.fromkeys([*labels, *sorted({label for _, _, label in rows if label})]))
    must_be_labels(names)
    kept = _each_once(rows, watch)
    if len(kept) < FEWEST_ROWS:
        raise DataError(f"{file}: {counted(len(kept), 'different text')}; labelling where it pays needs {FEWEST_ROWS}.", "DATA_FEW")  # fmt: skip
    if len(kept) > MOST_ROWS:
        watch.note(f"{file}: {len(kept):,} different texts; {MOST_ROWS:,} of them by chance can be labelled.")
        known = [i for i, (_, _, label) in enumerate(kept) if label]
        drawn = dict.fromkeys([*known, *random_order(len(kept), seed).tolist()])
        kept = [kept[i] for i in sorted(list(drawn)[: max(MOST_ROWS, len(known))])]
    found = features_of([text for _, text, _ in kept], names, used, watch)
    record = Record(format=FORMAT, file=Path(file).name, text_column=column, labels=names, base=used, rows=len(kept), seed=seed)  # fmt: skip
    _write(out, record, kept, found.vectors, found.words)
    return Session.open(out)


def _rows(file: Path, text_column: str | None, label_column: str | None, reading: Reading) -> tuple[list[Row], str]:
    table, place = Table.open(file, text_column, reading), None
    if label_column:
        header = header_of(file, reading)
        place = list(table.types).index(choose_column(file, header, (label_column, (), "--label-column"), reading))
    rows: list[Row] = []
    for part in table.parts(1000):
        for text, values in zip(part.texts, part.rows, strict=True):
            given = "" if place is None or values[place] is None else str(values[place]).strip()
            rows.append((len(rows) + 1, text, given))
    return rows, table.text_column


def _each_once(rows: Sequence[Row], watch: Watch) -> list[Row]:
    """The rows without blank texts and duplicates; of those, one with a label stays."""
    kept: dict[str, Row] = {}
    blank = 0
    for row in rows:
        if is_blank(row[1]):
            blank += 1
            continue
        key = normal(row[1])
        if key not in kept or (row[2] and not kept[key][2]):
            kept[key] = row
    same = len(rows) - blank - len(kept)
    if blank or same:
        watch.note(f"{counted(blank, 'blank text')} and {counted(same, 'duplicate')} are not asked for.")
    return sorted(kept.values())


def must_be_labels(names: Sequence[str]) -> None:
    """Refuse names of labels that cannot be used."""
    if not 2 <= len(names) <= MOST_LABELS:
        raise ConfigError(f"{counted(len(names), 'label')}; labelling needs 2 to {MOST_LABELS}: --labels NAME,NAME.")
    for name in names:
        if not name.strip() or name != name.strip() or len(name) > LONGEST_LABEL or shown(name) != name or "\n" in name:
            raise ConfigError(f"'{shown(name)[:80]}' cannot be a label: 1 to {LONGEST_LABEL} characters, without control characters or outer spaces.")  # fmt: skip


def _write(out: Path, record: Record, rows: Sequence[Row], vectors: object, words: object) -> None:
    from safetensors.numpy import save

    texts = "".join(to_json({"row": number, "text": text}) + "\n" for number, text, _ in rows)
    given = "".join(line_of("label", number, label, FILE) for number, _, label in rows if label)
    write_folder(
        out,
        {
            RECORD: to_json(record.model_dump(), indent=1).encode(),
            "texts.jsonl": texts.encode(),
            "features.safetensors": save({"vectors": vectors, "words": words}),  # type: ignore[dict-item]
            "labels.csv": (HEADER + given).encode(),
        },
    )
