"""The application: routes, the answers to errors, and the guard around both. `serve` runs it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from headstart import __version__
from headstart.errors import UserError
from headstart.serve import api, label, labs, openai, pages, scoring, search, table, translation
from headstart.serve.direct import direct
from headstart.serve.guard import Guard, Stop
from headstart.serve.problems import BUG, error_schema, invalid, problem, scrubbed, status_of
from headstart.serve.requests import PredictRequest
from headstart.serve.settings import Settings
from headstart.serve.studio import Studio

SWITCH = 1e-4  # seconds until a thread must let another go on: the loop and the thread of models take turns within a forward pass
STATIC = {".js": "text/javascript", ".css": "text/css"}
_log = logging.getLogger("headstart.serve")


def make_app(settings: Settings) -> ASGIApp:
    """The application of one folder, with its guard."""
    studio = Studio.open(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        studio.worker.start()
        yield
        await asyncio.to_thread(studio.worker.stop)

    app = FastAPI(
        title="Headstart", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        responses=error_schema(),
    )  # fmt: skip
    app.state.studio = studio
    app.router.routes.insert(0, direct("/predict", scoring.predict, PredictRequest))
    for router in (
        api.router,
        openai.router,
        scoring.router,
        table.router,
        translation.router,
        search.router,
        label.router,
        labs.router,
        pages.router,
    ):
        app.include_router(router)
    app.add_api_route("/openapi.json", lambda: app.openapi(), include_in_schema=False)
    app.add_api_route("/static/{name}", static_file, include_in_schema=False)
    app.add_exception_handler(UserError, _user_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(Stop, _stopped)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _bug)
    return Guard(app, settings, studio.metrics)


def static_file(name: str) -> Response:
    """A script or a style of ours, from package data; the name is one of those that are there."""
    known = {file.name: file for file in files("headstart.serve").joinpath("static").iterdir()}
    known["page.css"] = files("headstart.study").joinpath("page.css.j2")  # the style of the report
    kind = STATIC.get(name[name.rfind(".") :])
    if name not in known or kind is None:
        raise HTTPException(404)
    return Response(known[name].read_bytes(), media_type=kind)


def _id(request: Request) -> str:
    return str(request.state.request_id)


async def _user_error(request: Request, error: UserError) -> Response:
    studio: Studio = request.app.state.studio
    status = status_of(error)
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    message = scrubbed(str(error), studio.settings.folder)
    if pages.wants_page(request):
        return pages.error_page(request, status, message)
    return problem(status, error.code, message, _id(request), headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    if pages.wants_page(request):
        return pages.error_page(request, 404, "There is no such page.")
    return problem(422, "REQUEST", invalid(error), _id(request))


async def _http_error(request: Request, error: HTTPException) -> Response:
    words: dict[int, tuple[str, str]] = {404: ("NOT_FOUND", "There is no such page."), 405: ("METHOD", "This method is not for this address.")}  # fmt: skip
    code, message = words.get(error.status_code, ("REQUEST", "The request cannot be read." if error.status_code < 500 else BUG))  # fmt: skip
    if pages.wants_page(request):
        return pages.error_page(request, error.status_code, message)
    return problem(error.status_code, code, message, _id(request), error.headers)


async def _stopped(request: Request, stop: Stop) -> Response:
    return problem(stop.status, stop.code, stop.message, _id(request))


async def _bug(request: Request, error: Exception) -> Response:
    """The guard logs it."""
    return problem(500, "BUG", BUG, _id(request))


def serve(settings: Settings) -> None:
    """Answer until a signal comes. The log has one line of JSON for each request."""
    import uvicorn

    from headstart.serve.protocol import protocol

    handler: Any = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    sys.setswitchinterval(SWITCH)
    uvicorn.run(
        make_app(settings), host=settings.host, port=settings.port, access_log=False, server_header=False, log_level="warning",
        timeout_keep_alive=5, timeout_graceful_shutdown=5, loop="uvloop", ws="none",
        http=protocol(settings.limits.header_seconds, settings.limits.header_bytes),
    )  # fmt: skip
