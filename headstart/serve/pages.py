"""The pages, rendered here by Jinja, which escapes every text. Scripts are files of ours and only change what stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from starlette.responses import HTMLResponse, Response

from headstart import __version__
from headstart.errors import ModelError
from headstart.quantities import data_size, duration
from headstart.regular_file import read_regular
from headstart.runs.kinds import KINDS
from headstart.runs.run import Run
from headstart.serve.files import ENDINGS
from headstart.serve.problems import scrubbed
from headstart.serve.registry import ID, Entry, Model
from headstart.serve.studio import Studio, studio_of
from headstart.show.page import templates
from headstart.study.arms import ARMS
from headstart.study.verdict import headline
from headstart.targets.tasks import TARGETS
from headstart.text.inputs import INPUTS, InputKind, described_input
from headstart.text.layouts import LAYOUTS
from headstart.text.visible import shown

if TYPE_CHECKING:
    from jinja2 import Environment

router = APIRouter(include_in_schema=False)
Id = Annotated[str, InPath(pattern=ID)]
MOST_REPORT = 64 << 20  # bytes
# Figures carry their colours as style attributes. These two documents have an origin of their own, without cookies.
REPORT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"  # fmt: skip
INSIDE = "default-src 'none'; script-src {script}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"  # fmt: skip


def wants_page(request: Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def page(request: Request, template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    studio = studio_of(request)
    shared = {"version": __version__, "read_only": studio.settings.read_only, "folder": studio.registry.folder.name}
    return HTMLResponse(_environment().get_template(template).render(**shared, **facts), status)


def error_page(request: Request, status: int, message: str) -> HTMLResponse:
    return page(request, "error.html.j2", status, title="Not possible", message=message)


@router.get("/")
def home(request: Request) -> HTMLResponse:
    """The runs and studies of the folder, and what runs now."""
    studio = studio_of(request)
    entries = studio.registry.entries()
    running = [job for job in studio.jobs.all() if job["state"] in ("starting", "running")]
    studies = [(entry, _headline(entry)) for entry in entries if entry.kind == "study"]
    models = {model.id for model in studio.registry.models()}
    runs = [(entry, *_told(entry)) for entry in entries if entry.kind == "run"]
    return page(
        request, "home.html.j2", title="Runs and studies", studies=studies, runs=runs, running=running, models=models
    )


def _headline(entry: Entry) -> str:
    return headline(entry.record["verdict"]) if entry.record.get("verdict") else ""


def _told(entry: Entry) -> tuple[str, tuple[str, float] | None]:
    """What a run made, and the first score of its task on the test rows, with its value."""
    job, result = entry.record["job"], dict[str, Any]()
    with suppress(ModelError):  # damaged; the table tells
        result = Run(entry.path).read_json("result.json") if entry.finished else {}
    noun, test = KINDS[job].noun if job in KINDS else str(job or "?"), result.get("test") or {}
    match job:
        case "finetune":
            task = result.get("task", "classify")
            key, title = next(iter(TARGETS[task].titles.items()))
            return TARGETS[task].noun or noun, (title, test[key]) if test.get(key) is not None else None
        case "translate" if "exact_match" in test:
            return noun, ("exact matches", test["exact_match"]["value"])
        case "match" if entry.record["test_recall@5"] is not None:
            return noun, ("recall@5", entry.record["test_recall@5"])
    return noun, None


@router.get("/new")
def new_study(request: Request) -> HTMLResponse:
    arms = [kind for kind in ARMS.values() if kind.name != "last:K"]
    return page(request, "new.html.j2", title="New study", arms=arms, tasks=TARGETS, layouts=LAYOUTS, endings=ENDINGS)


@router.get("/jobs")
def jobs(request: Request) -> HTMLResponse:
    return page(request, "jobs.html.j2", title="Jobs", jobs=studio_of(request).jobs.all())


@router.get("/jobs/{job}")
def live(request: Request, job: Id) -> HTMLResponse:
    """A job as it goes on; the script follows its events."""
    studio = studio_of(request)
    found = studio.jobs.get(job)
    made = {"compare": "/studies/{}", "label": "/label/{}", "lab": "/labs/{}/report"}.get(found["verb"], "/runs/{}")
    return page(request, "job.html.j2", title=found["name"], job=found, result=made.format(job))


@router.get("/runs/{run}")
def run_page(request: Request, run: Id) -> HTMLResponse:
    """What came out of a run, its curves and its receipt."""
    studio = studio_of(request)
    entry = _entry(studio, run, "run")
    opened = Run(entry.path)
    result = opened.read_json("result.json") if entry.finished else {}
    receipt = opened.read_json("receipt.json") if (entry.path / "receipt.json").is_file() else {}
    scores = {part: _numbers(result.get(part) or {}) for part in ("train", "valid", "test")}
    facts = {k: v for k, v in result.items() if isinstance(v, int | float | str) and k not in ("run",)}
    copied = {k: len(v) if isinstance(v, list | dict) else str(v) for k, v in receipt.items() if k != "base"}
    has_model = any(model.id == run for model in studio.registry.models())
    noun = KINDS[opened.job].noun if opened.job in KINDS else opened.job
    return page(
        request, "run.html.j2", title=entry.name, entry=entry, noun=noun, scores=scores, facts=facts, receipt=copied,
        has_model=has_model,
    )  # fmt: skip


def _numbers(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    return {k: v for k, v in scores.items() if isinstance(v, int | float) or (isinstance(v, list) and len(v) == 2)}


@router.get("/studies/{study}")
def study_page(request: Request, study: Id) -> HTMLResponse:
    """The verdict and the table of a study, its models, and the way to the whole report."""
    from headstart.study.results import Results

    studio = studio_of(request)
    entry = _entry(studio, study, "study")
    results = Results.model_validate_json(report_bytes(entry.path / "results.json")).shown() if entry.finished else None
    if results:
        results = results.model_copy(
            update={"notices": [scrubbed(notice, studio.registry.folder) for notice in results.notices]}
        )
    models = [(m, _cell(m)) for m in studio.registry.models() if m.path.is_relative_to(entry.path)]
    report = (entry.path / "report.html").is_file()
    return page(request, "study.html.j2", title=entry.name, entry=entry, results=results, models=models, report=report)


def _cell(model: Model) -> str:
    """A model of a study in words; its folder is named ARM~LABELS~SEED."""
    name, *more = model.path.name.split("~")
    if len(more) != 2:
        return name
    return f"{name}, {more[0]} labels, seed {more[1]}"


@router.get("/studies/{study}/report")
def report(request: Request, study: Id) -> Response:
    """The report as `headstart compare` wrote it."""
    entry = _entry(studio_of(request), study, "study")
    return HTMLResponse(report_bytes(entry.path / "report.html"), headers={"content-security-policy": REPORT})


@router.get("/models/{model}")
def model_page(request: Request, model: Id) -> HTMLResponse:
    """Try a model, take it away, and the lines that do the same."""
    studio = studio_of(request)
    found = studio.registry.model(model)
    size = sum(path.stat().st_size for path in (found.path / "model").iterdir() if path.is_file())
    noun = KINDS[found.job].noun if found.job in KINDS else found.job
    others = [other for other in studio.registry.models() if other.job == found.job and other.id != found.id]
    described = json.loads(read_regular(found.path / "model" / "config.json")) if found.job == "finetune" else {}
    told = described.get("headstart", {})
    reads, target = INPUTS[described_input(told)], TARGETS.get(told.get("task", ""))
    noun = (target.noun if target else "") or noun
    return page(
        request, "model.html.j2", title=found.name, model=found, noun=noun, size=data_size(size), address=studio.settings.address,
        token=studio.settings.token is not None, others=others, reads=reads, examples=_examples(found, reads),
    )  # fmt: skip


def _examples(model: Model, reads: InputKind) -> list[tuple[str, str]]:
    """Routes that a model answers, each with a body to try."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "finetune": [
            ("predict", {"inputs": reads.example}),
            ("v1/embeddings", {"input": ["a text"]}),
            ("search", {"query": "a text", "texts": ["one text", "another"]}),
        ],
        "pretrain": [
            ("v1/completions", {"prompt": "The", "max_tokens": 20, "temperature": 0}),
            ("v1/embeddings", {"input": ["a text"]}),
        ],
        "translate": [("translate", {"inputs": "a text to translate", "beams": 4})],
        "match": [("search", {"query": "a caption", "top": 10})],
    }
    return [(path, json.dumps({"model": model.id, **body})) for path, body in found.get(model.job, [])]


@router.get("/models/{model}/inside")
async def inside(
    request: Request, model: Id, text: Annotated[str, Query(min_length=1, max_length=5000)], tokens: Annotated[int, Query(ge=0, le=64)] = 0
) -> HTMLResponse:  # fmt: skip
    """The page of `headstart inspect --html` for a text."""
    studio = studio_of(request)
    found = await studio.model(model)

    def look(texts: list[str]) -> list[str]:
        back = f"/models/{found.id}", found.name
        return [replace(studio.models.inspect(found, one, tokens), model="").html(back) for one in texts]

    seen = await studio.answers(request, found, f"inside {tokens}", look, [text])
    script = re.search(r"script-src ('sha256-[\w+/=]+')", seen[0])  # the page names the hash of its script
    return HTMLResponse(
        seen[0], headers={"content-security-policy": INSIDE.format(script=script[1] if script else "'none'")}
    )


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The routes of the API, from its schema."""
    from headstart.serve.schema import operations

    return page(request, "docs.html.j2", title="HTTP API", groups=operations(request.app.openapi()))


def _entry(studio: Studio, wanted: str, kind: str) -> Entry:
    entry = studio.registry.entry(wanted)
    if entry.kind != kind:
        raise ModelError(f"There is no {kind} of this id.", "RUN_MISSING")
    return entry


def report_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_REPORT)
    except FileNotFoundError:
        raise ModelError("This study has no report yet. headstart report makes one.", "STUDY_MISSING") from None


@cache
def _environment() -> Environment:
    made = templates("serve/pages")
    made.filters |= {"shown": shown, "duration": duration, "number": _number}
    return made


def _number(value: Any) -> str:
    """A number as a table shows it.

    >>> _number(0.25), _number(12345), _number([0.5, 0.75])
    ('0.25', '12,345', '0.5 to 0.75')
    """
    if isinstance(value, list):
        return " to ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else shown(str(value))
