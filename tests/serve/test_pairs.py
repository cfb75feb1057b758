"""A model of text pairs over HTTP, and on its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headstart.config import FinetuneConfig
from headstart.jobs.job import run_job
from headstart.schema import parse
from headstart.serve.requests import CompareJob
from headstart.text.text_pair import TextPair
from headstart.use.inspect import Inspector
from headstart.use.predict import LoadedClassifier
from tests.serve.browsing import follow
from tests.serve.conftest import TRAIN, Server

PAIR = ["the soup was cold", "it was warm"]


@pytest.fixture(scope="module")
def pairs(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run, called pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = [f"the soup was {a} {i},it was {b},{'yes' if a == b else 'no'}" for i in range(15) for a, b in (("cold", "cold"), ("warm", "cold"))]  # fmt: skip
    (folder / "rows.csv").write_text("\n".join(["text1,text2,label", *rows]))
    settings = {"base": str(made / "base"), "data": {"train": str(folder / "rows.csv")}, "epochs": 1, "train": TRAIN}
    run_job(parse(FinetuneConfig, settings), folder / "runs" / "pairs")
    return folder / "runs"


def test_a_pair_is_a_list_of_two(pairs: Path, client_of: Callable[..., Any]) -> None:
    client = client_of(pairs)
    answer = client.post("/predict", json={"inputs": [PAIR, PAIR[::-1]]})
    assert answer.status_code == 200, answer.text
    expected = LoadedClassifier.load(pairs / "pairs").predict([TextPair(*PAIR), TextPair(*PAIR[::-1])])
    for found, row in zip(answer.json(), expected, strict=True):
        assert {score["label"]: score["score"] for score in found} == pytest.approx(row["probabilities"], abs=1e-5)
    for wrong in ("one text", ["one text"], [["one text"]], [["both", " "]]):
        refused = client.post("/predict", json={"inputs": wrong})
        assert refused.status_code == 422, (wrong, refused.text)


def test_inspect_takes_both_texts_with_a_mark_between(pairs: Path) -> None:
    views = Inspector.load(pairs / "pairs").inspect(" ||| ".join(PAIR), views=("labels",)).views
    expected = LoadedClassifier.load(pairs / "pairs").predict([TextPair(*PAIR)])[0]
    assert views[0].probabilities == pytest.approx(expected["probabilities"], abs=1e-5)


def test_the_page_of_such_a_model_has_two_boxes(
    pairs: Path,
    browse: Callable[..., Any],
    start: Callable[..., Server],
) -> None:
    page = browse(start(pairs))
    follow(page, page.get_by_role("link", name="try pairs"))
    page.fill("#text", PAIR[0])
    page.wait_for_timeout(500)
    assert page.locator("#labels meter").count() == 0
    page.fill("#second", PAIR[1])
    page.wait_for_selector("#labels meter")
    assert page.locator("#labels meter").count() == 2
    assert page.faults == []


@pytest.mark.parametrize(
    ("name", "text", "task", "arms", "column"),
    [
        ("rows.csv", "text1,text2,label\na,b,yes\nc,d,no\n", "classify", {"overlap", "second-only", "bi-encoder"}, "text1,text2"),
        ("rows.conll", "Ada B-PER\nwrote O\n\nOmar B-PER\nleft O\n", "tag", {"crf", "most-frequent-tag"}, None),
        ("rows.csv", "text,labels\na,x|y\nb,y|z\nc,x|z\nd,z\n", "multilabel", {"constant", "tfidf"}, "text"),
        ("rows.csv", "text,label\na,x\nb,y\n", "classify", {"majority", "tfidf"}, "text"),
    ],
)  # fmt: skip
def test_the_check_of_a_file_names_the_task_and_the_arms_that_suit_it(
    client: Any, name: str, text: str, task: str, arms: set[str], column: str | None
) -> None:
    headers = {"content-type": "application/octet-stream"}
    made = client.put(f"/api/files?name={name}", content=text.encode(), headers=headers)
    assert made.status_code in (200, 201), made.text
    checked = client.get(f"/api/files/{made.json()['id']}/check")
    found = checked.json()
    assert str(client.app.app.state.studio.registry.folder) not in checked.text  # R15
    assert (found["task"], found["text_column"]) == (task, column)
    assert arms <= set(found["arms"])
    CompareJob(verb="compare", data=made.json()["id"], arms=found["arms"])  # the page asks for them
    assert ("tfidf" in found["arms"]) is (task != "tag")


def test_a_new_study_of_pairs_starts_with_their_arms(
    tmp_path: Path,
    browse: Callable[..., Any],
    start: Callable[..., Server],
) -> None:
    rows = tmp_path / "pairs.csv"
    rows.write_text("text1,text2,label\nthe soup,it was cold,yes\nthe fish,it was warm,no\n")
    page = browse(start(tmp_path / "runs"))
    follow(page, page.get_by_role("link", name="New study").first)
    page.set_input_files("#file", rows)
    page.wait_for_selector("#rows tr")
    assert page.input_value("#text-column") == "text1,text2"
    assert page.is_checked("input[value='second-only']")
    page.select_option("#text-column", "text2")
    page.wait_for_selector("#rows td:text-is('it was cold')")
    assert not page.is_checked("input[value='second-only']")
    assert page.faults == []
