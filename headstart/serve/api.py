"""Files, plans, jobs, runs and models as JSON: what the pages use, for programs too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request
from fastapi import Path as InPath
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from headstart import __version__
from headstart.errors import ModelError, StepFailed
from headstart.runs.record_shapes import StudyResults
from headstart.runs.records import read_json
from headstart.runs.run import Run
from headstart.serve.answers import FileFacts, RunFacts
from headstart.serve.archive import archive, exported
from headstart.serve.command import bases_at_hand, command_of, free_place, shown_command
from headstart.serve.events import follow
from headstart.serve.files import FILE_ID, Upload
from headstart.serve.labs import lab_command
from headstart.serve.problems import Refused, scrubbed
from headstart.serve.registry import ID, Entry
from headstart.serve.requests import InspectRequest, JobRequest, LabJob, PlanRequest
from headstart.serve.settings import OWN
from headstart.serve.studio import studio_of
from headstart.strict_json import to_json
from headstart.task import Task

router = APIRouter(tags=["studio"])
Id = Annotated[str, InPath(pattern=ID)]
FileIdPath = Annotated[str, InPath(pattern=FILE_ID)]
ColumnName = Annotated[str | None, Query(min_length=1, max_length=200)]
PLANNED = 120.0  # seconds that an estimate may take


@router.get("/healthz", tags=["health"])
@router.get("/ping", tags=["health"])
async def healthz() -> dict[str, str]:
    """That the server answers; needs no token."""
    return {"status": "ok"}


@router.get("/version", tags=["health"])
async def version() -> dict[str, str]:
    """The version of Headstart."""
    return {"version": __version__}


@router.get("/metrics", tags=["health"])
async def metrics(request: Request) -> PlainTextResponse:
    """Requests, times, queue and memory, as Prometheus reads them."""
    studio = studio_of(request)
    gauges = {
        "waiting": studio.worker.waiting,
        "models_loaded": studio.models.count,
        "model_bytes": studio.models.bytes,
    }
    return PlainTextResponse(studio.metrics.text(gauges), media_type="text/plain; version=0.0.4")


@router.put("/api/files", status_code=201, openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}})  # fmt: skip
async def put_file(request: Request, name: Annotated[str, Query(min_length=1, max_length=200)]) -> FileFacts:
    """Upload a file as the raw body; its SHA-256 is its id."""
    studio = studio_of(request)
    studio.must_write()

    async def parts() -> AsyncIterator[bytes]:
        async for part in request.stream():
            yield part

    return _file(await studio.files.put(name, parts()))


@router.get("/api/files")
def list_files(request: Request) -> list[FileFacts]:
    """The uploaded files, newest first."""
    return [_file(upload) for upload in studio_of(request).files.all()]


@router.get("/api/files/{file}/check")
def check_file(
    request: Request,
    file: FileIdPath,
    text_column: ColumnName = None,
    label_column: ColumnName = None,
    task: Annotated[Task | None, Query()] = None,
) -> Response:
    """The first rows, the columns and the task that were found, and what `headstart data check` reports."""
    return _json(studio_of(request).files.preview(file, text_column, label_column, task))


@router.get("/api/files/{file}/columns")
def file_columns(request: Request, file: FileIdPath) -> list[str]:
    """The columns of a table, for a caller that names those that are read."""
    return studio_of(request).files.columns(file)


@router.delete("/api/files/{file}", status_code=204)
def delete_file(request: Request, file: FileIdPath) -> Response:
    """Remove an uploaded file."""
    studio = studio_of(request)
    studio.must_write()
    studio.files.remove(file)
    return Response(status_code=204)


def _file(upload: Upload) -> FileFacts:
    return {"id": upload.id, "name": upload.name, "bytes": upload.bytes}


@router.get("/api/bases")
def list_bases(request: Request) -> list[dict[str, str]]:
    """What a job can start from without a download."""
    registry = studio_of(request).registry
    found = bases_at_hand(registry).items()
    return [{"id": id_, "name": registry.name_of(Path(name)) if kind == "run" else name, "kind": kind} for id_, (name, kind) in found]  # fmt: skip


@router.post("/api/plans")
async def plan(request: Request, job: Annotated[PlanRequest, Body()]) -> Response:
    """What a job would cost, as `--dry-run` estimates it, and its command line; nothing is kept."""
    studio = studio_of(request)
    studio.must_write()
    out = free_place(job, studio.registry.folder, studio.files)
    words = command_of(job, studio.files, studio.registry, out)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headstart", *words, "--dry-run", "--json", stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = await asyncio.wait_for(child.communicate(), PLANNED)
    except TimeoutError:
        raise Refused("The estimate took too long. The job itself can be started.", "LATE") from None
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        raise _failed(errors.decode("utf-8", "replace"), child.returncode)
    cost = json.loads(output.decode().strip().splitlines()[-1])
    return _json({"cost": cost, "command": shown_command(words, studio.registry.folder)})


def _failed(errors: str, exit_code: int) -> StepFailed:
    for line in reversed(errors.splitlines()):
        if line.startswith('{"error"'):
            told = json.loads(line)["error"]
            return StepFailed(str(told["message"]), str(told["code"]), exit_code)
    raise RuntimeError("a command failed without a message")


@router.post("/api/jobs", status_code=202)
def start_job(request: Request, job: Annotated[JobRequest, Body()]) -> JSONResponse:
    """Start a job: the same command in a process of its own."""
    studio = studio_of(request)
    studio.must_write()
    if isinstance(job, LabJob):
        words, out = lab_command(job.lab, studio.registry.folder)
    else:
        out = free_place(job, studio.registry.folder, studio.files)
        words = command_of(job, studio.files, studio.registry, out)
    if out.exists():
        raise Refused(f"There is a run called {out.name} already. Choose another name.", "RUN_EXISTS")
    begun = studio.jobs.start(words, out)
    return JSONResponse(dict(studio.jobs.get(begun)), 202, {"Location": f"/api/jobs/{quote(begun)}"})


@router.get("/api/jobs")
def list_jobs(request: Request) -> Response:
    """The jobs that were started here, and those that run in the folder."""
    return _json(studio_of(request).jobs.all())


@router.get("/api/jobs/{job}")
def get_job(request: Request, job: Id) -> Response:
    """How far a job has come, its notes and its error."""
    return _json(studio_of(request).jobs.get(job))


@router.get("/api/jobs/{job}/events")
async def job_events(request: Request, job: Id) -> StreamingResponse:
    """The log as server-sent events; `Last-Event-ID` goes on from there."""
    studio = studio_of(request)
    await asyncio.to_thread(studio.jobs.get, job)
    events = follow(studio.jobs, job, request.headers.get("last-event-id"))
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


@router.post("/api/jobs/{job}/stop", status_code=202)
def stop_job(request: Request, job: Id) -> Response:
    """Ask a job to save its state and end."""
    studio = studio_of(request)
    studio.must_write()
    studio.jobs.stop(job)
    return _json(studio.jobs.get(job), 202)


@router.post("/api/jobs/{job}/resume", status_code=202)
def resume_job(request: Request, job: Id) -> Response:
    """Go on with a job that was stopped or killed."""
    studio = studio_of(request)
    studio.must_write()
    studio.jobs.resume(job)
    return _json(studio.jobs.get(job), 202)


@router.get("/api/runs")
def list_runs(request: Request) -> Response:
    """What `headstart runs` lists, with ids in place of paths."""
    studio = studio_of(request)
    return _json([_entry(entry, studio.registry.folder) for entry in studio.registry.entries()])


@router.get("/api/runs/{run}")
def get_run(request: Request, run: Id) -> Response:
    """A run or study, with its result."""
    studio = studio_of(request)
    entry = studio.registry.entry(run)
    found = _entry(entry, studio.registry.folder)
    if entry.kind == "run" and entry.finished:
        found["result"] = {k: v for k, v in Run(entry.path).read_json("result.json").items() if k != "run"}
    return _json(found)


@router.get("/api/studies/{study}")
def get_study(request: Request, study: Id) -> Response:
    """results.json of a study, without the paths in it."""
    registry = studio_of(request).registry
    entry = registry.entry(study)
    if entry.kind != "study" or not (entry.path / "results.json").exists():
        raise ModelError("There is no study of this id with results.", "STUDY_MISSING")
    found = read_json(entry.path / "results.json", StudyResults, "STUDY_DAMAGED")
    told = [scrubbed(str(notice), registry.folder) for notice in found.get("notices", [])]
    return _json(
        {k: v for k, v in {**found, "notices": told}.items() if k not in ("repeat", "receipts", "pretraining")}
    )


@router.get("/api/models/{model}/archive")
async def get_archive(
    request: Request, model: Id, to: Literal["headstart", "transformers", "onnx"] = "headstart"
) -> StreamingResponse:
    """The model as a zip file: as it is, or as `headstart export` writes it for other libraries."""
    studio = studio_of(request)
    found = await asyncio.to_thread(studio.registry.model, model)
    headers = {"content-disposition": f'attachment; filename="{found.id}-{to}.zip"'}
    if to == "headstart":
        return StreamingResponse(archive(found.path), media_type="application/zip", headers=headers)

    def export(_: list[Any]) -> list[bytes]:
        return list(exported(found.path, to, studio.registry.folder / OWN / "exports"))

    made = await studio.answers(request, found, f"export {to}", export, [None])
    return StreamingResponse(iter(made), media_type="application/zip", headers=headers)


@router.post("/api/models/{model}/inspect")
async def inspect_model(request: Request, model: Id, asked: InspectRequest) -> Response:
    """What `headstart inspect --json` reports of a text."""
    studio = studio_of(request)
    found = await studio.model(model)

    def look(texts: list[str]) -> list[Any]:
        return [studio.models.inspect(found, text, asked.tokens).data() for text in texts]

    seen = (await studio.answers(request, found, f"inspect {asked.tokens}", look, [asked.text]))[0]
    return _json({**seen, "model": found.id})


def _entry(entry: Entry, folder: Path) -> RunFacts:
    told = {key: value for key, value in entry.record.items() if key != "run"}
    if told.get("problem"):
        told["problem"] = scrubbed(told["problem"], folder)
    return {"id": entry.id, "name": entry.name, "kind": entry.kind, "record": told}


def _json(value: Any, status: int = 200) -> Response:
    """JSON without NaN, whatever stands in a file."""
    return Response(to_json(value), status, media_type="application/json")
