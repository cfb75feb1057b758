"""A route that many requests take, ahead of the others.

FastAPI looks through every route, resolves dependencies and validates the answer as well as the body, which takes longer than
a small model needs for a text. The function is that of the declared route, which the schema describes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send


def direct(path: str, endpoint: Callable[[Request, Any], Awaitable[Response]], body: type[BaseModel]) -> Route:
    """POST to `path`: a body of this shape, and the answer of `endpoint` as it is."""

    class Answer:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scope["route"] = route  # which the guard counts by
            request = Request(scope, receive)
            try:
                asked = body.model_validate_json(await request.body())
            except ValidationError as error:
                raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
            await (await endpoint(request, asked))(scope, receive, send)

    route = Route(path, Answer(), methods=["POST"], include_in_schema=False)
    return route
