"""The verbs of a labelling session: start it, ask for rows, answer, see what it brings, take the labels away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headstart.cli.app import group, reading_of, verb
from headstart.cli.embed import may_be_written
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_notes, show_table
from headstart.errors import UserError
from headstart.quantities import counted
from headstart.runs.disk import write_file

if TYPE_CHECKING:
    from headstart.labelling.advice import Status

label = group("label", "Label rows where it pays, and know when to stop.")


@verb(label, "label start")
def start(given: Given) -> None:
    """Start a labelling session of the texts in FILE. Computes their features once."""
    from headstart.hub.packs import located
    from headstart.labelling.start import start as begin

    reading, names = reading_of(given), [name.strip() for name in (given["--labels"] or "").split(",") if name.strip()]
    made = begin(
        located(given["FILE"]), names, given["--out"], given["--base"], given["--text-column"], given["--label-column"],
        reading, Bar(given["--quiet"]), given["--seed"],
    )  # fmt: skip
    show_notes(reading.notes(), given["--quiet"])
    if given["--json"]:
        show_json({**made.record.model_dump(), "folder": str(made.path)})
        return
    record = made.record
    show(
        f"{made.path}: {counted(record.rows, 'row')} to label as {', '.join(record.labels)}; features of {record.base}"
    )
    show(f"headstart label next {made.path}, or headstart serve and open the page Label")


@verb(label, "label next")
def next_rows(given: Given) -> None:
    """Print the rows to label next. Uncertain and spread out; every fourth by chance, to measure the accuracy."""
    from headstart.labelling.session import Session
    from headstart.text.visible import shown

    rows = Session.open(given["DIR"]).next(given["--count"])
    if given["--json"]:
        show_json([{"row": each.row, "text": each.text, "random": each.random} for each in rows])
        return
    for each in rows:
        show(f"{each.row}\t{shown(' '.join(each.text.split()))}")
    if not rows:
        show_notes(["Every row is labelled or skipped."])


@verb(label, "label add")
def add(given: Given) -> None:
    """Label ROW. The label is on the disk when this returns."""
    from headstart.labelling.session import Session

    session, row, by = Session.open(given["DIR"]), given["ROW"], given["--by"]
    if sum([given["LABEL"] is not None, given["--skip"], given["--undo"]]) != 1:
        raise UserError("Give one of LABEL, --skip and --undo.")
    if given["--skip"]:
        session.skip(row, by)
    elif given["--undo"]:
        session.undo(row, by)
    else:
        session.add(row, given["LABEL"], by)
    labelled, skipped = session.counts()
    if given["--json"]:
        show_json({"labelled": labelled, "skipped": skipped})
    else:
        show(f"{counted(labelled, 'label')}, {skipped} skipped")


@verb(label, "label status")
def status(given: Given) -> None:
    """Print the learning curve of a session. And what more labels are expected to bring."""
    from headstart.labelling.session import Session

    found = Session.open(given["DIR"]).status()
    if given["--json"]:
        show_json(found.model_dump(mode="json"))
        return
    _show(found)


def _show(found: Status) -> None:
    counts = ", ".join(f"{name} {count}" for name, count in found.counts.items())
    show(f"{counted(found.labelled, 'label')} of {found.rows:,} rows ({counts}); {found.skipped} skipped")
    if found.curve:
        show()
        rows = [[str(p.labels), f"{p.accuracy:.3f}", f"{p.low:.3f} to {p.high:.3f}"] for p in found.curve]
        show_table(["labels", "accuracy", "95 % interval"], rows, right=(0, 1))
        show(f"measured on {counted(found.random, 'random row')}")
    show()
    show(found.advice)


@verb(label, "label export")
def export(given: Given) -> None:
    """Write the labels of a session as a table for headstart compare."""
    from headstart.labelling.session import Session
    from headstart.labelling.table import labelled_csv

    session, out, test = Session.open(given["DIR"]), Path(given["--out"]), given["--test"]
    files = {out: labelled_csv(session, None if test is None else False)}
    if test is not None:
        files[Path(test)] = labelled_csv(session, True)
    if len(files) != 1 + (test is not None):
        raise UserError("--out and --test take two files.")
    for file in files:
        if file.suffix.lower() != ".csv":
            raise UserError(f"--out and --test take a .csv file, not '{file}'.")
        may_be_written(file, [], given["--overwrite"])
    for file, table in files.items():
        write_file(file, table.csv.encode())
    if given["--json"]:
        show_json({"files": {str(file): table.rows for file, table in files.items()}})
        return
    for file, table in files.items():
        show(f"{file}: {counted(table.rows, 'row')}")
    if test is None:
        show_notes(["Chosen rows are harder than others: --test writes the random part apart, for a fair test."])
