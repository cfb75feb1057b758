"""The server as a process, on a socket: its verb, clients that speak OpenAI's API, and a kill in the middle of a study."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.models.decode import Sampling
from headstart.use.encode import LoadedEncoder
from headstart.use.language import LoadedLanguageModel
from tests.serve.conftest import Server


def test_without_the_extra_the_verb_tells_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("headstart.cli.serve.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["serve", str(tmp_path)])
    assert done.exit_code == 4
    assert (
        "error[NOT_INSTALLED]: headstart serve needs FastAPI and uvicorn: pip install 'headstart[serve]'."
        in done.stderr
    )


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--host", "0.0.0.0", "--no-token"], 4, "so a token is needed"),
        (["--port", "0"], 2, "--port"),
        (["--memory", "-1"], 2, "--memory"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_sentence(
    tmp_path: Path, flags: list[str], code: int, says: str
) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path), *flags])
    assert done.exit_code == code, done.output
    assert says in done.stderr


def test_a_port_in_use_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 6
    assert "error[PORT]" in done.stderr


def test_the_client_of_openai_gets_the_numbers_of_generate(made: Path, start: Callable[..., Server]) -> None:
    openai = pytest.importorskip("openai")
    _, http = start(made)
    client = openai.OpenAI(base_url=f"{http.base_url}v1", api_key=http.headers["authorization"].split()[1])
    names = {model.name: model.id for model in client.models.list()}
    loaded = LoadedLanguageModel.load(made / "base")
    ours = loaded.generate("the soup was", 6, Sampling(), 2)
    tokens = [t for t in ours["tokens"] if t["id"] != loaded.saved.tokenizer.end]
    asked: dict[str, Any] = {
        "model": names["base"],
        "prompt": "the soup was",
        "max_tokens": 6,
        "temperature": 0,
        "logprobs": 2,
    }
    whole = client.completions.create(**asked, echo=True)
    assert whole.choices[0].text == ours["text"]
    assert whole.choices[0].logprobs.token_logprobs[0] is None
    first = whole.usage.prompt_tokens  # the end token comes after those of the text
    new = whole.choices[0].logprobs.token_logprobs[first : first + len(tokens)]
    import math

    assert [math.exp(value) for value in new] == pytest.approx([t["probability"] for t in tokens], abs=1e-5)
    parts = list(client.completions.create(**asked, stream=True))
    assert "the soup was" + "".join(part.choices[0].text for part in parts) == ours["text"]
    assert len(parts) >= len(tokens)
    vectors = client.embeddings.create(model=names["base"], input=["a fish", "the soup"])
    expected = LoadedEncoder.load(made / "base").embed(["a fish", "the soup"])
    for found, row in zip(vectors.data, expected, strict=True):
        assert found.embedding == pytest.approx(row, abs=1e-5)
    with pytest.raises(openai.NotFoundError, match="no finished model"):
        client.completions.create(model="none", prompt="a")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{http.base_url}v1", api_key="wrong").models.list()


def test_the_server_listens_on_loopback_alone_and_stops_gently(made: Path, start: Callable[..., Server]) -> None:
    child, http = start(made)
    listening = {
        line.split()[1]
        for line in Path(f"/proc/{child.pid}/net/tcp").read_text().splitlines()
        if line.split()[3] == "0A"
    }
    ours = [place for place in listening if int(place.split(":")[1], 16) == http.base_url.port]
    assert ours == [f"0100007F:{http.base_url.port:04X}"]
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) in (0, -signal.SIGTERM, 143)


@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_server_killed_in_the_middle_of_a_study_loses_nothing(
    folder: Path, start: Callable[..., Server], rows_csv: bytes, times: int
) -> None:
    child, http = start(folder)
    file = http.put(
        "/api/files?name=rows.csv", content=rows_csv, headers={"content-type": "application/octet-stream"}
    ).json()["id"]
    base = next(b["id"] for b in http.get("/api/bases").json() if b["name"] == "base")
    asked = {
        "verb": "compare",
        "data": file,
        "bases": [base],
        "arms": ["tfidf", "scratch", "full"],
        "seeds": 2 if times == 3 else 16,
        "epochs": 1,
        "least_steps": 10 if times == 3 else 100,  # the study must last for all kills
        "name": "mine",
    }
    job = http.post("/api/jobs", json=asked).json()["id"]
    deadline, kills = time.monotonic() + 480, 0
    state: dict[str, Any] = {}
    while time.monotonic() < deadline:
        state = http.get(f"/api/jobs/{job}").json()
        if state["state"] not in ("starting", "running"):
            break
        if kills < times:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child, http = start(folder)
            kills += 1
        time.sleep(1)
    assert kills == times
    assert state["state"] == "finished", state
    assert state["progress"]["finished"] == state["progress"]["total"] == (5 if times == 3 else 33)
    assert {arm["name"] for arm in http.get(f"/api/studies/{job}").json()["arms"]} == {"tfidf", "scratch", "full"}
