"""HTTP on a socket, with a deadline for the headers of a request, which uvicorn does not have."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(seconds: float) -> type[H11Protocol]:
    """A protocol that closes connections whose next request is not there, headers and all, after so many seconds."""

    class Deadline(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

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

    return Deadline
