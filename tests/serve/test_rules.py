"""Rules that need more than a request: no unpickling while models are used (R7), logs of one line (R14), process groups (R18), root (R20)."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headstart.config import TrainConfig
from headstart.errors import ConfigError
from headstart.runs.place import LISTENING, Place
from headstart.serve.settings import Settings
from headstart.train.processes import Group
from tests.serve.conftest import TOKEN


def test_R7_no_model_is_unpickled(folder: Path, client_of: Callable[..., TestClient]) -> None:
    found, watching = list[str](), True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "pickle.find_class":
            found.append(str(arguments))

    client = client_of(folder)
    models = {m["name"]: m["id"] for m in client.get("/v1/models").json()["data"]}
    sys.addaudithook(listen)  # which stays: a process cannot take one back
    try:
        asked = [
            client.post("/predict", json={"inputs": "the soup", "model": models["tuned"]}),
            client.post("/v1/completions", json={"prompt": "the", "max_tokens": 2, "model": models["base"]}),
            client.post(f"/api/models/{models['tuned']}/inspect", json={"text": "the soup"}),
            client.get(f"/api/models/{models['tuned']}/archive?to=transformers"),
        ]
    finally:
        watching = False
    assert [answer.status_code for answer in asked] == [200] * len(asked)
    assert found == []


@pytest.mark.parametrize("path", ["/%1b[31mred", "/a%0d%0afaked: line", "/%e2%80%aeevil", "/%00"])
def test_R14_a_request_is_one_line_of_json_in_the_log(
    shared: TestClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level("INFO")
    assert shared.get(path, headers={"user-agent": "\x1b[2J"}).status_code in (400, 404)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "headstart.serve"]
    assert json.loads(line)["status"] in (400, 404)
    assert re.search(r"[\x00-\x1f\x7f-\x9f\u202e\u2028]", line) is None
    assert TOKEN not in line


def test_R14_what_a_job_prints_is_shown_without_control_characters(
    folder: Path, client_of: Callable[..., TestClient]
) -> None:
    client = client_of(folder)
    base = next(e["id"] for e in client.get("/api/runs").json() if e["name"] == "base")
    kept = folder / ".serve" / "jobs" / base
    kept.mkdir(parents=True)
    (kept / "stderr").write_text("\x1b[2J\u202enote\n", "utf-8")
    assert client.get(f"/api/jobs/{base}").json()["notes"] == ["\\x1b[2J\\u202enote"]


def own_listening_addresses() -> set[str]:
    inodes = set[str]()
    for fd in Path("/proc/self/fd").iterdir():
        if (found := re.match(r"socket:\[(\d+)\]", os.readlink(fd) if fd.is_symlink() else "")) is not None:
            inodes.add(found[1])
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in inodes}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_R18_a_process_group_listens_on_loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = own_listening_addresses()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        for name, value in {LISTENING: str(os.dup(listening.fileno())), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listening.getsockname()[1])}.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        group = Group(Place(0, 1, 0, 1))
        group.begin(TrainConfig(), 10)
        try:
            assert own_listening_addresses() - before <= {"0100007F"}  # 127.0.0.1
            assert "0100007F" in own_listening_addresses()
        finally:
            group.end()


def test_R20_the_administrator_serves_no_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match=r"must not serve"):
        Settings(tmp_path, host="0.0.0.0", token=TOKEN)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Settings(tmp_path, host="0.0.0.0", token=TOKEN).exposed
