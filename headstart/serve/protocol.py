"""HTTP on a socket, with what uvicorn does not have: a deadline for the headers of a request, and a limit on their size.

The parser (llhttp, by httptools) holds what it has of an unfinished header, so bytes are counted that bring neither the end of
the headers nor a part of the body: headers that do not end, and trailers behind a body.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def protocol(seconds: float, most: int) -> type[HttpToolsProtocol]:
    """A protocol that closes connections whose next request is not there, headers and all, after so many seconds or bytes."""

    class Bounded(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _held = 0  # bytes since the end of the headers or a part of the body
        _moved = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            self._moved = False
            super().data_received(data)
            self._held = 0 if self._moved else self._held + len(data)
            if self._held > most and not self.transport.is_closing():
                self._refuse()
            self._watch()

        def on_headers_complete(self) -> None:
            self._moved = True
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._moved = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._moved = True
            super().on_message_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _refuse(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.send_400_response("The headers are too large.")
            else:  # they stand behind a body, and its answer may have begun
                self.transport.close()

        def _watch(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()  # a request is being answered
            elif self._late is None:
                self._late = self.loop.call_later(seconds, self._end)

        def _stop(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _end(self) -> None:
            self._late = None
            if not self.transport.is_closing():
                self.transport.close()

    return Bounded
