"""The verb that looks for wrong labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.app import app, reading_of, verb
from headstart.cli.embed import may_be_written
from headstart.cli.flags import Given
from headstart.cli.settings import nested_settings
from headstart.cli.terminal import Bar, show, show_json, show_notes, show_table
from headstart.errors import UserError
from headstart.quantities import counted, points
from headstart.runs.disk import write_file

if TYPE_CHECKING:
    from headstart.data import LabelledConfig
    from headstart.study.audit import Audit

SHOWN = 10  # suspects


@verb(app, "audit")
def audit(given: Given) -> None:
    """Find training rows of DATA whose label is likely wrong. By out-of-fold probabilities; writes a table to correct."""
    from headstart.data import LabelledConfig
    from headstart.schema import parse
    from headstart.study.audit import audit as find

    if given["DATA"] is None:
        raise UserError("Missing DATA: labelled rows to audit.")
    settings: dict[str, Any] = nested_settings(given.settings(), None)
    data, applied, quiet = parse(LabelledConfig, settings["data"]), given["--apply"], given["--quiet"]
    out = Path(given["--out"] or ("corrected.csv" if applied else "suspects.csv"))
    if out.suffix.lower() != ".csv":
        raise UserError(f"--out takes a .csv file, not '{out}'.")
    may_be_written(out, [data.train, *([applied] if applied else [])], given["--overwrite"])
    if applied:
        _apply(given, data, out)
        return
    found = find(data, settings.get("bases", ("minilm",)), Bar(quiet))
    write_file(out, found.as_csv().encode())
    show_notes(found.notes, quiet)
    if given["--json"]:
        show_json({**found.record(), "file": str(out)})
    else:
        _show(found, out)


def _apply(given: Given, data: LabelledConfig, out: Path) -> None:
    from headstart.study.audit import corrected

    reading = reading_of(given)
    found = corrected(data, given["--apply"], reading)
    write_file(out, found.csv.encode())
    show_notes(reading.notes(), given["--quiet"])
    if given["--json"]:
        show_json({"file": str(out), "rows": found.rows, "changed": found.changed, "before": found.before})
    else:
        show(f"{out}: {counted(found.rows, 'row')}, {counted(found.changed, 'label')} changed")


def _show(found: Audit, out: Path) -> None:
    from headstart.show.nearest import shortened

    share = points(100 * len(found.suspects) / max(1, found.rows))
    show(f"{counted(len(found.suspects), 'label')} of {found.rows} training rows ({share} %) likely wrong: {out}")
    show("models: " + ", ".join(f"{name} (weight {weight:.2f})" for name, weight in found.models.items()))
    if found.held_out:
        show(f"{counted(found.held_out, 'test row', 'was', 'were')} held out and not looked at")
    if not found.suspects:
        return
    if found.measure == "confidence":  # of numbers, each pair is another
        pairs = Counter((each.label, each.suggested) for each in found.suspects).most_common(5)
        show("label → suggested: " + ", ".join(f"{a} → {b} {count}" for (a, b), count in pairs))
    show()
    rows = [
        [str(each.row), each.label, each.suggested, f"{each.surety:.2f}", each.votes, shortened(each.text, 80)]
        for each in found.suspects[:SHOWN]
    ]
    show_table(["row", "label", "suggested", found.measure, "votes", "text"], rows, right=(0, 3, 4))
