"""Processes forked from this one, which has torch loaded: they work after 0.1 s of CPU instead of 4.

Such a process is killed, hears signals, writes to its streams and ends with exit codes as one that began with
`python -m headstart`, which the tests of the terminal, the streams and the server start. `Shell` runs scripts whose command
`headstart` is such a process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

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

    def __init__(self, work: Callable[[], None], streams: Sequence[int] | None = None) -> None:
        """`streams`: what it reads from and writes to, instead of nothing and files of its own."""
        self._own = [] if streams else [TemporaryFile(), TemporaryFile()]  # noqa: SIM115
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a process with threads should not be forked
            self.pid = os.fork()
        if not self.pid:
            self._run(work, streams or (os.open(os.devnull, os.O_RDONLY), *(file.fileno() for file in self._own)))

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
        out, err = self._own
        with out, err:
            for file in (out, err):
                file.seek(0)
            return out.read().decode(), err.read().decode()

    def _run(self, work: Callable[[], None], streams: Sequence[int]) -> NoReturn:
        code = 1
        try:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
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


CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    words = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [len(words).to_bytes(4, "big")], [0, 1, 2])
    asked.sendall(words)
    code = asked.recv(1)
sys.exit(code[0] if code else 1)
"""


class Shell:
    """Runs scripts of bash. Their command `headstart` asks this process for a forked one, which has its streams, folder and environment.

    To kill the command kills only what asks: a script that does so needs the real one.
    """

    def __init__(self, folder: Path) -> None:
        self.commands = folder / "commands"
        self.commands.mkdir()
        self.address = os.fspath(folder / "headstart.socket")
        client = self.commands / "headstart"
        client.write_text(CLIENT.format(python=sys.executable, address=self.address))
        client.chmod(0o755)

    def run(
        self, script: str, folder: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        env = {**env, "PATH": f"{self.commands}{os.pathsep}{env['PATH']}"}
        Path(self.address).unlink(missing_ok=True)
        until, asked = time.monotonic() + timeout, dict[Forked, socket.socket]()
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err, socket.socket(socket.AF_UNIX) as door:
            door.bind(self.address)
            door.listen()
            words = ["bash", "-euo", "pipefail", "-c", script]
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            with subprocess.Popen(words, cwd=folder, env=env, start_new_session=True, **streams) as bash:
                while bash.poll() is None:
                    if time.monotonic() > until:
                        os.killpg(bash.pid, signal.SIGKILL)
                        for child in asked:
                            child.kill()
                        raise TimeoutError(f"it has not ended after {timeout} seconds:\n{script}")
                    if select.select([door], [], [], 0.005)[0]:
                        client, _ = door.accept()
                        asked[self._answered(client)] = client
                    for child in [child for child in asked if child.poll() is not None]:
                        with asked.pop(child) as client:
                            code = child.returncode or 0
                            client.sendall(bytes([code if code >= 0 else 128 - code]))
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(words, bash.returncode, out.read(), err.read())

    def _answered(self, client: socket.socket) -> Forked:
        size, streams, _, _ = socket.recv_fds(client, 4, 3)
        with client.makefile("rb") as told:
            words, folder, env = json.loads(told.read(int.from_bytes(size, "big")))

        def work() -> None:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(env)
            sys.argv = ["headstart", *words]
            app(list(words))

        try:
            return Forked(work, streams)
        finally:
            for stream in streams:
                os.close(stream)
