"""Processes forked from this one, which has torch loaded: they work after 0.1 s of CPU instead of 4.

Such a process is killed, hears signals, writes to its streams and ends with exit codes as one that began with
`python -m headstart`, which the tests of the terminal, the streams, the server and the tutorial start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

from headstart.cli import app
from headstart.train import loop  # noqa: F401  with torch and its optimizers, which the processes then find loaded


def headstart(words: Sequence[str], folder: Path | None = None) -> Forked:
    """The command line with these arguments, in `folder`."""

    def work() -> None:
        os.chdir(folder or ".")
        sys.argv = ["headstart", *words]
        app(list(words))

    return Forked(work)


class Forked:
    """What the tests use of subprocess.Popen; the streams are read when the process has ended."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._out, self._err = TemporaryFile(), TemporaryFile()  # noqa: SIM115
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a process with threads should not be forked
            self.pid = os.fork()
        if not self.pid:
            self._run(work)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                self.kill()
                raise TimeoutError(f"it has not ended after {timeout} seconds")
            time.sleep(0.002)
        with self._out, self._err:
            for file in (self._out, self._err):
                file.seek(0)
            return self._out.read().decode(), self._err.read().decode()

    def _run(self, work: Callable[[], None]) -> NoReturn:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self._out.fileno(), 1)
            os.dup2(self._err.fileno(), 2)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            warnings.simplefilter("ignore")
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            sys.stderr.write(end.code if isinstance(end.code, str) else "")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
