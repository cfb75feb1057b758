"""In Chromium: a table whose columns have unusual names, the way back from a look inside, and a lab that is started from its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headstart.hub.packs import pack_folder
from headstart.labs.lab import open_lab
from headstart.serve.labs import missing_packs
from tests.serve.browsing import fits, follow, in_a_browser, picture, until, violations
from tests.serve.conftest import Server

pytestmark = in_a_browser
MESSY = "\ufeffnr;Bewertung;;label\n" + "".join(
    f'{i};"the soup; number {i} 🍰";;{"good" if i % 2 else "Bad "}\n' for i in range(12)
)


def test_a_table_of_unusual_columns_is_asked_about_and_flags_are_boxes(
    tmp_path: Path, browse: Callable[..., Any], start: Callable[..., Server]
) -> None:
    server = start(tmp_path / "runs")
    page = browse(server, viewport={"width": 400, "height": 700})
    page.goto(f"{server[1].base_url}new")
    messy = tmp_path / "messy.csv"
    messy.write_text(MESSY + "12;blank;;\n13;x;;bad\n", "utf-8")
    page.set_input_files("#file", str(messy))
    page.wait_for_selector("#check-part:not([hidden])")
    assert "Which column has the texts?" in page.inner_text("#error")
    assert page.is_hidden("#plan-part")
    assert violations(page) == []
    picture(page, "new-study-columns")
    page.select_option("#text-column", label="Bewertung")
    until(page, "#plan-part:not([hidden])")
    assert page.input_value("#label-column") == "label"
    assert page.is_visible("#preview")
    assert "“drop rows without text or label” below" in page.inner_text("#warnings")
    assert "--" not in page.inner_text("#warnings").replace("--class-weights", "")
    for arm in page.query_selector_all("input[name=arm]:checked"):
        arm.uncheck()
    page.check("input[name=arm][value=majority]")
    page.click("#estimate")  # below what fits on the screen, as the complaint is above it
    page.wait_for_selector("#error:not([hidden])", timeout=120_000)
    assert "“drop rows without text or label” below" in page.inner_text("#error")
    top = page.evaluate("document.getElementById('error').getBoundingClientRect().top")
    assert -1 <= top < 700
    assert fits(page)


def test_from_a_look_inside_a_link_leads_back_to_the_model(
    made: Path, browse: Callable[..., Any], start: Callable[..., Server]
) -> None:
    """The page has an origin of its own, from which the browser sends no strict cookie at once."""
    server = start(made)
    (model,) = (m["id"] for m in server[1].get("/v1/models").json()["data"] if m["name"] == "tuned")
    page = browse(server)
    page.goto(f"{server[1].base_url}models/{model}/inside?text=the+soup")
    follow(page, page.locator("nav a"))
    page.wait_for_selector("h1:has-text('tuned')")
    assert page.url.endswith(f"/models/{model}")


def test_a_quick_lab_starts_from_its_page_and_tells_how_it_went(
    tmp_path: Path, browse: Callable[..., Any], start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    wanted = missing_packs(open_lab("pig-latin")[1])
    assert wanted == ["pig-latin"]
    server = start(tmp_path / "runs")
    page = browse(server)
    page.goto(f"{server[1].base_url}labs")
    card = page.locator("li", has=page.locator("#lab-pig-latin"))
    assert "headstart data get pig-latin" in card.inner_text()
    assert card.locator("button").count() == 0
    for pack in wanted:  # there, as far as the page can tell, and damaged
        pack_folder(pack).mkdir(parents=True)
    page.reload()
    with page.expect_navigation():
        card.locator("button").click()
    page.wait_for_selector("#error:not([hidden])", timeout=120_000)
    assert "Step 'small-words' failed" in page.inner_text("#error")
    assert "headstart lab run pig-latin --quick" in page.inner_text("main")
    assert page.is_visible("#resume")
    assert violations(page) == []
    page.goto(f"{server[1].base_url}labs")
    assert "The quick run: failed" in card.inner_text()
    assert violations(page) == []
    assert fits(page)
