"""A folder with a language model, a classifier and a small study, and clients that talk to its server without a socket."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from headstart.cli import app
from headstart.config import FinetuneConfig, PretrainConfig, TranslateConfig
from headstart.jobs.job import run_job
from headstart.labelling.start import start as start_session
from headstart.schema import parse
from headstart.serve.app import make_app
from headstart.serve.settings import Settings
from headstart.study.study import compare
from tests.labelling.conftest import texts as topic_texts
from tests.serve.browsing import browse  # noqa: F401

TOKEN = "t" * 43
ADDRESS = "http://127.0.0.1:8642"
TEXTS = [f"the {dish} was {word}" for dish in ("soup", "bread", "fish", "cake") for word in ("lovely", "fresh", "awful", "cold")]  # fmt: skip
LABELS = ["good" if text.endswith(("lovely", "fresh")) else "bad" for text in TEXTS]
TRAIN = {"threads": 1, "tensorboard": False}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs called base and tuned, a study called study, a labelling session called topics; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("made") / "runs"
    corpus, rows = folder.parent / "corpus.txt", folder.parent / "rows.csv"
    corpus.write_text("\n".join(TEXTS * 3), "utf-8")
    rows.write_text(
        "text,label\n" + "".join(f"{t},{label}\n" for t, label in zip(TEXTS * 3, LABELS * 3, strict=True)), "utf-8"
    )
    settings: dict[str, Any] = {
        "data": {"paths": [str(corpus)], "unit": "line"},
        "tokenizer": {"kind": "word"},
        "samples": [],
    }
    settings |= {
        "model": {"size": "nano", "context": 32},
        "train": {**TRAIN, "steps": 30, "lr": 0.003, "batch_size": 8},
    }
    run_job(parse(PretrainConfig, settings), folder / "base")
    tuned = {"base": str(folder / "base"), "data": {"train": str(rows)}, "epochs": 2, "train": TRAIN, "least_steps": 5}
    run_job(parse(FinetuneConfig, tuned), folder / "tuned")
    topics = folder.parent / "topics.txt"
    topics.write_text("\n".join(text for text, _ in topic_texts(40)), "utf-8")
    start_session(topics, ("food", "sport"), folder / "topics", "tfidf").add(1, "food", "cli")
    few = {"seeds": 2, "least_steps": 5, "finetune": {"epochs": 1, "train": TRAIN}}
    compare(TEXTS * 3, LABELS * 3, folder / "base", ("majority", "tfidf", "full"), folder / "study", **few)
    return folder


ROWS: dict[str, list[dict[str, Any]]] = {  # of tasks other than classes
    "several": [
        {"text": f"the {a} and the {b} {i}", "labels": [a, b]}
        for i in range(10)
        for a, b in (("soup", "bread"), ("fish", "soup"), ("cake", "fish"))
    ],
    "number": [{"text": f"the soup number {i} was fine", "score": i + 0.25} for i in range(30)],
    "stars": [{"text": f"{'very ' * (i % 5)}good soup {i}", "stars": 1 + i % 5} for i in range(40)],
    "tags": [{"tokens": ["the", "soup", str(i)], "tags": ["O", "B-DISH", "O"]} for i in range(30)],
}


@pytest.fixture(scope="session")
def gallery(made: Path, matcher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `made` has, and a model of every other kind: several, number, stars, tags, translator, matcher; not to be changed."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("gallery") / "runs"))
    shutil.copytree(matcher, folder / "matcher")
    for task, rows in ROWS.items():
        file = folder.parent / f"{task}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
        preset = "bert" if task == "tags" else "gpt"
        small = {"base": preset, "init": "scratch", "model": {"preset": preset, "size": "nano"}, "tokenizer": {"kind": "word"}}  # fmt: skip
        data = {"train": str(file), **({} if task == "tags" else {"label_column": list(rows[0])[1]})}
        data |= {"task": "ordinal"} if task == "stars" else {}
        more = {"data": data, "epochs": 1, "least_steps": 5, "train": TRAIN}
        run_job(parse(FinetuneConfig, {**small, **more}), folder / task)
    for task in ("several", "number", "stars"):  # a study of each, without a model
        words = ["compare", str(folder.parent / f"{task}.jsonl"), "--arms", "constant,tfidf", "--seeds", "1", "--yes"]
        words += ["--label-column", list(ROWS[task][0])[1], "--out", str(folder / f"study-{task}")]
        done = CliRunner().invoke(app, [*words, *(["--task", "ordinal"] if task == "stars" else [])])
        assert done.exit_code == 0, done.output
    pairs = folder.parent / "pairs.tsv"
    pairs.write_text("\n".join(f"{a}{b}\t{b}{a}" for a in ("ba", "do", "ke", "mi", "lu") for b in ("na", "po", "re")))
    words = {"data": {"pairs": [str(pairs)]}, "epochs": 1, "model": {"hidden": 16, "layers": 1}, "train": TRAIN}
    run_job(parse(TranslateConfig, words), folder / "translator")
    return folder


@pytest.fixture(scope="session")
def kinds(gallery: Path) -> Iterator[TestClient]:
    """A client of it, for tests that change nothing."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(
        make_app(Settings(gallery, token=TOKEN)), ADDRESS, headers=headers, raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture
def client_of() -> Iterator[Callable[..., TestClient]]:
    """Clients of servers, which are closed at the end."""
    opened: list[TestClient] = []

    def make(folder: Path, **settings: Any) -> TestClient:
        settings = {"token": TOKEN, **settings}
        headers = {"Authorization": f"Bearer {TOKEN}"} if settings["token"] else {}
        client = TestClient(
            make_app(Settings(folder, **settings)), ADDRESS, headers=headers, raise_server_exceptions=False
        )
        opened.append(client.__enter__())
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(folder: Path, client_of: Callable[..., TestClient]) -> TestClient:
    return client_of(folder)


@pytest.fixture(scope="session")
def shared(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One client for tests that change nothing."""
    place = Path(shutil.copytree(made, tmp_path_factory.mktemp("shared") / "runs"))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(
        make_app(Settings(place, token=TOKEN)), ADDRESS, headers=headers, raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture(scope="session")
def ids(shared: TestClient) -> dict[str, str]:
    """The ids of its runs, studies and labelling sessions by name."""
    return {
        entry["name"]: entry["id"] for kind in ("runs", "labellings") for entry in shared.get(f"/api/{kind}").json()
    }


@pytest.fixture
def rows_csv() -> bytes:
    return ("text,label\n" + "".join(f"{t},{label}\n" for t, label in zip(TEXTS * 3, LABELS * 3, strict=True))).encode()


Server = tuple[subprocess.Popen[bytes], httpx2.Client]


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Servers of a folder, which are ended after the test."""
    running: list[Server] = []

    def begin(folder: Path, *flags: str) -> Server:
        port = free_port()
        words = ["serve", str(folder), "--port", str(port), "--json", *flags]
        child = subprocess.Popen(
            [sys.executable, "-m", "headstart", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert child.stdout
        told = json.loads(child.stdout.readline())
        headers = {"authorization": f"Bearer {Path(told['token_file']).read_text().strip()}"}
        client = httpx2.Client(base_url=told["address"], headers=headers, timeout=60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                client.get("/healthz")
                break
            except httpx2.TransportError:
                time.sleep(0.1)
        running.append((child, client))
        return child, client

    yield begin
    for child, client in running:
        client.close()
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()
