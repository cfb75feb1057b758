"""Labels, embeddings, tokens and health over HTTP, and requests that are answered together."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import threading
import time
import weakref
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from headstart.serve.metrics import Metrics
from headstart.serve.problems import Refused
from headstart.serve.settings import Limits
from headstart.serve.worker import Worker
from headstart.use.encode import LoadedEncoder
from headstart.use.predict import LoadedClassifier

TEXTS = ["the soup was lovely", "the fish was awful"]


def test_predict_gives_the_labels_of_the_command_line(shared: TestClient, ids: dict[str, str], made: Path) -> None:
    ours = LoadedClassifier.load(made / "tuned").predict(TEXTS)
    one = shared.post("/predict", json={"inputs": TEXTS[0], "model": ids["tuned"]}).json()
    several = shared.post("/predict", json={"inputs": TEXTS, "model": ids["tuned"]}).json()
    nested = shared.post("/predict", json={"inputs": [[t] for t in TEXTS], "model": ids["tuned"]}).json()
    assert several == nested
    assert [s["label"] for s in one] == [s["label"] for s in several[0]]
    for record, scores in zip(ours, several, strict=True):
        assert {s["label"]: pytest.approx(s["score"], abs=1e-6) for s in scores} == record["probabilities"]
        assert scores[0]["label"] == record["label"]


@pytest.mark.parametrize("inputs", ["", "  ", ["a", ""], [["a", "b"]], [], None, 5, [5]])
def test_blank_texts_pairs_and_other_things_are_refused(shared: TestClient, inputs: Any) -> None:
    assert shared.post("/predict", json={"inputs": inputs}).status_code == 422


def test_invocations_takes_every_layout(shared: TestClient, ids: dict[str, str]) -> None:
    layouts: list[dict[str, Any]] = [
        {"inputs": TEXTS}, {"instances": TEXTS}, {"dataframe_records": [{"text": t, "other": "x"} for t in TEXTS]},
        {"dataframe_split": {"columns": ["review"], "data": [[t] for t in TEXTS]}},
    ]  # fmt: skip
    answers = [shared.post("/invocations", json=layout).json() for layout in layouts]
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert len(answers[0]["predictions"]) == 2
    for bad in (
        {},
        {"inputs": TEXTS, "instances": TEXTS},
        {"dataframe_records": [{"a": "1", "b": "2"}]},
        {"dataframe_split": {"columns": ["a"], "data": [["x", "y"]]}},
    ):
        assert shared.post("/invocations", json=bad).status_code == 422


def test_embeddings_and_similarity_agree(shared: TestClient, ids: dict[str, str], made: Path) -> None:
    source, other = LoadedEncoder.load(made / "base").embed(TEXTS)
    cosine = sum(a * b for a, b in zip(source, other, strict=True))
    asked = {"model": ids["base"], "inputs": {"source_sentence": TEXTS[0], "sentences": [TEXTS[1], TEXTS[0]]}}
    assert shared.post("/similarity", json=asked).json() == pytest.approx([cosine, 1.0], abs=1e-5)
    plain = shared.post("/embed", json={"model": ids["base"], "inputs": TEXTS, "normalize": False}).json()
    assert sum(x * x for x in plain[0]) != pytest.approx(1, abs=1e-3)


def test_tokens_go_there_and_back(shared: TestClient, ids: dict[str, str]) -> None:
    found = shared.post("/tokenize", json={"prompt": TEXTS[0], "model": ids["base"]}).json()
    assert found["token_strs"][0] == "<s>"
    assert found["count"] == len(found["tokens"]) == 5
    assert found["max_model_len"] == 32
    assert shared.post("/detokenize", json={"tokens": found["tokens"], "model": ids["base"]}).json() == {
        "prompt": TEXTS[0]
    }
    assert shared.post("/detokenize", json={"tokens": [10**6], "model": ids["base"]}).status_code == 422
    info = shared.get("/tokenizer_info", params={"model": ids["base"]}).json()
    assert (info["bos_token"], info["model_max_length"]) == ("<s>", 32)


def test_info_and_health(shared: TestClient, ids: dict[str, str]) -> None:
    info = shared.get("/info", params={"model": ids["tuned"]}).json()
    assert info["labels"] == ["bad", "good"]
    assert shared.get("/ping").json() == {"status": "ok"}
    shared.get("/runs/none-00000000")
    text = shared.get("/metrics").text
    assert "headstart_models_loaded" in text
    assert 'headstart_requests_total{method="GET",route="/runs/{run}",status="404"}' in text


def test_a_downloaded_model_predicts_the_same(
    shared: TestClient, ids: dict[str, str], made: Path, tmp_path: Path
) -> None:
    answer = shared.get(f"/api/models/{ids['tuned']}/archive")
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path / "copy")
    assert LoadedClassifier.load(tmp_path / "copy").predict(TEXTS) == LoadedClassifier.load(made / "tuned").predict(
        TEXTS
    )


def test_a_model_for_transformers_opens_there(shared: TestClient, ids: dict[str, str], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    answer = shared.get(f"/api/models/{ids['base']}/archive?to=transformers")
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path)
    assert type(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")).__name__ == "GPT2LMHeadModel"


def test_inspect_is_what_the_command_line_reports(shared: TestClient, ids: dict[str, str]) -> None:
    seen = shared.post(f"/api/models/{ids['tuned']}/inspect", json={"text": TEXTS[0]}).json()
    assert {"labels", "attribution", "attention"} <= seen.keys()
    assert "the soup was lovely" in shared.get(f"/models/{ids['tuned']}/inside", params={"text": TEXTS[0]}).text


def test_a_model_that_was_trained_anew_is_loaded_anew(client: TestClient, folder: Path) -> None:
    first = client.post("/predict", json={"inputs": TEXTS, "model": "tuned"}).json()
    other = next((folder / "study" / "cells").glob("full*/model")).parent
    (folder / "tuned").rename(folder / "old")
    other.rename(folder / "tuned")
    second = client.post("/predict", json={"inputs": TEXTS, "model": "tuned"}).json()
    assert first != second


def test_models_leave_half_of_the_cores_to_others(client: TestClient) -> None:
    client.post("/predict", json={"inputs": "a", "model": "tuned"})
    threads = client.app.app.state.studio.worker.submit("ask", lambda _: [torch.get_num_threads()], [0]).result(30)
    assert threads == [max(1, (os.cpu_count() or 1) // 2)]


def test_a_known_model_is_found_without_a_look_at_the_whole_folder(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = client.app.app.state.studio.registry
    found = registry.model("tuned")
    monkeypatch.setattr(type(registry), "models", lambda self: pytest.fail("it looked"))
    assert registry.model("tuned") == found


def test_a_model_that_is_gone_is_not_found(client: TestClient, folder: Path) -> None:
    registry = client.app.app.state.studio.registry
    assert registry.model("tuned").name == "tuned"
    (folder / "tuned" / "result.json").unlink()
    assert client.post("/predict", json={"inputs": "a", "model": "tuned"}).status_code == 404


def test_the_least_recently_used_model_makes_room(folder: Path, client_of: Callable[..., TestClient]) -> None:
    client = client_of(folder, memory=1)
    models = client.app.app.state.studio.models
    client.post("/predict", json={"inputs": "a", "model": "tuned"})
    dropped = weakref.ref(next(iter(models._held.values())).loaded)
    client.post("/embed", json={"inputs": "a", "model": "base"})
    assert models.count == 1
    assert dropped() is None
    assert gc.get_freeze_count() > 10_000  # what is loaded, so that no request waits for a look at it


@pytest.fixture
def worker():
    made = Worker(Limits(queue=64, batch=64), Metrics())
    made.start()
    yield made
    made.stop()


def held(worker: Worker) -> threading.Event:
    """Keep the worker busy, so that what comes next waits."""
    let_go = threading.Event()
    worker.submit("hold", lambda items: (let_go.wait(30), items)[1], [0])
    while worker.waiting:
        time.sleep(0.001)
    return let_go


def test_requests_for_one_model_are_answered_in_one_pass(worker: Worker) -> None:
    passes: list[int] = []

    def double(items: list[int]) -> list[int]:
        passes.append(len(items))
        return [2 * i for i in items]

    let_go = held(worker)
    futures = [worker.submit("same", double, [i, i + 1]) for i in range(20)]
    let_go.set()
    assert [f.result(10) for f in futures] == [[2 * i, 2 * i + 2] for i in range(20)]
    assert passes == [40]


def test_the_next_pass_waits_for_the_clients_of_the_last_one(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.serve.worker.GATHERING", 30.0)  # longer than the test
    passes: list[int] = []

    def same(items: list[int]) -> list[int]:
        passes.append(len(items))
        return items

    let_go = held(worker)
    first = [worker.submit("same", same, [i]) for i in range(6)]
    let_go.set()
    assert [f.result(10) for f in first] == [[i] for i in range(6)]
    again = [worker.submit("same", same, [i]) for i in range(4)]
    time.sleep(0.1)
    assert not any(f.done() for f in again)
    again.append(worker.submit("same", same, [4]))  # five of six are enough
    assert [f.result(10) for f in again] == [[i] for i in range(5)]
    assert passes == [6, 5]


def test_a_client_that_is_left_alone_waits_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.serve.worker.GATHERING", 0.2)
    let_go = held(worker)
    first = [worker.submit("same", lambda items: items, [i]) for i in range(6)]
    let_go.set()
    for future in first:
        future.result(10)
    took = []
    for _ in range(4):
        began = time.monotonic()
        worker.submit("same", lambda items: items, [0]).result(10)
        took.append(time.monotonic() - began)
    assert took[0] >= 0.2 > sum(took[1:])


def test_a_loop_is_woken_once_for_what_was_answered_together(worker: Worker) -> None:
    async def ask() -> tuple[list[list[int]], int]:
        loop, woken = asyncio.get_running_loop(), list[Any]()
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda call, *given: (woken.append(given), wake(call, *given))[1]  # type: ignore[method-assign]
        let_go = held(worker)
        futures = [worker.ask("same", lambda items: items, [i], 60) for i in range(20)]
        futures[3].cancel()  # a client that has gone
        let_go.set()
        return [await f for i, f in enumerate(futures) if i != 3], len(woken)

    answers, woken = asyncio.run(ask())
    assert answers == [[i] for i in range(20) if i != 3]
    assert woken == 1


@pytest.mark.parametrize("beside", [True, False])
def test_what_only_reads_a_model_is_answered_while_another_pass_goes_on(worker: Worker, beside: bool) -> None:
    async def ask() -> tuple[list[bool], list[list[int]]]:
        let_go = held(worker)
        futures = [worker.ask("same", lambda items: items, [i], 60, beside) for i in range(3)]
        done, _ = await asyncio.wait(futures, timeout=2 if beside else 0.3)
        before = [future in done for future in futures]
        let_go.set()
        return before, [await future for future in futures]

    before, answers = asyncio.run(ask())
    assert before == [beside] * 3
    assert answers == [[0], [1], [2]]


def test_two_passes_of_a_classifier_at_once_give_the_answers_of_one(shared: TestClient) -> None:
    """Many threads ask for texts of different lengths; each gets the probabilities that it gets alone."""
    texts = [" ".join(TEXTS[: 1 + i % 5]) for i in range(40)]
    alone = [shared.post("/predict", json={"inputs": text, "model": "tuned"}).json() for text in texts]
    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda text: shared.post("/predict", json={"inputs": text, "model": "tuned"}).json(), texts)
        )
    for one, other in zip(alone, found, strict=True):
        assert {x["label"]: x["score"] for x in one} == pytest.approx({x["label"]: x["score"] for x in other}, abs=1e-5)


def test_who_waited_too_long_in_the_queue_is_told(worker: Worker) -> None:
    async def ask() -> list[int]:
        let_go = held(worker)
        future = worker.ask("same", lambda items: items, [1], 0.01)
        time.sleep(0.05)
        let_go.set()
        return await future

    with pytest.raises(Refused, match="waited too long"):
        asyncio.run(ask())


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'{"inputs": 1}', b'{"inputs": "a", "more": 1}', b'{"inputs": "\xff"}', b'{"inputs": "\\ud800"}'])  # fmt: skip
def test_what_predict_cannot_read_is_told(shared: TestClient, sent: bytes) -> None:
    answer = shared.post("/predict", content=sent, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "REQUEST"), answer.text
    assert "\\u" not in answer.json()["error"]["message"]


def test_predict_has_one_function_behind_both_of_its_routes(shared: TestClient) -> None:
    """The route ahead of the others, and the one that the schema describes."""
    routes = shared.app.app.router.routes
    answers = [shared.post("/predict", json={"inputs": TEXTS[:3], "model": "tuned"}).json()]
    ahead = routes.pop(0)
    try:
        answers.append(shared.post("/predict", json={"inputs": TEXTS[:3], "model": "tuned"}).json())
    finally:
        routes.insert(0, ahead)
    assert answers[0] == answers[1]
    assert 'route="/predict"' in shared.get("/metrics").text


def test_a_pass_has_no_more_texts_than_fit_and_no_others(worker: Worker) -> None:
    passes: list[tuple[str, int]] = []
    let_go = held(worker)
    futures = [
        worker.submit(key, lambda items, key=key: passes.append((key, len(items))) or items, [0] * 30)
        for key in "aabaa"
    ]
    let_go.set()
    for future in futures:
        future.result(10)
    assert sorted(passes) == [("a", 60), ("a", 60), ("b", 30)]


def test_a_text_that_fails_spoils_no_other_answer(worker: Worker) -> None:
    def picky(items: list[int]) -> list[int]:
        if 13 in items:
            raise ValueError("13")
        return items

    let_go = held(worker)
    futures = [worker.submit("same", picky, [i]) for i in (12, 13, 14)]
    let_go.set()
    assert futures[0].result(10) == [12]
    assert futures[2].result(10) == [14]
    with pytest.raises(ValueError, match="13"):
        futures[1].result(10)


def test_a_request_that_waited_too_long_is_told_so() -> None:
    worker = Worker(Limits(seconds=0.0), Metrics())
    future = worker.submit("late", lambda items: items, [1])
    time.sleep(0.01)
    worker.start()
    with pytest.raises(Refused, match="waited too long"):
        future.result(10)
    worker.stop()


def test_a_long_generation_keeps_no_prediction_waiting(worker: Worker) -> None:
    made: list[int] = []

    def long():
        for i in range(500):
            time.sleep(0.002)
            made.append(i)
            yield i

    generation = worker.generate(long, lambda *told: None)
    while not made:
        time.sleep(0.001)
    assert worker.submit("quick", lambda items: items, [1]).result(10) == [1]
    assert len(made) < 100
    generation.cancelled.set()


def test_many_clients_get_the_answers_to_their_own_texts(shared: TestClient, ids: dict[str, str], made: Path) -> None:
    texts = [
        f"the {dish} was {word}" for dish in ("soup", "bread", "fish", "cake") for word in ("lovely", "awful", "cold")
    ]
    ours = {r["text"]: r["probabilities"] for r in LoadedClassifier.load(made / "tuned").predict(texts)}

    def ask(text: str) -> dict[str, float]:
        return {
            s["label"]: s["score"] for s in shared.post("/predict", json={"inputs": text, "model": ids["tuned"]}).json()
        }

    with ThreadPoolExecutor(12) as pool:
        for text, found in zip(texts * 4, pool.map(ask, texts * 4), strict=True):
            assert found == {label: pytest.approx(p, abs=1e-5) for label, p in ours[text].items()}
