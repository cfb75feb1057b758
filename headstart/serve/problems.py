"""Errors as JSON: the sentences and codes of the command line, with a status that tells whose fault it is.

No path of this machine, traceback or version leaves the server; what is a bug of ours is one fixed sentence, and the
log has the rest under the id of the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from headstart.errors import UserError
from headstart.text.visible import shown

STATUS = {2: 400, 3: 422, 4: 422, 5: 422, 6: 507, 7: 422, 8: 409, 9: 502}  # by the exit code of the command line
CODES = {
    "RUN_MISSING": 404, "STUDY_MISSING": 404, "FILE_MISSING": 404, "JOB_MISSING": 404, "LABELLING_MISSING": 404, "LAB_MISSING": 404, "RUN_EXISTS": 409, "RUN_UNFINISHED": 409,
    "JOB_LIMIT": 409, "NOT_RUNNING": 409, "NOT_STOPPED": 409, "READ_ONLY": 403, "OVERLOADED": 429, "LATE": 503, "TOO_LARGE": 413, "TOO_MANY": 409, "DISK": 507,
}  # fmt: skip
BUG = "The server failed. Its log has the details under this request id."
OVERLOADED = "Too many requests wait already. Try again in a second."
LATE = "The request took too long. Try again later."
_UPLOAD = re.compile(r"files/[0-9a-f]{64}/")
_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.@+~-]+/)+(?=[\w.@+~-])")


class Refused(UserError):
    """What only a server refuses: too much, too late, or not allowed."""


def scrubbed(message: str, folder: Path) -> str:
    """A sentence without the paths of this machine: what is below `folder` is named from there.

    >>> scrubbed("/srv/runs/base is damaged (see /tmp/x/y.txt).", Path("/srv/runs"))
    'base is damaged (see y.txt).'
    """
    for place in {f"{folder.absolute()}/", f"{folder}/"} - {"./", "/"}:
        message = message.replace(place, "")
    return shown(_PATH.sub("", _UPLOAD.sub("", message)).replace(str(folder.absolute()), "the folder")).replace(
        "\n", " "
    )


def problem(
    status: int, code: str, message: str, request_id: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"  # what clients of OpenAI's API look at
    body = {"error": {"code": code, "message": message, "type": kind, "param": None, "request_id": request_id}}
    return JSONResponse(body, status, dict(headers or {}))


def status_of(error: UserError) -> int:
    return CODES.get(error.code) or STATUS.get(error.exit_code, 400)


def invalid(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request, in a sentence; what was sent is not repeated."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    told = str(first["msg"]).rstrip(".")
    return f"{shown(place)[:200] or 'The request'}: {shown(told)[:300]}."


def error_schema() -> dict[int | str, dict[str, Any]]:
    """The answers that every route may give, for the schema."""
    text = {"type": "string"}
    inner = {
        "type": "object",
        "properties": {"code": text, "message": text, "type": text, "param": {}, "request_id": text},
    }
    schema = {"type": "object", "properties": {"error": inner}, "required": ["error"]}
    content = {"application/json": {"schema": schema}}
    words = {
        400: "The request cannot be read.", 401: "The token is missing or wrong.", 403: "Refused: another origin, or read-only.",
        404: "There is no such thing.", 408: "The body stalled.", 409: "Not in this state.", 411: "A length is needed.", 413: "Too large.", 415: "Not JSON.", 422: "What was asked for cannot be done.",
        429: "Too many requests; try again later.", 503: "It took too long.",
    }  # fmt: skip
    return {status: {"description": told, "content": content} for status, told in words.items()}
