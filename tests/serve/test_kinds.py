"""Models of every kind over HTTP: several labels, numbers, ordered classes, tags, translations, search."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headstart.use.predict import LoadedClassifier
from headstart.use.search import ImageSearch
from headstart.use.text_search import TextSearch
from headstart.use.translate import LoadedTranslator
from tests.serve.conftest import TEXTS

TEXT = "the soup number 3"


@pytest.mark.parametrize("task", ["several", "number", "stars", "tags"])
def test_predict_gives_what_the_command_line_gives(kinds: TestClient, gallery: Path, task: str) -> None:
    (ours,) = LoadedClassifier.load(gallery / task).predict([TEXT])
    scored = kinds.post("/predict", json={"inputs": TEXT, "model": task}).json()
    if task == "number":
        expected = [{"label": "value", "score": pytest.approx(ours["label"])}]
    elif task == "tags":
        told = zip(ours["tokens"], ours["label"], ours["tag_probabilities"], strict=True)
        expected = [{"word": word, "label": tag, "score": pytest.approx(p)} for word, tag, p in told]
    else:
        expected = [{"label": label, "score": pytest.approx(p)} for label, p in ours["probabilities"].items()]
    assert scored == expected
    told = kinds.post("/invocations", json={"inputs": [TEXT], "model": task}).json()["predictions"]
    assert told == [pytest.approx(ours["label"]) if task == "number" else ours["label"]]


@pytest.mark.parametrize("beams", [1, 3])
def test_translate_gives_what_translate_apply_gives(kinds: TestClient, gallery: Path, beams: int) -> None:
    ours = LoadedTranslator.load(gallery / "translator").translate(["bana", "dore"], beams=beams, n_best=beams)
    found = kinds.post("/translate", json={"inputs": ["bana", "dore"], "beams": beams}).json()
    assert [f["translation"] for f in found] == [o["translation"] for o in ours]
    assert [f["score"] for f in found] == pytest.approx([o["score"] for o in ours], abs=1e-5)
    assert [len(f["n_best"]) for f in found] == [beams, beams]
    assert kinds.post("/translate", json={"inputs": "bana", "beams": beams}).json()[0]["source"] == "bana"


def test_the_attention_of_a_translation_is_a_page(kinds: TestClient) -> None:
    (model,) = [m["id"] for m in kinds.get("/v1/models").json()["data"] if m["kind"] == "translate"]
    page = kinds.get(f"/models/{model}/inside", params={"text": "bana"})
    assert page.status_code == 200
    assert "bana → " in page.text
    seen = kinds.post(f"/api/models/{model}/inspect", json={"text": "bana"}).json()
    assert seen["text"].startswith("bana → ")
    assert len(seen["attention"]) == 3


def test_search_in_texts_gives_what_search_gives(kinds: TestClient, gallery: Path) -> None:
    ours = TextSearch.over(TEXTS, gallery / "base").find(["the soup was hot"], 3)[0]
    found = kinds.post("/search", json={"query": "the soup was hot", "texts": TEXTS, "top": 3, "model": "base"}).json()
    assert [f["text"] for f in found["by_embedding"]] == [near.text for near in ours.by_embedding]
    assert [f["score"] for f in found["by_words"]] == pytest.approx([near.score for near in ours.by_words])
    assert found["texts"] == len(TEXTS)


def test_search_in_images_gives_what_search_gives(kinds: TestClient, gallery: Path) -> None:
    ours = ImageSearch.load(gallery / "matcher").find(["red over sand"], 4)[0]
    found = kinds.post("/search", json={"query": "red over sand", "top": 4}).json()
    assert [f["file"] for f in found["found"]] == [image.file for image in ours.found]
    assert found["images"] == 48
    assert base64.b64decode(found["found"][0]["thumbnail"].removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/translate", {"inputs": " "}, "blank"),
        ("/translate", {"inputs": "bana", "beams": 9}, "beams"),
        ("/translate", {"inputs": "bana", "model": "base"}, "holds a language model"),
        ("/search", {"query": "", "texts": ["a"]}, "blank"),
        ("/search", {"query": "a", "texts": [" "]}, "no text to search in"),
        ("/search", {"query": " "}, "blank"),
        ("/search", {"query": "a", "model": "base"}, "holds a language model"),
        ("/search", {"query": "a", "texts": ["b"], "model": "matcher"}, ""),
    ],
)
def test_what_the_caller_can_mend_is_a_422(kinds: TestClient, path: str, body: dict[str, Any], says: str) -> None:
    answer = kinds.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert says in answer.json()["error"]["message"]
