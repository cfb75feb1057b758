"""Jobs over HTTP: the same command in a process of its own, found again by a server that knows nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headstart.runs.lock import lock_folder, owner_of
from headstart.runs.run import Run

LONG = {"verb": "pretrain", "size": "nano", "unit": "line", "steps": 100_000, "name": "long"}


def upload(client: TestClient, data: bytes, name: str = "rows.csv") -> str:
    answer = client.put(
        "/api/files", params={"name": name}, content=data, headers={"content-type": "application/octet-stream"}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def until(client: TestClient, job: str, *states: str, seconds: float = 300) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = client.get(f"/api/jobs/{job}").json()
        if found["state"] in states:
            return found
        time.sleep(0.2)
    raise AssertionError(f"the job stayed {found['state']}: {found}")


def events_of(client: TestClient, job: str, last: str | None = None) -> list[dict[str, str]]:
    answer = client.get(f"/api/jobs/{job}/events", headers={"last-event-id": last} if last else {})
    blocks = [block.split("\n") for block in answer.text.split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block) for block in blocks]


def test_a_lock_names_its_owner_and_a_stale_one_nobody(tmp_path: Path) -> None:
    held = lock_folder(tmp_path / "a")
    assert owner_of(tmp_path / "a") == os.getpid()
    held.close()
    assert (tmp_path / "a" / ".lock").exists()
    assert owner_of(tmp_path / "a") is None
    assert owner_of(tmp_path / "none") is None


def test_looking_for_an_owner_leaves_the_lock_to_others(tmp_path: Path) -> None:
    lock_folder(tmp_path).close()
    before = (tmp_path / ".lock").read_bytes()
    assert owner_of(tmp_path) is None
    assert (tmp_path / ".lock").read_bytes() == before
    lock_folder(tmp_path).close()


def test_a_study_from_upload_to_verdict(client: TestClient, ids: dict[str, str], rows_csv: bytes, folder: Path) -> None:
    file = upload(client, rows_csv)
    base = next(b["id"] for b in client.get("/api/bases").json() if b["name"] == "base")
    asked = {"verb": "compare", "data": file, "bases": [base], "arms": ["majority", "tfidf", "frozen"], "seeds": 1, "epochs": 1, "least_steps": 5, "name": "mine"}  # fmt: skip
    started = client.post("/api/jobs", json=asked)
    assert started.status_code == 202, started.text
    job = started.json()["id"]
    assert started.headers["location"] == f"/api/jobs/{job}"
    assert client.post("/api/jobs", json={**asked, "name": "another"}).json()["error"]["code"] == "JOB_LIMIT"
    found = until(client, job, "finished", "failed", "stopped")
    assert found["state"] == "finished", found
    assert found["progress"]["finished"] == found["progress"]["total"] == 3
    assert found["command"].startswith("headstart compare runs/files/")
    assert str(folder) not in json.dumps(found)
    told = events_of(client, job)
    assert told[-1] == {"event": "end", "data": '{"state": "finished"}'}
    study = client.get(f"/api/studies/{job}").json()
    assert {arm["name"] for arm in study["arms"]} == {"majority", "tfidf", "frozen"}
    page = client.get(f"/studies/{job}", headers={"accept": "text/html"}).text
    assert study["verdict"].split("\n")[0][:40] in page
    assert "Does pretraining help on rows.csv?" in client.get(f"/studies/{job}/report").text
    assert client.post("/api/jobs", json=asked).json()["error"]["code"] == "RUN_EXISTS"


def test_a_job_is_followed_stopped_and_resumed_by_a_server_that_did_not_start_it(
    folder: Path, client_of: Callable[..., TestClient], rows_csv: bytes
) -> None:
    first = client_of(folder)
    file = upload(first, rows_csv)
    job = first.post("/api/jobs", json={**LONG, "corpus": [file]}).json()["id"]
    until(first, job, "running")
    second = client_of(folder)  # knows only the folder
    assert second.get(f"/api/jobs/{job}").json()["state"] == "running"
    deadline = time.monotonic() + 60
    while Run(folder / "long").log_length() < 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert second.post(f"/api/jobs/{job}/stop", json={}).status_code == 202
    stopped = until(second, job, "stopped", "failed")
    assert stopped["state"] == "stopped", stopped
    log = (folder / "long" / "log.jsonl").read_bytes()
    assert second.post(f"/api/jobs/{job}/stop", json={}).json()["error"]["code"] == "NOT_RUNNING"
    assert second.post(f"/api/jobs/{job}/resume", json={}).status_code == 202
    until(second, job, "running")
    second.post(f"/api/jobs/{job}/stop", json={})
    until(second, job, "stopped")
    assert (folder / "long" / "log.jsonl").read_bytes().startswith(log[: log.rfind(b"\n", 0, len(log) // 2) + 1])


def test_a_job_of_the_command_line_is_seen_and_can_be_stopped(folder: Path, client: TestClient, tmp_path: Path) -> None:
    corpus = tmp_path / "c.txt"
    corpus.write_text("".join(f"the soup was cold on day {i}\n" for i in range(200)))
    words = [
        "pretrain",
        str(corpus),
        "--unit",
        "line",
        "--size",
        "nano",
        "--steps",
        "100000",
        "--threads",
        "1",
        "--out",
        str(folder / "cli"),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "headstart", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while (
            not (jobs := [j for j in client.get("/api/jobs").json() if j["name"] == "cli"])
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)
        assert jobs[0]["state"] == "running"
        while not Run(folder / "cli").begun and time.monotonic() < deadline:
            time.sleep(0.1)
        client.post(f"/api/jobs/{jobs[0]['id']}/stop", json={})
        assert child.wait(60) == 128 + signal.SIGTERM
    finally:
        child.kill()
    assert client.get(f"/api/jobs/{jobs[0]['id']}").json()["state"] == "stopped"


def test_events_go_on_from_the_last_one(shared: TestClient, ids: dict[str, str]) -> None:
    whole = events_of(shared, ids["base"])
    records = [e for e in whole if e["event"] == "record"]
    assert [json.loads(e["data"]) for e in records] == list(
        Run(Path(shared.app.app.state.studio.registry.folder) / "base").read_lines("log.jsonl")
    )
    rest = events_of(shared, ids["base"], records[2]["id"])
    assert [e for e in rest if e["event"] == "record"] == records[3:]


def test_a_job_that_fails_tells_the_sentence_of_the_command_line(client: TestClient, folder: Path) -> None:
    file = upload(client, b"text,label\nall the same,good\n" * 3)
    job = client.post("/api/jobs", json={"verb": "compare", "data": file, "arms": ["tfidf"], "name": "bad"}).json()[
        "id"
    ]
    failed = until(client, job, "failed", "finished", "stopped")
    assert failed["state"] == "failed", failed
    assert failed["error"]["code"].startswith("DATA")
    assert str(folder) not in failed["error"]["message"]
    assert failed["error"]["message"] in client.get(f"/jobs/{job}", headers={"accept": "text/html"}).text.replace(
        "&#39;", "'"
    )


def test_a_plan_has_the_cost_and_the_command_and_leaves_nothing(
    client: TestClient, rows_csv: bytes, folder: Path
) -> None:
    file = upload(client, rows_csv)
    before = sorted(folder.rglob("*"))
    answer = client.post(
        "/api/plans", json={"verb": "compare", "data": file, "arms": ["majority", "tfidf"], "name": "plan"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["cost"]["cells"] == 2
    assert answer.json()["command"].endswith("--arms=majority,tfidf --yes --seeds=5 --out=runs/plan")
    assert sorted(folder.rglob("*")) == before


def test_read_only_takes_no_files_and_no_jobs(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(folder, read_only=True)
    answers = [
        client.put("/api/files?name=a.csv", content=b"x", headers={"content-type": "application/octet-stream"}),
        client.delete(f"/api/files/{'0' * 64}"),
        client.post("/api/jobs", json={"verb": "compare", "data": "0" * 64}),
        client.post("/api/jobs/x/stop", json={}),
        client.post("/api/jobs/x/resume", json={}),
        client.post("/api/plans", json={"verb": "compare", "data": "0" * 64}),
        client.post("/api/models/x/table", json={"data": "0" * 64}),
    ]
    assert [a.json()["error"]["code"] for a in answers] == ["READ_ONLY"] * len(answers)
    assert client.get("/", headers={"accept": "text/html"}).status_code == 200


def test_numbers_are_not_warned_of_as_if_they_were_classes(client: TestClient) -> None:
    rows = "text,score\n" + "".join(f"soup {i},{i + 0.25}\n" for i in range(30))
    place = f"/api/files/{upload(client, rows.encode(), 'scores.csv')}/check"
    found = {
        task: client.get(place, params={"task": task}).json()["check"]["warnings"]
        for task in ("regression", "classify")
    }
    assert any("one training row" in told for told in found["classify"])
    assert not any("one training row" in told or "classes" in told for told in found["regression"])


@pytest.mark.parametrize("name", ["rows.csv", "Ré views (2).CSV"])
def test_an_uploaded_file_is_previewed_and_checked(client: TestClient, rows_csv: bytes, name: str) -> None:
    file = upload(client, rows_csv, name)
    assert client.get("/api/files").json() == [{"id": file, "name": name, "bytes": len(rows_csv)}]
    found = client.get(f"/api/files/{file}/check").json()
    assert (found["text_column"], found["label_column"]) == ("text", "label")
    assert found["check"]["splits"]["train"]["labels"] == {"bad": 24, "good": 24}
    assert any("exact" in w or "again" in w or "duplicate" in w for w in found["check"]["warnings"]), found["check"][
        "warnings"
    ]
    assert found["rows"][0] == {"text": "the soup was lovely", "label": "good"}
    assert (
        client.get(f"/api/files/{file}/check", params={"text_column": "none"}).json()["error"]["code"] == "DATA_COLUMNS"
    )
    assert client.delete(f"/api/files/{file}").status_code == 204
    assert client.get(f"/api/files/{file}/check").json()["error"]["code"] == "FILE_MISSING"


def test_a_quick_lab_is_a_job_with_the_same_command(folder: Path, client_of: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    client, begun = client_of(folder), list[tuple[list[str], Path]]()
    jobs = client.app.app.state.studio.jobs
    monkeypatch.setattr("headstart.serve.labs.missing_packs", lambda lab: [])
    monkeypatch.setattr(
        type(jobs), "start", lambda self, words, out: (begun.append((words, out)), self.registry.id_of(out))[1]
    )
    monkeypatch.setattr(type(jobs), "get", lambda self, wanted: {"id": wanted})
    answer = client.post("/api/jobs", json={"verb": "lab", "lab": "pig-latin"})
    out = folder / "labs" / "pig-latin-quick"
    assert answer.status_code == 202, answer.text
    assert begun == [(["lab", "run", "pig-latin", "--quick", f"--out={out}"], out)]
    out.mkdir(parents=True)
    assert client.post("/api/jobs", json={"verb": "lab", "lab": "pig-latin"}).json()["error"]["code"] == "RUN_EXISTS"


@pytest.mark.parametrize(
    ("lab", "status"), [("none", 404), ("../pig-latin", 422), ("pig-latin", 422), ("attention", 422)]
)
def test_a_lab_that_cannot_run_here_is_told(
    folder: Path, client_of: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch, lab: str, status: int
) -> None:
    """One that is not there, one that needs a download, and one that is an assignment."""
    monkeypatch.setenv("HEADSTART_CACHE", str(folder / "nothing"))
    answer = client_of(folder).post("/api/jobs", json={"verb": "lab", "lab": lab})
    assert answer.status_code == status, answer.text


def test_a_lab_in_the_middle_goes_on_and_one_with_a_report_is_finished(folder: Path, client_of: Callable[..., TestClient]) -> None:  # fmt: skip
    jobs = client_of(folder).app.app.state.studio.jobs
    out = folder / "labs" / "mine"
    (out / "steps").mkdir(parents=True)
    wanted = jobs.start(
        ["lab", "run", "none", "--quick", f"--out={out}"], out
    )  # which is there already, and no such lab is
    jobs.wait(wanted, 120)
    assert jobs.get(wanted)["state"] == "failed"
    assert "There is no lab 'none'" in jobs.get(wanted)["error"]["message"]
    for name in ("lab.json", "report.html"):
        (out / name).write_text("{}")
    assert jobs.get(wanted)["state"] == "finished"
