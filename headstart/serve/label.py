"""Labelling over HTTP: start a session, rows to label, answers, what they bring, the labels as a table; and the pages."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request
from fastapi import Path as InPath
from starlette.responses import HTMLResponse, JSONResponse, Response
from typing_extensions import TypedDict

from headstart.labelling.advice import Status
from headstart.labelling.table import labelled_csv
from headstart.serve.command import labelling_command
from headstart.serve.pages import page
from headstart.serve.registry import ID
from headstart.serve.requests import AnswerRequest, LabellingRequest, NextRequest
from headstart.serve.studio import Studio, studio_of

router = APIRouter(tags=["labelling"])
Id = Annotated[str, InPath(pattern=ID)]
KEYS = "1234567890qwertyiopadfghjklzxcvbnm"  # of the labels in order; s skips, u takes back


class LabellingFacts(TypedDict):
    id: str
    name: str  # from the folder on
    file: str
    base: str
    labels: list[str]
    rows: int
    labelled: int
    skipped: int


class Asked(TypedDict):
    row: int
    text: str


class AskedRows(TypedDict):
    rows: list[Asked]


class Acknowledged(TypedDict):
    labelled: int
    skipped: int


@router.get("/api/labellings")
def list_labellings(request: Request) -> list[LabellingFacts]:
    """The labelling sessions of the folder."""
    studio = studio_of(request)
    return [_facts(studio, wanted) for wanted in studio.labellings.all()]


@router.post("/api/labellings", status_code=202)
def start_labelling(request: Request, asked: Annotated[LabellingRequest, Body()]) -> JSONResponse:
    """Start a session: `headstart label start` in a process of its own, which computes the features."""
    studio = studio_of(request)
    studio.must_write()
    words, out = labelling_command(asked, studio.files, studio.registry)
    begun = studio.jobs.start(words, out)
    return JSONResponse(dict(studio.jobs.get(begun)), 202, {"Location": f"/api/jobs/{quote(begun)}"})


@router.get("/api/labellings/{labelling}")
def labelling_status(request: Request, labelling: Id) -> Status:
    """What `headstart label status --json` reports."""
    return studio_of(request).labellings.open(labelling).session.status()


@router.post("/api/labellings/{labelling}/next")
def next_rows(request: Request, labelling: Id, asked: Annotated[NextRequest, Body()]) -> AskedRows:
    """Rows to label next, which no other tab is shown for ten minutes."""
    studio = studio_of(request)
    studio.must_write()
    found = studio.labellings.next(labelling, asked.by, asked.count, asked.holding)
    return {"rows": [{"row": item.row, "text": item.text} for item in found]}


@router.post("/api/labellings/{labelling}/answers")
def answer(request: Request, labelling: Id, asked: Annotated[AnswerRequest, Body()]) -> Acknowledged:
    """A label, a skip, or one of them taken back. It is on the disk when this answers."""
    studio = studio_of(request)
    studio.must_write()
    session = studio.labellings.open(labelling).session
    if asked.event == "label":
        session.add(asked.row, asked.label or "", asked.by)
    elif asked.event == "skip":
        session.skip(asked.row, asked.by)
    else:
        session.undo(asked.row, asked.by)
    labelled, skipped = session.counts()
    return {"labelled": labelled, "skipped": skipped}


@router.get(
    "/api/labellings/{labelling}/table", responses={200: {"content": {"text/csv": {}}}}, response_class=Response
)
def labelling_table(
    request: Request, labelling: Id, part: Annotated[Literal["all", "chosen", "random"], Query()] = "all"
) -> Response:
    """The labels as a table, as `headstart label export` writes it."""
    found = labelled_csv(
        studio_of(request).labellings.open(labelling).session, None if part == "all" else part == "random"
    )
    headers = {"content-disposition": f'attachment; filename="{labelling}-{part}.csv"'}
    return Response(found.csv, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/label", include_in_schema=False)
def labellings_page(request: Request) -> HTMLResponse:
    """The sessions, and a form that starts one."""
    studio = studio_of(request)
    return page(request, "labellings.html.j2", title="Label", labellings=[_facts(studio, each) for each in studio.labellings.all()])  # fmt: skip


@router.get("/label/{labelling}", include_in_schema=False)
def label_page(request: Request, labelling: Id) -> HTMLResponse:
    """One row at a time, one key for each label; the script asks for the rows."""
    facts = _facts(studio_of(request), labelling)
    keys = [(name, KEYS[i] if i < len(KEYS) else "") for i, name in enumerate(facts["labels"])]
    return page(request, "label.html.j2", title=facts["name"], labelling=facts, keys=keys)


def _facts(studio: Studio, wanted: str) -> LabellingFacts:
    session = studio.labellings.open(wanted).session
    labelled, skipped = session.counts()
    record = session.record
    return {
        "id": wanted, "name": studio.registry.name_of(session.path), "file": record.file, "base": record.base,
        "labels": list(record.labels), "rows": record.rows, "labelled": labelled, "skipped": skipped,
    }  # fmt: skip
