"""Deadlines (R11), load (R12), limits of jobs (R16) and supply chain (R19) of the server, on a socket where they belong to one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from headstart.serve.app import make_app
from headstart.serve.protocol import protocol
from headstart.serve.settings import Limits, Settings
from tests.serve.conftest import free_port

ROOT = Path(__file__).parents[2]


@contextmanager
def listening(folder: Path, limits: Limits) -> Iterator[int]:
    """The server on a port, in a thread of this process."""
    port = free_port()
    app = make_app(Settings(folder, limits=limits, port=port))
    config = uvicorn.Config(
        app, port=port, log_level="error", http=protocol(limits.header_seconds, limits.header_bytes), ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(30)


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def asked(port: int, body: bytes) -> tuple[int, str]:
    """The status and the head of one answer to POST /predict."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.read()).decode("latin-1").lower()
    writer.close()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[0]


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127."], ids=["silent", "half of the headers"])
def test_R11_a_connection_without_a_request_is_closed(made: Path, sent: bytes) -> None:
    with listening(made, Limits(header_seconds=0.3)) as port, socket.create_connection(("127.0.0.1", port)) as one:
        one.settimeout(10)
        one.sendall(sent)
        assert one.recv(100) == b""
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert other.recv(12) == b"HTTP/1.1 200"


def endless(port: int, begun: bytes, part: bytes, most: int) -> tuple[int, bytes]:
    """How many bytes are taken of a request that never ends, and the last answer."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.settimeout(10)
        one.sendall(begun)
        sent, told = 0, b""
        try:
            while sent < most:
                one.sendall(part)
                sent += len(part)
            told = one.recv(1 << 16)
        except OSError:  # closed
            pass
    return sent, told


HEAD = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("begun", "part"),
    [
        (b"GET /", b"a" * 4096),
        (HEAD + b"X-One: ", b"a" * 4096),
        (HEAD, b"X-Many: 1\r\n" * 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: ", b"a" * 4096),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X-Trailer: 1\r\n" * 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;", b"a" * 4096),
    ],
    ids=["address", "one header", "many headers", "one trailer", "many trailers", "a chunk's extension"],
)
def test_R10_headers_that_do_not_end_are_not_kept(made: Path, begun: bytes, part: bytes) -> None:
    with listening(made, Limits(header_seconds=60)) as port:
        before = memory()
        sent, _ = endless(port, begun, part, 64 << 20)
        assert sent < 32 << 20  # what stands in the buffers of the two ends
        assert memory() - before < 32 << 20
        assert asyncio.run(asked(port, b"{}"))[0] == 422


def test_R11_a_request_that_takes_too_long_is_answered(made: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(made, limits=Limits(seconds=0.3))
    worker, hold = client.app.app.state.studio.worker, threading.Event()
    worker.submit("hold", lambda items: (hold.wait(60), items)[1], [1])
    began = time.monotonic()
    answer = client.post("/embed", json={"inputs": "the soup was cold"})
    hold.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "LATE")
    assert answer.headers["retry-after"] == "1"
    assert time.monotonic() - began < 10


def test_R11_a_body_that_stalls_is_answered(made: Path) -> None:
    app = make_app(Settings(made, limits=Limits(stall=0.1)))
    sent: list[Any] = []

    async def stall() -> None:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": headers}
    asyncio.run(asyncio.wait_for(app(scope, stall, send), 10))
    assert sent[0]["status"] == 408


def test_R12_ten_times_the_load_is_refused_in_bounded_memory_and_the_server_is_well_afterwards(made: Path) -> None:
    limits = Limits(queue=4, at_once=20)
    body = json.dumps({"inputs": "the soup was cold", "model": "tuned"}).encode()

    async def load(port: int) -> list[tuple[int, str]]:
        return await asyncio.gather(*(asked(port, body) for _ in range(200)))

    with listening(made, limits) as port:
        assert asyncio.run(asked(port, body))[0] == 200  # which loads the model
        before = memory()
        answers = [answer for _ in range(3) for answer in asyncio.run(load(port))]
        grown = memory() - before
        assert asyncio.run(asked(port, body))[0] == 200
    refused = [head for status, head in answers if status == 429]
    assert {status for status, _ in answers} == {200, 429}
    assert len(refused) > 100
    assert all("retry-after: 1" in head for head in refused)
    assert grown < 100 << 20


def test_R16_the_process_of_a_job_is_limited(folder: Path, client_of: Callable[..., TestClient]) -> None:
    limits = Limits(job_hours=1.0, job_file=5 << 30)
    jobs = client_of(folder, limits=limits).app.app.state.studio.jobs
    wanted = jobs.start(["pretrain", str(folder / "none.txt")], folder / "job")
    pid = json.loads((jobs.kept / wanted / "job.json").read_text())["pid"]
    found = Path(f"/proc/{pid}/limits").read_text()
    jobs.wait(wanted, 60)
    seconds = 3600 * (os.cpu_count() or 1)
    assert re.search(rf"Max cpu time +{seconds} +{seconds} ", found)
    assert re.search(rf"Max file size +{5 << 30} +{5 << 30} ", found)
    assert re.search(r"Max core file size +0 +0 ", found)


def test_R16_no_job_starts_on_a_full_disk(folder: Path, client_of: Callable[..., TestClient], rows_csv: bytes) -> None:
    client = client_of(folder, limits=Limits(free_disk=1 << 60))
    kind = {"content-type": "application/octet-stream"}
    file = client.put("/api/files?name=rows.csv", content=rows_csv, headers=kind).json()["id"]
    answer = client.post("/api/jobs", json={"verb": "compare", "data": file, "arms": ["tfidf"], "seeds": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "DISK")


@pytest.mark.parametrize(
    "more",
    [{"seeds": 21}, {"epochs": 101}, {"steps": 10**7}, {"least_steps": 10**5}, {"arms": ["full"] * 17}, {"labels": [1] * 9}, {"size": "huge"}],
    ids=lambda more: next(iter(more)),
)  # fmt: skip
def test_R16_a_job_asks_for_no_more_than_its_caps(shared: TestClient, more: dict[str, Any]) -> None:
    answer = shared.post("/api/jobs", json={"verb": "compare", "data": "0" * 64, **more})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "REQUEST")
    assert next(iter(more)) in answer.json()["error"]["message"]


def test_R19_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in wanted} - {"headstart"}  # type: ignore[index]
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line.strip() and line[0] != "#"]  # fmt: skip
    assert [line for line in lines if not re.match(r"[\w.-]+==[\w.+-]+", line)] == []
    assert names - {line.partition("==")[0].lower().replace("_", "-") for line in lines} == set()


def test_R19_what_the_server_brings_is_locked_by_hashes() -> None:
    """Every package that the extra has in the end, in the version of constraints.txt, with a hash at the least."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["serve"]
    left, needed = [Requirement(one).name for one in extra], set[str]()
    while left:
        if (name := left.pop().lower().replace("_", "-")) not in needed:
            needed.add(name)
            more = map(Requirement, requires(name) or [])
            left += [one.name for one in more if one.marker is None or one.marker.evaluate({"extra": ""})]
    text = (ROOT / "requirements-serve.txt").read_text("utf-8").replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for _, *hashes in lines for word in hashes)
    assert all(hashes for _, *hashes in lines)
    names = {pin.partition("==")[0].lower().replace("_", "-") for pin, *_ in lines}
    assert needed <= names
    pinned = {line.strip().lower() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    assert {pin.lower() for pin, *_ in lines} <= pinned


def test_R19_importing_the_server_connects_nowhere() -> None:
    code = "import sys; sys.addaudithook(lambda event, _: event in ('socket.connect', 'socket.getaddrinfo') and sys.exit(event)); import headstart.serve.app, headstart.serve.protocol"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
