"""What a person at a terminal sees: tables on stdout, progress on stderr, errors in one sentence."""

from __future__ import annotations

import functools
import io
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar, cast

from headstart.errors import UserError, out_of_memory
from headstart.quantities import duration
from headstart.runs.disk import DENIED, FULL, write_file
from headstart.runs.watch import Watch
from headstart.show.table import table
from headstart.strict_json import to_json
from headstart.text.visible import shown

TOLD_EVERY = 20.0  # seconds between two lines of progress where there is no bar
F = TypeVar("F", bound=Callable[..., None])


def guarded(verb: F) -> F:
    """The one place where an exception becomes a message and an exit code."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        debug, as_json = bool(kwargs.get("debug")), bool(kwargs.get("json"))
        try:
            with _trusting(bool(kwargs.get("no_verify"))):
                verb(*args, **kwargs)
            sys.stdout.flush()
        except UserError as error:
            if debug:
                raise
            fail(error.code, str(error), error.exit_code, as_json)
        except KeyboardInterrupt:
            fail("STOPPED", "Stopped.", 130, as_json)
        except BrokenPipeError:  # `| head` closed our stdout: nobody is left to write to
            _drop_stdout()
            sys.exit(0)
        except Exception as error:
            if debug:
                raise
            if out_of_memory(error):
                fail("MEMORY", "Out of memory. Try a smaller --batch-size, --context or --size.", 6, as_json)
            if refused := _refused_by_disk(error):
                _drop_stdout()
                fail(*refused, 6, as_json)
            with tempfile.NamedTemporaryFile(
                "w", prefix="headstart-crash-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
            ) as file:
                file.write(f"headstart {' '.join(sys.argv[1:])}\n\n{traceback.format_exc()}")
            cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            fail("BUG", f"This is a bug in Headstart, not in your input ({cause}). Details: {file.name}", 1, as_json)

    return run  # type: ignore[return-value]


@contextmanager
def _trusting(asked: bool) -> Iterator[None]:
    """With --no-verify, whatever the verb opens is taken as it is."""
    if not asked:
        yield
        return
    from headstart.runs.manifest import unverified

    with unverified():
        yield


def _refused_by_disk(error: Exception) -> tuple[str, str] | None:
    """The code and the sentence where a disk was full, read-only or not ours; Rust only says so in words."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    where = getattr(error, "filename", None) or "the output"
    if number in FULL:
        return "DISK_FULL", f"Disk full writing {where} ({os.strerror(number)}). Free some space."
    if number in DENIED:
        return "DISK_DENIED", f"{where} cannot be written or read ({os.strerror(number)})."
    return None


def _drop_stdout() -> None:
    """Python writes what is left of it at its end, and would fail once more."""
    with suppress(OSError, ValueError):  # it is no file of the system, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_streams() -> None:
    """Output in UTF-8 whatever the locale says, half characters escaped; and none where it was closed (`>&-`)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def fail(code: str, message: str, exit_code: int, as_json: bool) -> None:
    message = message.replace("\n", "\\n")  # one line, whatever a file is called
    told = {"error": {"code": code, "message": message}}
    line = to_json(told) if as_json else f"error[{code}]: {shown(message)}"
    with suppress(OSError):  # the terminal is gone
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    sys.exit(exit_code)


def show_json(value: Any) -> None:
    sys.stdout.write(to_json(value) + "\n")


def show(text: str = "") -> None:
    sys.stdout.write(shown(text) + "\n")


def show_notes(notes: Sequence[str], quiet: bool = False) -> None:
    sys.stderr.writelines(f"Note: {shown(note)}\n" for note in notes if not quiet)


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """A plain table, columns `right` aligned to the right."""
    sys.stdout.write(table(header, rows, right) + "\n")


def write_drawings(files: Mapping[str, Any], page: Callable[[], Any], drawing: Callable[[], Any]) -> None:
    """Write what --html, --png and --svg ask for."""
    if html := files.get("--html"):
        write_file(html, page().encode())
    if png := files.get("--png"):
        write_file(png, drawing().png())
    if svg := files.get("--svg"):
        write_file(svg, drawing().svg().encode())


def accuracy_line(name: str, scores: Mapping[str, Any]) -> str:
    low, high = scores["interval"]
    return f"{name} {scores['accuracy']:.4f} (95 % interval {low:.4f} to {high:.4f}, {scores['rows']} rows)"


def share(value: float | None) -> str:
    """A score, or that there is none: of a class without rows, no part can be right."""
    return "undefined" if value is None else f"{value:.4f}"


class Lasting:
    """A stream that takes what is written even when its terminal has gone: progress must not end a job."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()


class Bar(Watch):
    """A progress bar with rate and time left, on a terminal; elsewhere only notes, unless quiet."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self.console = Console(file=cast(TextIO, Lasting(sys.stderr)), quiet=quiet, highlight=False, markup=False)
        self.progress: Any = None

    def start(self, title: str, total: int, done: int = 0) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.total, self.first, self.began, self.told = total, done, time.monotonic(), time.monotonic()
        if not self.console.is_terminal:
            return
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task = self.progress.add_task(shown(title), total=total, completed=done, state="")
        self.progress.start()

    def advance(self, done: int, loss: float, tokens_per_second: float) -> None:
        rate = f"{tokens_per_second:,.0f} tokens/s"
        if self.progress is not None:
            self.progress.update(self.task, completed=done, state=f"loss {loss:.3f}  {rate}")
        else:
            self._tell(done, f"step {done} of {self.total}: loss {loss:.3f}, {rate}")

    def reach(self, done: int, state: str, left: float | None = None) -> None:
        if self.progress is not None:
            known = "" if left is None else f"about {duration(max(1.0, left))} left"
            told = ", ".join(part for part in (shown(state), known) if part)
            self.progress.update(self.task, completed=done, state=told)
        else:
            self._tell(done, f"{done} of {self.total}: {state}", left)

    def _tell(self, done: int, text: str, left: float | None = None) -> None:
        """A log or a notebook gets a line now and then."""
        if time.monotonic() - self.told > TOLD_EVERY:
            self.told = time.monotonic()
            share = (done - self.first) / max(1, self.total - self.first)
            by_share = (self.told - self.began) * (1 - share) / share if share else None
            seconds = by_share if left is None else left
            known = "" if seconds is None or done >= self.total else f", about {duration(max(1.0, seconds))} left"
            self.note(f"{text}{known}")

    def note(self, text: str) -> None:
        self.console.print(shown(text), soft_wrap=True)

    def stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
