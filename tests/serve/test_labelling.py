"""Labelling over HTTP: rows for each tab, answers that are on the disk, the curve, and the table."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from headstart.labelling.journal import Journal
from headstart.labelling.start import start as start_session
from tests.labelling.conftest import MANY, TRUTH, WORDS, texts
from tests.serve.conftest import Server

UPLOAD = {"content-type": "application/octet-stream"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a session called topics."""
    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"{text}\n" for text, _ in texts(150)), "utf-8")
    start_session(tmp_path / "texts.csv", list(WORDS), tmp_path / "runs" / "topics", "tfidf")
    return tmp_path / "runs"


@pytest.fixture
def http(place: Path, client_of: Callable[..., TestClient]) -> TestClient:
    return client_of(place)


def path_of(http: Any) -> str:
    [found] = http.get("/api/labellings").json()
    return f"/api/labellings/{found['id']}"


def ask(http: Any, where: str, by: str, count: int = 1) -> list[dict[str, Any]]:
    answer = http.post(f"{where}/next", json={"by": by, "count": count})
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return rows


def give(http: Any, where: str, by: str, row: int, event: str = "label", **more: Any) -> Any:
    label = {"label": TRUTH[row]} if event == "label" else {}
    return http.post(f"{where}/answers", json={"by": by, "row": row, "event": event, **label, **more})


def test_label_skip_undo_and_the_table(http: TestClient) -> None:
    where = path_of(http)
    for _ in range(44):
        [item] = ask(http, where, "tab-1")
        answer = give(http, where, "tab-1", item["row"])
    assert answer.json() == {"labelled": 44, "skipped": 0}
    assert give(http, where, "tab-1", item["row"], "undo").json() == {"labelled": 43, "skipped": 0}
    assert give(http, where, "tab-1", item["row"], "skip").json() == {"labelled": 43, "skipped": 1}
    status = http.get(where).json()
    assert status["labelled"] == 43
    assert status["curve"][-1]["labels"] == 43
    table = http.get(f"{where}/table?part=random")
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text.splitlines()[0] == "row,text,label,part"
    assert len(table.text.splitlines()) == 1 + status["random"]
    page = http.get("/label", headers={"accept": "text/html"})
    assert "43 of 150 rows labelled, 1 skipped" in page.text


def test_two_tabs_are_shown_different_rows(http: TestClient) -> None:
    where = path_of(http)
    one, two = (ask(http, where, tab, 5) for tab in ("tab-1", "tab-2"))
    assert not {item["row"] for item in one} & {item["row"] for item in two}
    assert ask(http, where, "tab-1")[0] == one[0]  # a reload shows the same


def test_two_tabs_lose_nothing_of_each_other(place: Path, start: Callable[..., Server]) -> None:
    _, http = start(place)
    where, failed = path_of(http), list[str]()

    def work(tab: str) -> None:
        with httpx2.Client(base_url=http.base_url, headers=http.headers, timeout=60) as own:
            for _ in range(25):
                [item] = ask(own, where, tab)
                answer = give(own, where, tab, item["row"])
                if answer.status_code != 200:
                    failed.append(answer.text)

    tabs = [threading.Thread(target=work, args=(f"tab-{i}",)) for i in range(2)]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join()
    assert not failed
    found = Journal(place / "topics" / "labels.csv").refresh()
    assert len(found.labelled()) == 50
    assert {answer.by for answer in found.labelled()} == {"tab-0", "tab-1"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"by": "tab-1", "row": 151, "event": "label", "label": "food"}, 422, "LABEL_ROW"),
        ({"by": "tab-1", "row": 1, "event": "label", "label": "sports"}, 422, "LABEL_UNKNOWN"),
        ({"by": "tab-1", "row": 1, "event": "label"}, 422, "LABEL_UNKNOWN"),
        ({"by": "tab-1", "row": 1, "event": "undo"}, 422, "LABEL_MISSING"),
        ({"by": "../../etc", "row": 1, "event": "skip"}, 422, "REQUEST"),
        ({"by": "tab-1", "row": "1", "event": "skip"}, 422, "REQUEST"),
    ],
)
def test_answers_that_are_none_are_refused(http: TestClient, place: Path, body: Any, status: int, code: str) -> None:
    before = (place / "topics" / "labels.csv").read_bytes()
    answer = http.post(f"{path_of(http)}/answers", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (place / "topics" / "labels.csv").read_bytes() == before


def test_a_read_only_server_takes_no_answer(place: Path, client_of: Callable[..., TestClient]) -> None:
    http = client_of(place, read_only=True)
    where = path_of(http)
    assert give(http, where, "tab-1", 1).status_code == 403
    assert http.post(f"{where}/next", json={"by": "tab-1"}).status_code == 403
    assert http.post("/api/labellings", json={"data": "0" * 64, "labels": ["a", "b"]}).status_code == 403
    assert "Which label?" not in http.get(where.replace("/api/labellings", "/label")).text


def test_a_session_is_started_by_the_id_of_a_file(tmp_path: Path, client_of: Callable[..., TestClient]) -> None:
    http = client_of(tmp_path / "runs")
    data = ("text\n" + "".join(f"{text}\n" for text, _ in texts(150))).encode()
    file = http.put("/api/files?name=topics.csv", content=data, headers=UPLOAD).json()["id"]
    asked = {"data": file, "labels": ["food", "sport", "tech"], "base": "tfidf"}
    assert http.post("/api/labellings", json={**asked, "labels": ["a,b", "c"]}).status_code == 422
    answer = http.post("/api/labellings", json=asked)
    assert answer.status_code == 202
    job = f"/api/jobs/{answer.json()['id']}"
    deadline = time.monotonic() + 120
    while (state := http.get(job).json()["state"]) in ("starting", "running") and time.monotonic() < deadline:
        time.sleep(0.3)
    assert state == "finished", http.get(job).json()
    assert path_of(http) == f"/api/labellings/{answer.json()['id']}"
    assert f'href="/label/{answer.json()["id"]}"' in http.get(f"/jobs/{answer.json()['id']}").text


def test_hostile_labels_and_texts_are_text(tmp_path: Path, client_of: Callable[..., TestClient]) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    (tmp_path / "t.csv").write_text("text\n" + "".join(f"{hostile} {text}\n" for text, _ in texts(30)), "utf-8")
    start_session(tmp_path / "t.csv", [hostile, '"><script>'], tmp_path / "runs" / "x", "tfidf")
    http = client_of(tmp_path / "runs")
    page = http.get(path_of(http).replace("/api/labellings", "/label")).text
    assert "<img" not in page
    assert page.count("<script") == 1  # ours
    assert "&lt;img src=x" in page


@pytest.mark.slow
def test_kills_of_the_server_lose_no_acknowledged_label(tmp_path: Path, start: Callable[..., Server]) -> None:
    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"{text}\n" for text, _ in texts(MANY)), "utf-8")
    place = start_session(tmp_path / "texts.csv", list(WORDS), tmp_path / "runs" / "topics", "tfidf").path.parent
    rng, acknowledged = random.Random(0), dict[int, str]()
    for kill in range(50):
        child, http = start(place)
        where = path_of(http)
        killer = threading.Timer(rng.uniform(0, 0.3), child.kill)
        try:
            while len(acknowledged) < MANY:
                [item] = ask(http, where, f"tab-{kill}")
                if give(http, where, f"tab-{kill}", item["row"]).status_code == 200:
                    acknowledged[item["row"]] = TRUTH[item["row"]]
                if killer.ident is None:  # from the first answer on: a busy machine takes long to begin
                    killer.start()
        except httpx2.TransportError:
            pass
        killer.join()
        child.wait()
        found = Journal(place / "topics" / "labels.csv").refresh()
        labels = {answer.row: answer.label for answer in found.labelled()}
        assert labels | acknowledged == labels
    assert len(acknowledged) > 50
