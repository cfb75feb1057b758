"""A whole table labelled over HTTP is the one that `headstart predict --file --out` writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headstart.serve.problems import Refused
from headstart.serve.settings import Limits
from headstart.serve.worker import Worker
from headstart.use.label_file import Columns, label_file
from headstart.use.predict import LoadedClassifier

UPLOAD = {"content-type": "application/octet-stream"}
ROWS = "id,text,label\n" + "".join(f"{i},the soup was cold {i},x\n" for i in range(70)) + "70,,x\n"


def put(client: TestClient, text: str, name: str = "my rows.csv") -> str:
    found: str = client.put("/api/files", params={"name": name}, content=text.encode(), headers=UPLOAD).json()["id"]
    return found


@pytest.mark.parametrize("task", ["tuned", "several", "number", "stars", "tags"])
def test_a_table_is_labelled_as_by_the_command_line(
    gallery: Path, tmp_path: Path, client_of: Callable[..., TestClient], task: str
) -> None:
    client = client_of(gallery)
    answer = client.post(f"/api/models/{model_of(client, task)}/table", json={"data": put(client, ROWS)})
    assert answer.status_code == 200, answer.text
    source = tmp_path / "my rows.csv"
    source.write_text(ROWS)
    model = LoadedClassifier.load(gallery / task)
    label_file(lambda: model, source, tmp_path / "ours.csv", Columns("predicted_"), skip_blank=True)
    assert answer.text == (tmp_path / "ours.csv").read_text()
    assert len(answer.text.splitlines()) == 72
    assert answer.headers["content-disposition"] == 'attachment; filename="my-rows-labelled.csv"'
    assert list((gallery / ".serve" / "exports").iterdir()) == []


def model_of(client: TestClient, name: str) -> str:
    return next(str(m["id"]) for m in client.get("/v1/models").json()["data"] if m["name"] == name)


def test_a_table_keeps_its_format(client: TestClient) -> None:
    rows = "".join(json.dumps({"text": f"the soup {i}", "more": [i]}) + "\n" for i in range(3))
    answer = client.post(f"/api/models/{model_of(client, 'tuned')}/table", json={"data": put(client, rows, "a.jsonl")})
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert [r["more"] for r in records] == [[0], [1], [2]]
    assert all(r["predicted_label"] in ("good", "bad") for r in records)


def test_a_labelled_table_is_labelled_again_in_columns_of_their_own(client: TestClient) -> None:
    place, file = f"/api/models/{model_of(client, 'tuned')}/table", put(client, ROWS)
    for _ in range(2):
        file = put(client, client.post(place, json={"data": file}).text)
    answer = client.post(place, json={"data": file})
    assert answer.status_code == 200, answer.text
    header, row = (line.split(",") for line in answer.text.splitlines()[:2])
    assert header[3::2] == ["predicted_label", "predicted_2_label", "predicted_3_label"]
    assert row[3:5] == row[5:7] == row[7:]


def test_a_batch_that_waits_too_long_is_asked_again(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(folder, limits=Limits(table=60, batch=64))
    submit, refused = Worker.submit, list[str]()

    def late(self: Worker, key: tuple[str, ...], *more: Any) -> Future[list[Any]]:
        if key[0] == "classifier" or refused:
            return submit(self, key, *more)
        refused.append(key[0])
        future = Future[list[Any]]()
        future.set_exception(Refused("The request waited too long.", "LATE"))
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "submit", late)
        answer = client.post(f"/api/models/{model_of(client, 'tuned')}/table", json={"data": put(client, ROWS)})
    assert (answer.status_code, refused) == (200, ["probabilities"]), answer.text
    assert len(answer.text.splitlines()) == 72


def test_a_model_may_load_as_long_as_its_table_may_take(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client, load = client_of(folder, limits=Limits(seconds=0.1, table=60)), LoadedClassifier.load

    def slow(path: Path) -> LoadedClassifier:
        time.sleep(0.5)
        return load(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadedClassifier, "load", slow)
        answer = client.post(f"/api/models/{model_of(client, 'tuned')}/table", json={"data": put(client, ROWS)})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("data", "more", "status", "says"),
    [
        ("a,b\n1,2\n", {}, 422, "column"),
        ("text,b\nx,2\n", {"text_column": "none"}, 422, "none"),
        (None, {}, 404, "no file"),
    ],
)
def test_what_cannot_be_labelled_is_told(client: TestClient, data: str | None, more: dict[str, str], status: int, says: str) -> None:  # fmt: skip
    wanted = put(client, data) if data else "0" * 64
    answer = client.post(f"/api/models/{model_of(client, 'tuned')}/table", json={"data": wanted, **more})
    assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text
    assert str(client.app.app.state.studio.registry.folder) not in answer.text


def test_one_table_at_a_time_and_others_are_answered_meanwhile(
    folder: Path, client_of: Callable[..., TestClient]
) -> None:
    client = client_of(folder, limits=Limits(table=60))
    hold, passes = threading.Event(), list[int]()
    place, file, predict = f"/api/models/{model_of(client, 'tuned')}/table", put(client, ROWS), LoadedClassifier.probabilities  # fmt: skip

    def slow(self: LoadedClassifier, texts: list[str]) -> list[list[float]]:
        passes.append(len(texts))
        if len(passes) == 1:
            hold.wait(30)
        return predict(self, texts)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(LoadedClassifier, "probabilities", slow)
        first = pool.submit(client.post, place, json={"data": file})
        while not passes:
            time.sleep(0.01)
        refused = client.post(place, json={"data": file})
        other = client.post("/predict", json={"inputs": "the soup", "model": "tuned"})
        assert not first.done()
        hold.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert other.status_code == first.result().status_code == 200
    assert passes[0] == 64  # the most of one pass
    assert client.post(place, json={"data": file}).status_code == 200


def test_a_table_that_takes_too_long_is_ended(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(folder, limits=Limits(table=0.2, batch=1))
    file, predict = put(client, ROWS), LoadedClassifier.probabilities

    def slow(self: LoadedClassifier, texts: list[str]) -> list[list[float]]:
        time.sleep(0.05)
        return predict(self, texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadedClassifier, "probabilities", slow)
        answer = client.post(f"/api/models/{model_of(client, 'tuned')}/table", json={"data": file})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "LATE")
    assert list((folder / ".serve" / "exports").iterdir()) == []
