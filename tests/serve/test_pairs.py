"""A model of text pairs over HTTP, and on its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headstart.config import FinetuneConfig
from headstart.jobs.job import run_job
from headstart.schema import parse
from headstart.text.text_pair import TextPair
from headstart.use.inspect import Inspector
from headstart.use.predict import LoadedClassifier
from tests.serve.conftest import TRAIN, Server
from tests.serve.test_browser import browse, follow  # noqa: F401

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
    browse: Callable[..., Any],  # noqa: F811
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
