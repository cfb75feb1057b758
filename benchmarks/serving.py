"""Predictions over HTTP under load: requests that wait for one model are answered together.

python -m benchmarks.serving RUN --texts FILE [--seconds 20] [--clients 32] [--rounds 1]

RUN is a finished classifier, FILE a table with a column text, whose rows are sent in turn: those of the classifier's own kind,
so that their lengths differ as real ones do. Servers in turn, each in a process of its own: Headstart's, the same with one text in a
forward pass, and a plain FastAPI route around a transformers pipeline with the exported model, with the threads that torch takes by itself and with one.
All have httptools and uvloop. Requests are the same, and wrk sends them (Debian: apt-get install wrk), because a client in Python takes as long as a
server. Beside requests per second stand the processor milliseconds of a request, server and client apart, and how many texts a forward pass had.

Then ten times as many clients as the server takes at once, for a third of the time (15 s at the least): how many are refused, and how soon; the memory of the server
before and after; and what one client measures afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.serve.settings import Limits

OURS = """
import sys
from pathlib import Path
from headstart.serve.app import serve
from headstart.serve.settings import Limits, Settings
serve(Settings(Path(sys.argv[1]), port=int(sys.argv[2]), limits=Limits(batch=int(sys.argv[3]))))
"""
PLAIN = """
import sys, torch, uvicorn
from fastapi import Body, FastAPI
from transformers import pipeline
if sys.argv[3] != "0":
    torch.set_num_threads(int(sys.argv[3]))
app, classify = FastAPI(), pipeline("text-classification", sys.argv[1], top_k=None)
app.post("/predict")(lambda inputs=Body(embed=True), model=Body(embed=True): classify(inputs))
app.get("/healthz")(lambda: "ok")
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", http="httptools", loop="uvloop")
"""
SCRIPT = Path(__file__).with_suffix(".lua")


@dataclass(frozen=True)
class Case:
    name: str
    code: str
    arguments: tuple[str, str]  # before and behind the port
    clients: int


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


def wrk(port: int, clients: int, seconds: float, bodies: Path) -> dict[str, float]:
    """What wrk measured: requests, seconds, p50 and p99 in milliseconds, errors."""
    words = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:.0f}s", "--timeout", "30s", "-s", str(SCRIPT), f"http://127.0.0.1:{port}", "--", str(bodies)]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _start(case: Case, port: int, bodies: Path) -> subprocess.Popen[bytes]:
    """A server that has answered once, with its model loaded."""
    before, behind = case.arguments
    child = subprocess.Popen([sys.executable, "-c", case.code, before, str(port), behind], stderr=subprocess.DEVNULL)
    body, kind = bodies.read_bytes().splitlines()[0], {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, kind)
    for _ in range(600):
        try:
            urllib.request.urlopen(asked, timeout=100)
            return child
        except OSError:
            time.sleep(0.1)
    child.kill()
    raise SystemExit(f"{case.name}: no answer.")


def _processor(pid: int) -> float:
    """Seconds of processor time so far, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _passes(port: int) -> tuple[float, float]:
    """Requests and forward passes so far; of ours."""
    try:
        told = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    except OSError:
        return 0.0, 0.0
    values = dict(line.split() for line in told.splitlines() if line[0] != "#")
    return float(values.get("headstart_batched_requests_total", 0)), float(values.get("headstart_batches_total", 0))


def measure(case: Case, port: int, seconds: float, bodies: Path) -> str:
    """A row of the table."""
    child = _start(case, port, bodies)
    try:
        wrk(port, case.clients, 3, bodies)  # so that everything has been done once
        server, clients, (requests, passes) = _processor(child.pid), resource.getrusage(resource.RUSAGE_CHILDREN), _passes(port)  # fmt: skip
        found = wrk(port, case.clients, seconds, bodies)
        n, after = found["requests"], resource.getrusage(resource.RUSAGE_CHILDREN)
        server = 1000 * (_processor(child.pid) - server) / n
        sending = 1000 * (after.ru_utime + after.ru_stime - clients.ru_utime - clients.ru_stime) / n
        now = _passes(port)
        joined = f"{(now[0] - requests) / (now[1] - passes):.1f}" if now[1] > passes else ""
        return f"| {case.name} | {case.clients} | {n / found['seconds']:.0f} | {found['p50']:.1f} | {found['p99']:.1f} | {found['errors']:.0f} | {server:.2f} | {sending:.2f} | {joined} |"
    finally:
        child.kill()
        child.wait()


def overload(case: Case, port: int, seconds: float, bodies: Path) -> str:
    """A sentence about ten times the load that the server takes at once."""
    child = _start(case, port, bodies)
    try:
        alone = wrk(port, 1, 5, bodies)
        before = _memory(child.pid)
        took: list[float] = []
        statuses: list[int] = []
        body, until = bodies.read_bytes().splitlines()[0], time.monotonic() + seconds

        async def flood() -> None:
            await asyncio.gather(*(client(port, body, until, took, statuses) for _ in range(10 * Limits().at_once)))

        asyncio.run(flood())
        after, counts = _memory(child.pid), Counter(statuses)
        refused = [second for second, status in zip(took, statuses, strict=True) if status == 429]
        later = wrk(port, 1, 5, bodies)
        rate, rate_later = (found["requests"] / found["seconds"] for found in (alone, later))
        return (
            f"{10 * Limits().at_once} clients for {seconds:.0f} s: answers by status {dict(sorted(counts.items()))}; refused after {1000 * statistics.median(refused or [0]):.0f} ms (median); "
            f"memory {before >> 20} MB before, {after >> 20} MB after; one client {rate:.0f} requests/s (p50 {alone['p50']:.1f} ms) before, {rate_later:.0f} (p50 {later['p50']:.1f} ms) after, {later['errors']:.0f} errors."
        )
    finally:
        child.kill()
        child.wait()


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1, help="how often the servers are measured in turn")
    args = parser.parse_args()
    run, folder = args.run.absolute(), str(args.run.absolute().parent)
    with args.texts.open(newline="", encoding="utf-8") as opened:
        texts = [row["text"] for row in csv.DictReader(opened)]
    words = [len(text.split()) for text in texts]
    write = sys.stdout.write
    write(f"{len(texts)} texts of {min(words)} to {max(words)} words, {statistics.mean(words):.1f} on average.\n\n")
    write("| server | clients | requests/s | p50, ms | p99, ms | errors | server, ms of processor | client | texts per pass |\n|---|---|---|---|---|---|---|---|---|\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        exported, bodies = Path(place) / "exported", Path(place) / "bodies"
        bodies.write_text("".join(json.dumps({"inputs": text, "model": run.name}) + "\n" for text in texts))
        made: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL}
        subprocess.run([sys.executable, "-m", "headstart", "export", str(run), "--out", str(exported)], **made)
        cases = [
            Case("Headstart, requests joined", OURS, (folder, "64"), args.clients),
            Case("Headstart, one client", OURS, (folder, "64"), 1),
            Case("Headstart, one text per pass", OURS, (folder, "1"), args.clients),
            Case("FastAPI and a transformers pipeline", PLAIN, (str(exported), "0"), args.clients),
            Case("the same, one thread of torch", PLAIN, (str(exported), "1"), args.clients),
        ]
        for turn in range(args.rounds):
            for i, case in enumerate(cases):
                write(measure(case, 8701 + 10 * turn + i, args.seconds, bodies) + "\n")
                sys.stdout.flush()
        write("\n" + overload(cases[0], 8791, max(15, args.seconds / 3), bodies) + "\n")


if __name__ == "__main__":
    main()
