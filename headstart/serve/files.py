"""Uploaded files: text or tables, kept below FOLDER/files under their SHA-256. A file of a client is never opened as a model.

files/<sha256>/name.csv    letters, digits, - and _ of the name that was given, and one of ENDINGS
files/<sha256>/name.json   the name as it was given
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from headstart.data import LabelledConfig
from headstart.errors import DataError
from headstart.regular_file import read_regular
from headstart.runs.disk import attempt, make_folder, sync_folder, write_file
from headstart.serve.problems import Refused, scrubbed
from headstart.serve.settings import OWN
from headstart.study.plan import usual_arms
from headstart.task import Task
from headstart.text.classes import found_task
from headstart.text.data_check import check_data
from headstart.text.files import Reading
from headstart.text.hygiene import NO_CLASSES, HygieneReport
from headstart.text.inputs import INPUTS, input_of, wanted_texts
from headstart.text.layouts import ENDINGS as LAYOUT_ENDINGS
from headstart.text.layouts import layout_task
from headstart.text.read import LABEL_COLUMNS, TEXT_COLUMNS, read_examples
from headstart.text.tables import find_column, header_of, is_table

ENDINGS = (".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".parquet", ".txt", *LAYOUT_ENDINGS)
FOLDER = "files"
FILE_ID = r"^[0-9a-f]{64}$"
PREVIEWED = 10  # rows
SHOWN = 300  # characters of a text in the preview


@dataclass(frozen=True)
class Upload:
    id: str  # SHA-256 of its bytes
    name: str  # as it was given, to be shown
    path: Path
    bytes: int


class PreviewRow(TypedDict):
    text: str
    label: str


class Preview(TypedDict):
    columns: list[str]
    text_column: str | None
    label_column: str | None
    rows: list[PreviewRow]
    check: HygieneReport
    notes: list[str]
    task: Task
    arms: list[str]  # of a study that names none


class Files:
    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder.absolute() / FOLDER, most
        self.drafts = folder.absolute() / OWN / "uploads"

    def all(self) -> list[Upload]:
        """Every uploaded file, newest first."""
        found = [path for path in self.folder.glob("*/name.json") if re.fullmatch(FILE_ID, path.parent.name)]
        return [self._upload(path.parent) for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)]

    def get(self, wanted: str) -> Upload:
        if not re.fullmatch(FILE_ID, wanted) or not (self.folder / wanted / "name.json").is_file():
            raise DataError("There is no file of this id. Upload it first.", "FILE_MISSING")
        return self._upload(self.folder / wanted)

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> Upload:
        """A file as it streams in; it is there whole or not at all."""
        stem, ending = _safe(name)
        if len(self.all()) >= self.most:
            raise Refused(f"There are {self.most} uploaded files already. Remove some.", "TOO_MANY")
        make_folder(self.drafts)
        draft, digest, size = self.drafts / secrets.token_hex(16), hashlib.sha256(), 0
        try:
            with draft.open("xb") as file:
                async for part in parts:
                    digest.update(part)
                    size += len(part)
                    attempt(draft, lambda part=part: file.write(part), len(part), ())  # type: ignore[misc]
                file.flush()
                os.fsync(file.fileno())
            if not size:
                raise DataError(f"{name}: the file is empty.", "DATA_EMPTY")
            place = self.folder / digest.hexdigest()
            make_folder(place)
            if not (place / "name.json").exists():
                os.replace(draft, place / f"{stem}{ending}")
                sync_folder(place)
                write_file(place / "name.json", json.dumps({"name": name, "file": f"{stem}{ending}"}).encode())
        finally:
            draft.unlink(missing_ok=True)
        return self.get(digest.hexdigest())

    def remove(self, wanted: str) -> None:
        shutil.rmtree(self.get(wanted).path.parent)

    def columns(self, wanted: str) -> list[str]:
        """The names in the header of a table; none of a file that is no table."""
        file, reading = self.get(wanted), Reading(LabelledConfig(train=""))
        return [name for name in header_of(file.path, reading).names if name] if is_table(file.path, reading) else []

    def preview(
        self, wanted: str, text_column: str | None = None, label_column: str | None = None, task: Task | None = None
    ) -> Preview:
        """The first rows, the columns and the task that were found, and what `headstart data check` reports."""
        file, reading, named = self.get(wanted), Reading(LabelledConfig(train="")), text_column
        given = text_column, label_column
        examples = read_examples(file.path, "line", text_column, label_column, reading)
        columns: list[str] = []
        reads = input_of([e.text for e in examples[:1]])
        if is_table(file.path, reading):
            header = header_of(file.path, reading)
            columns = header.names
            text_column = next(iter(find_column(header, (text_column, TEXT_COLUMNS, "--text-column"))), None)
            label_column = next(iter(find_column(header, (label_column, LABEL_COLUMNS, "--label-column"))), None)
            if INPUTS[reads].several:
                both = wanted_texts(header, named, TEXT_COLUMNS)
                text_column = ",".join(find_column(header, column)[0] for column in both)
                columns = [text_column, *columns]
        shown = layout_task(file.path, named, label_column, reading)
        task = task or shown or found_task(Counter(e.label for e in examples), label_column)[0]
        report = check_data({"train": str(file.path)}, "line", *given, reading, numbers=task == "regression")
        if task != "classify":
            report = {**report, "warnings": [told for told in report["warnings"] if not told.startswith(NO_CLASSES)]}
        rows: list[PreviewRow] = [{"text": e.text[:SHOWN], "label": e.label} for e in examples[:PREVIEWED]]
        return {
            "columns": columns, "text_column": text_column, "label_column": label_column, "rows": rows, "check": report,
            "notes": [scrubbed(note, self.folder.parent) for note in reading.notes()], "task": task, "arms": list(usual_arms(task, reads)),
        }  # fmt: skip

    def _upload(self, place: Path) -> Upload:
        found = json.loads(read_regular(place / "name.json", 10_000))
        path = place / found["file"]
        if Path(found["file"]).name != found["file"] or path.is_symlink() or not path.is_file():
            raise DataError("This file is damaged. Upload it again.", "FILE_MISSING")
        return Upload(place.name, found["name"], path, path.stat().st_size)


def _safe(name: str) -> tuple[str, str]:
    """A file name of ours for one that a client gave, which may be anything.

    >>> _safe("../../etc/My reviews.CSV")
    ('etc-My-reviews', '.csv')
    """
    stem, dot, ending = name.rpartition(".")
    ending = f"{dot}{ending}".lower()
    if not stem or ending not in ENDINGS:
        raise DataError(f"A file to upload is text or a table: its name ends with {', '.join(ENDINGS)}.", "DATA_FORMAT")
    return re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-")[-60:].strip("-") or "rows", ending
