"""Progress callbacks of a long job. The library is silent; a terminal or a page overrides this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Watch:
    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[None]:
        """Progress shown from here to the end of the block, however it ends."""
        self.start(title, total, done)
        try:
            yield
        finally:
            self.stop()

    def start(self, title: str, total: int, done: int = 0) -> None: ...

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None: ...

    def reach(self, done: int, state: str, left: float | None = None) -> None:
        """Progress of something that is no training; `left` are seconds, where they do not follow from what is done."""

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...
