"""What every request passes before a route sees it: host, origin, token, size; and the headers of every answer.

A page of any site can send requests to this machine, so the address 127.0.0.1 protects nothing by itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headstart.serve.metrics import Metrics
from headstart.serve.problems import BUG, OVERLOADED, problem
from headstart.serve.settings import Settings
from headstart.strict_json import to_json
from headstart.text.visible import shown

SAFE = ("GET", "HEAD")
OPEN = ("/healthz", "/ping")  # without a token; beside them only the files below /static/
NO_TIME_LIMIT = ("PUT",)
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_log = logging.getLogger("headstart.serve")


class Stop(Exception):
    """A request that ends here, with this answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._going = 0  # requests that are not answered yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id, began = secrets.token_hex(8), time.monotonic()
        scope.setdefault("state", {})["request_id"] = request_id
        status = [0]

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                given = message.get("headers", [])
                own = {name.lower() for name, _ in given}
                added = [pair for pair in _HEADERS if pair[0] not in own]
                message["headers"] = [*given, *added, (b"x-request-id", request_id.encode())]
            await send(message)

        self._going += 1
        try:
            answer = self._decided(scope)
            if self._going > self.settings.limits.at_once and scope["path"] not in OPEN:
                self.metrics.add("refused")
                answer = problem(429, "OVERLOADED", OVERLOADED, request_id, {"retry-after": "1"})
            if answer is None:
                body = await self._body(scope, receive)
                await self.app(scope, body, answered)
            else:
                await answer(scope, receive, answered)
        except Stop as stop:
            if not status[0]:
                await problem(stop.status, stop.code, stop.message, request_id)(scope, receive, answered)
        except Exception:
            _log.exception("request %s failed", request_id)
            if not status[0]:
                await problem(500, "BUG", BUG, request_id)(scope, receive, answered)
        finally:
            self._going -= 1
            self._note(scope, status[0], time.monotonic() - began, request_id)

    def _decided(self, scope: Scope) -> Response | None:
        """An answer that needs no route; None: the route may answer."""
        headers = self._headers(scope)
        self._check_host(scope, headers)
        self._check_origin(scope, headers)
        method, path = scope["method"], scope["path"]
        if path in OPEN or path.startswith("/static/"):
            return None
        query = scope.get("query_string", b"") if path == "/" and method == "GET" else b""
        given = parse_qs(query.decode("latin-1")).get("token", [None])[0] if query else None
        if given is not None:
            if not self.settings.knows(given):
                return self._sign_in(scope, headers)
            there = RedirectResponse("/", 303)
            there.set_cookie(
                self.settings.cookie, given, httponly=True, samesite="strict", path="/", max_age=30 * 86400
            )
            return there
        if not self.settings.knows(self._token(headers)):
            return self._sign_in(scope, headers)
        if method not in SAFE:
            self._check_content(scope, headers)
        return None

    def _headers(self, scope: Scope) -> dict[str, str]:
        """The headers by name; a request with too many, or with two hosts, is refused."""
        raw = scope["headers"]
        limits = self.settings.limits
        if len(raw) > limits.headers or sum(len(k) + len(v) for k, v in raw) > limits.header_bytes:
            raise Stop(431, "HEADERS", "The request has too many headers.")
        names = [name.lower() for name, _ in raw]
        if names.count(b"host") != 1 or names.count(b"content-length") > 1 or names.count(b"origin") > 1:
            raise Stop(400, "HOST", "The request needs exactly one Host header.")
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}

    def _check_host(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """A name that someone else points at this machine (DNS rebinding) is refused. Ports may be forwarded: any will do."""
        found = _HOST.fullmatch(headers["host"])
        if not found or not 0 < int(found["port"] or 80) < 65536:
            raise Stop(400, "HOST", "The Host header cannot be read.")
        if found["name"].lower().strip("[]") not in self.settings.hosts:
            raise Stop(403, "HOST", "This host name is not served. Start headstart serve with --allow-host NAME.")

    def _check_origin(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Requests that pages of other origins send are refused, reading ones too; following a link is not one of them."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            if site not in ("same-origin", "none") and not _is_link(scope, headers):
                raise Stop(403, "ORIGIN", "Requests from pages of another origin are refused.")
        elif origin is not None and origin not in (f"http://{headers['host']}", f"https://{headers['host']}"):
            raise Stop(403, "ORIGIN", "Requests from pages of another origin are refused.")

    def _token(self, headers: Mapping[str, str]) -> str | None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return given.strip()
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.settings.cookie)
        except CookieError:
            return None
        return found.value if found else None

    def _sign_in(self, scope: Scope, headers: Mapping[str, str]) -> Response:
        """Where a link of another origin led here, the browser keeps the cookie back, and is asked to come again by itself."""
        how = "Open the address that headstart serve printed; it carries the token."
        if "text/html" in headers.get("accept", ""):
            away = _is_link(scope, headers) and headers.get("sec-fetch-site") in ("cross-site", "same-site")
            again = '<meta http-equiv="refresh" content="0">' if away else ""
            page = f'<!doctype html><html lang="en"><meta charset="utf-8">{again}<title>Headstart</title><h1>Token needed</h1><p>{how}</p></html>'
            return HTMLResponse(page, 401)
        raise Stop(
            401, "TOKEN", f"The token is missing or wrong. {how} Programs send it as Authorization: Bearer TOKEN."
        )

    def _check_content(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """JSON only, because a page of another origin can send forms and plain text without asking."""
        if headers.get("content-encoding", "identity") != "identity":
            raise Stop(415, "CONTENT_TYPE", "Compressed requests are not read.")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "PUT":
            if kind not in ("application/octet-stream", "text/csv"):
                raise Stop(415, "CONTENT_TYPE", "Send a file as application/octet-stream.")
        elif kind != "application/json" and not (scope["method"] == "DELETE" and not kind):
            raise Stop(415, "CONTENT_TYPE", "Send JSON, with the content type application/json.")

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """What the route reads: bytes are counted as they come, and JSON is read whole and its depth checked."""
        limits = self.settings.limits
        most, seen = limits.upload if scope["method"] == "PUT" else limits.body, 0

        async def counted() -> Message:
            nonlocal seen
            try:
                async with asyncio.timeout(limits.stall):
                    message = await receive()
            except TimeoutError:
                raise Stop(408, "STALLED", "The body of the request stalled.") from None
            seen += len(message.get("body", b""))
            if seen > most:
                raise Stop(413, "TOO_LARGE", f"The request is larger than {most:,} bytes.")
            return message

        if scope["method"] in SAFE:
            return receive
        if scope["method"] == "PUT":
            return counted
        parts, more = [], True
        while more:
            message = await counted()
            if message["type"] == "http.disconnect":
                raise Stop(400, "GONE", "The client has gone.")
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        data = b"".join(parts)
        if depth_of(data) > limits.depth:
            raise Stop(400, "DEPTH", f"The JSON is nested more than {limits.depth} deep.")
        replayed = False

        async def once() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": data, "more_body": False}

        return once

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        """One line of JSON for each request: no query, no header, so no token."""
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.request(scope["method"], route, status, seconds)
        told = {"method": scope["method"], "path": shown(scope["path"]), "status": status, "ms": round(1000 * seconds), "id": request_id}  # fmt: skip
        _log.info("%s", to_json(told))


def _is_link(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether somebody followed a link to a page, from wherever."""
    place = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return scope["method"] in SAFE and place == ("navigate", "document")


_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def depth_of(data: bytes) -> int:
    """How deep brackets are nested, those in strings aside.

    >>> depth_of(b'{"a": [1, "[[[["]}')
    2
    """
    depth = deepest = 0
    for mark in _STRUCTURE.finditer(data):
        first = mark[0][:1]
        depth += first in b"[{"
        depth -= first in b"]}"
        deepest = max(deepest, depth)
    return deepest
