"""The pages in a real browser: from an empty folder to a verdict and a model, by mouse and by keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Server

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def browse() -> Iterator[Callable[..., Any]]:
    """Pages of a server, signed in; whatever a page complains of, or asks of another host, is collected."""
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])

        def open_page(server: Server, **how: Any) -> Any:
            _, http = server
            page = browser.new_context(**how).new_page()
            page.set_default_timeout(60_000)
            page.faults = []
            page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: page.faults.append(str(error)))
            page.on(
                "request",
                lambda request: (
                    page.faults.append(request.url)
                    if not request.url.startswith((str(http.base_url), "data:", "blob:"))
                    else None
                ),
            )
            page.goto(f"{http.base_url}?token={http.headers['authorization'].split()[1]}")
            return page

        yield open_page
        browser.close()


def until(page: Any, selector: str, timeout: int = 120_000) -> None:
    """Wait for an element; a page that complains instead fails at once, with its sentence."""
    page.wait_for_selector(f"{selector}, #error:not([hidden])", timeout=timeout)
    said = page.locator("#error:not([hidden])")
    assert said.count() == 0, (said.first.inner_text(), page.faults)


def follow(page: Any, link: Any) -> None:
    """Click a link and wait until the page behind it, its scripts too, is loaded."""
    with page.expect_navigation():
        link.click()


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_from_an_empty_folder_to_a_verdict_and_a_prediction(
    tmp_path: Path, browse: Callable[..., Any], start: Callable[..., Server], rows_csv: bytes
) -> None:
    rows = tmp_path / "my rows.csv"
    rows.write_bytes(rows_csv)
    server = start(tmp_path / "runs")
    page = browse(server)
    assert page.url.endswith("/")
    follow(page, page.get_by_role("link", name="New study").first)
    page.set_input_files("#file", rows)
    until(page, "#rows tr")
    assert "48 rows; bad 24, good 24." in page.inner_text("#counts")
    assert page.input_value("#label-column") == "label"
    for arm in ("frozen", "full"):
        page.uncheck(f"input[value='{arm}']")
    page.check("input[value='gpt']")
    page.fill("#seeds", "1")
    page.fill("#epochs", "1")
    page.fill("#least-steps", "20")
    page.click("#start")
    page.wait_for_url("**/jobs/*")
    until(page, "#cells-part:not([hidden])")
    page.reload()  # loses nothing
    until(page, "#result:not([hidden])")
    assert page.locator("#cells .finished").count() == 3
    follow(page, page.locator("#result"))
    page.wait_for_selector(".verdict")
    assert "Does pretraining help on my-rows.csv?" in page.inner_text("h1")
    follow(page, page.get_by_role("link", name="scratch"))
    page.fill("#text", "the soup was lovely")
    page.wait_for_selector("#labels meter")
    assert page.locator("#labels meter").count() == 2
    assert page.faults == []


def test_a_run_a_report_and_the_inside_of_a_model(
    made: Path, browse: Callable[..., Any], start: Callable[..., Server]
) -> None:
    page = browse(start(made))
    follow(page, page.get_by_role("link", name="base", exact=True))
    page.wait_for_selector("#curve polyline.valid")
    follow(page, page.get_by_text("Try the model"))
    page.fill("#text", "the soup was")
    page.fill("#tokens", "5")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-table:not([hidden]) tbody tr")
    assert page.inner_text("#generated").startswith("the soup was ")
    page.fill("#inside-text", "the soup was cold")
    page.get_by_role("button", name="Show attention").click()
    page.wait_for_selector(".headstart-seen")
    assert page.locator(".headstart-seen .hs-token").count() > 3
    page.go_back()
    page.get_by_role("link", name="Headstart", exact=True).click()
    page.locator(".cards a").first.click()
    page.click("text=The whole report")
    page.wait_for_selector(".arms")
    assert page.faults == []


def test_names_and_texts_of_others_run_nothing(
    folder: Path, browse: Callable[..., Any], start: Callable[..., Server], tmp_path: Path
) -> None:
    (folder / "base").rename(folder / HOSTILE.replace("/", ""))
    rows = tmp_path / "rows.csv"
    rows.write_text('text,label\n"<script>document.title=1</script>","<b>x</b>"\n"b","y"\n')
    page = browse(start(folder))
    assert HOSTILE in page.inner_text("table")
    follow(page, page.get_by_role("link", name="New study").first)
    page.set_input_files("#file", rows)
    until(page, "#rows tr")
    assert page.inner_text("#rows tr:first-child td:first-child") == "<script>document.title=1</script>"
    assert page.locator("#rows b, #rows script, main img").count() == 0
    assert page.title() == "New study · Headstart"
    assert page.faults == []


def test_the_keyboard_alone_labels_a_text(made: Path, browse: Callable[..., Any], start: Callable[..., Server]) -> None:
    page = browse(start(made))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "try tuned":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#text")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "text":
            break
    page.keyboard.type("the fish was awful")
    page.wait_for_selector("#labels meter")
    assert page.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_400_pixels(
    made: Path, browse: Callable[..., Any], start: Callable[..., Server], scheme: str
) -> None:
    server = start(made)
    page = browse(server, viewport={"width": 400, "height": 800}, color_scheme=scheme)
    http = server[1]
    ids = {entry["name"]: entry["id"] for entry in http.get("/api/runs").json()}
    for path in (
        "",
        "new",
        "jobs",
        "docs",
        f"runs/{ids['base']}",
        f"studies/{ids['study']}",
        f"models/{ids['tuned']}",
        f"models/{ids['base']}",
        f"jobs/{ids['study']}",
    ):
        page.goto(f"{http.base_url}{path}")
        page.wait_for_load_state("domcontentloaded")
        assert fits(page), path
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select, textarea, progress')].filter((e) => !(e.labels && e.labels.length) && !e.getAttribute('aria-label')).map((e) => e.id)"
        )
        assert unnamed == [], path
        assert page.locator("h1").count() == 1
    assert page.faults == []
