"""Predictions over HTTP under load: requests that wait for one model are answered together.

python -m benchmarks.serving RUN [--seconds 20] [--clients 32]

RUN is a finished classifier. Three servers in turn, each in a process of its own: Headstart's, the same with one text in a forward pass,
and a plain FastAPI route around a transformers pipeline with the exported model. Requests are the same.
Then ten times as many clients as the server takes at once, for a third of the time (15 s at the least): how many are refused, and how soon; the memory of the server
before and after; and what one client measures afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from headstart.serve.settings import Limits

TEXT = "the food was cold and the service was slow, but we will come back for the cake"
OURS = """
import sys, uvicorn
from pathlib import Path
from headstart.serve.app import make_app
from headstart.serve.settings import Limits, Settings
uvicorn.run(make_app(Settings(Path(sys.argv[1]), limits=Limits(batch=int(sys.argv[3])))), port=int(sys.argv[2]), log_level="error", http="h11")
"""
PLAIN = """
import sys, uvicorn
from fastapi import Body, FastAPI
from transformers import pipeline
app, classify = FastAPI(), pipeline("text-classification", sys.argv[1], top_k=None)
app.post("/predict")(lambda inputs=Body(embed=True), model=Body(embed=True): classify(inputs))
app.get("/healthz")(lambda: "ok")
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", http="h11")
"""


async def client(port: int, body: bytes, until: float, took: list[float], statuses: list[int]) -> None:
    """Requests one after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.split("content-length: ")[1].split("\r\n")[0])
        await reader.readexactly(length)
        statuses.append(int(answer.split()[1]))
        took.append(time.monotonic() - began)
    writer.close()


async def load(port: int, clients: int, seconds: float, model: str) -> tuple[float, float, float, int]:
    """Requests per second, p50 and p99 in milliseconds, and how many were not answered with 200."""
    body = json.dumps({"inputs": TEXT, "model": model}).encode()
    await client(port, body, time.monotonic() + 2, [], [])  # loads the model
    took: list[float] = []
    statuses: list[int] = []
    until = time.monotonic() + seconds
    await asyncio.gather(*(client(port, body, until, took, statuses) for _ in range(clients)))
    cuts = statistics.quantiles(took, n=100)
    return len(took) / seconds, 1000 * cuts[49], 1000 * cuts[98], sum(status != 200 for status in statuses)


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            asyncio.run(asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 1))
            return
        except OSError:
            time.sleep(0.1)


def measure(
    code: str, arguments: list[str], port: int, clients: int, seconds: float, model: str
) -> tuple[float, float, float, int]:
    child = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        _wait(port)
        return asyncio.run(load(port, clients, seconds, model))
    finally:
        child.kill()
        child.wait()


def overload(folder: Path, port: int, seconds: float, model: str) -> str:
    """A sentence about ten times the load that the server takes at once."""
    child = subprocess.Popen([sys.executable, "-c", OURS, str(folder), str(port), "64"])
    try:
        _wait(port)
        rate, p50, _, _ = asyncio.run(load(port, 1, 5, model))
        before = _memory(child.pid)
        took: list[float] = []
        statuses: list[int] = []
        body, until = json.dumps({"inputs": TEXT, "model": model}).encode(), time.monotonic() + seconds

        async def flood() -> None:
            await asyncio.gather(*(client(port, body, until, took, statuses) for _ in range(10 * Limits().at_once)))

        asyncio.run(flood())
        after, counts = _memory(child.pid), Counter(statuses)
        refused = [second for second, status in zip(took, statuses, strict=True) if status == 429]
        later, p50_later, _, errors = asyncio.run(load(port, 1, 5, model))
        return (
            f"{10 * Limits().at_once} clients for {seconds:.0f} s: answers by status {dict(sorted(counts.items()))}; refused after {1000 * statistics.median(refused or [0]):.0f} ms (median); "
            f"memory {before >> 20} MB before, {after >> 20} MB after; one client {rate:.0f} requests/s (p50 {p50:.1f} ms) before, {later:.0f} (p50 {p50_later:.1f} ms) after, {errors} errors."
        )
    finally:
        child.kill()
        child.wait()


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=32)
    args = parser.parse_args()
    run, folder = args.run.absolute(), args.run.absolute().parent
    rows = ["| server | clients | requests/s | p50, ms | p99, ms | errors |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as place:
        exported = Path(place) / "exported"
        subprocess.run(
            [sys.executable, "-m", "headstart", "export", str(run), "--out", str(exported)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        cases = [
            ("Headstart, requests joined", OURS, [str(folder), "8701", "64"], 8701, args.clients),
            ("Headstart, one text per pass", OURS, [str(folder), "8702", "1"], 8702, args.clients),
            ("Headstart, one client", OURS, [str(folder), "8703", "64"], 8703, 1),
            ("FastAPI and a transformers pipeline", PLAIN, [str(exported), "8704"], 8704, args.clients),
        ]  # fmt: skip
        for name, code, arguments, port, clients in cases:
            rate, p50, p99, errors = measure(code, arguments, port, clients, args.seconds, run.name)
            rows.append(f"| {name} | {clients} | {rate:.0f} | {p50:.1f} | {p99:.1f} | {errors} |")
    sys.stdout.write("\n".join(rows) + "\n\n")
    sys.stdout.write(overload(folder, 8705, max(15, args.seconds / 3), run.name) + "\n")


if __name__ == "__main__":
    main()
