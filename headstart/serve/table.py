"""A table labelled over HTTP: an uploaded file comes back with the columns that `headstart predict --file --out` adds."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from starlette.responses import StreamingResponse

from headstart.runs.disk import make_folder
from headstart.serve.problems import OVERLOADED, Refused
from headstart.serve.registry import ID, Model
from headstart.serve.requests import TableRequest
from headstart.serve.settings import OWN
from headstart.serve.studio import Studio, studio_of

if TYPE_CHECKING:
    from headstart.targets.target import Target
    from headstart.use.predict import LoadedClassifier

router = APIRouter(tags=["scoring"])
PREFIX = "predicted_"  # of the new columns, because a table often has one called label
PART = 1 << 20  # bytes sent at once
AGAIN = 0.2  # seconds until a full queue is tried again


@dataclass(frozen=True)
class Queued:
    """A classifier whose texts wait their turn behind other requests, a batch at a time."""

    loaded: LoadedClassifier
    model: Model
    studio: Studio
    over: threading.Event  # nobody waits for the table any more

    @property
    def target(self) -> Target:
        return self.loaded.target

    def probabilities(self, texts: Sequence[str]) -> list[list[float]]:
        return self._asked("probabilities", self.loaded.probabilities, texts)

    def predict(self, texts: Sequence[str]) -> list[Any]:
        return self._asked("predictions", self.loaded.predict, texts)

    def _asked(self, what: str, call: Callable[[list[str]], Any], texts: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        while len(found) < len(texts):
            if self.over.is_set():
                raise Refused("Nobody waits for this table.", "GONE")
            part = list(texts[len(found) : len(found) + self.studio.settings.limits.batch])
            try:
                found += self.studio.worker.submit((what, self.model.id, self.model.made), call, part).result()
            except Refused as refused:
                if refused.code not in ("OVERLOADED", "LATE"):  # the table has a deadline of its own
                    raise
                time.sleep(AGAIN)
        return found


@router.post("/api/models/{model}/table", response_class=StreamingResponse, responses={200: {"content": {"application/octet-stream": {}}}})  # fmt: skip
async def label_table(
    request: Request, model: Annotated[str, InPath(pattern=ID)], asked: TableRequest
) -> StreamingResponse:
    """An uploaded table with its labels and their probabilities in new columns, as .csv, .tsv, .jsonl or .parquet."""
    from headstart.text.table_writer import format_of
    from headstart.use.label_file import Columns, label_file

    studio = studio_of(request)
    studio.must_write()
    found = await studio.model(model)
    source = studio.files.get(asked.data).path
    place, over = studio.registry.folder / OWN / "exports", threading.Event()
    make_folder(place)
    if not studio.tables.acquire(blocking=False):
        raise Refused(OVERLOADED, "OVERLOADED")
    try:
        loaded = (
            await studio.answers(
                request,
                found,
                "classifier",
                lambda _: [studio.models.classifier(found)],
                [None],
                studio.settings.limits.table,
            )
        )[0]
        with tempfile.TemporaryDirectory(dir=place) as folder:
            out = Path(folder) / "labelled"
            asking = Queued(loaded, found, studio, over)
            work = asyncio.ensure_future(
                asyncio.to_thread(label_file, lambda: asking, source, out, Columns(PREFIX, numbered=True), asked.text_column, skip_blank=True)
            )  # fmt: skip
            try:
                await studio.waited(request, asyncio.shield(work), studio.settings.limits.table)
            finally:
                over.set()
                await asyncio.gather(work, return_exceptions=True)
            opened = out.open("rb")  # stays readable after the folder is gone
    finally:
        studio.tables.release()
    name = f"{source.stem}-labelled{format_of(Path('labelled'), source)}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_parts(opened), media_type="application/octet-stream", headers=headers)


def _parts(opened: BinaryIO) -> Iterator[bytes]:
    with opened:
        while part := opened.read(PART):
            yield part
