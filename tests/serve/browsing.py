"""Pages of a server in Chromium: opened, clicked, and asked whether they are accessible."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_a_browser = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
GRAVE = ("serious", "critical")  # impacts of axe-core
UNNAMED = "[...document.querySelectorAll('input, select, textarea, progress')].filter((e) => !(e.labels && e.labels.length) && !e.getAttribute('aria-label')).map((e) => e.id)"  # fmt: skip


@pytest.fixture(scope="module")
def browse() -> Iterator[Callable[..., Any]]:
    """Pages of a server, signed in; whatever a page complains of, or asks of another host, is collected."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])

        def open_page(server: Any, **how: Any) -> Any:
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


def until(page: Any, selector: str, timeout: int = 300_000) -> None:
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


def violations(page: Any) -> list[tuple[str, str]]:
    """The rules of axe-core that a page breaks gravely, and the element that does."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(rule["id"], node["html"][:120]) for rule in found if rule["impact"] in GRAVE for node in rule["nodes"]]


def picture(page: Any, name: str) -> None:
    """The page at 1,200 pixels in light and dark and at 400 pixels, side by side, where HEADSTART_PICTURES names a folder."""
    if not (folder := os.environ.get("HEADSTART_PICTURES")):
        return
    from PIL import Image

    size, parts = page.viewport_size, []
    for width, scheme in ((1200, "light"), (1200, "dark"), (400, "light")):
        page.set_viewport_size({"width": width, "height": 1000})
        page.emulate_media(color_scheme=scheme)
        parts.append(Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB"))
    page.set_viewport_size(size)
    height = min(1400, max(part.height for part in parts))
    joined = Image.new("RGB", (sum(part.width for part in parts) + 40, height), "#888")
    for part, left in zip(parts, (0, 1220, 2440), strict=True):
        joined.paste(part.crop((0, 0, part.width, min(part.height, height))), (left, 0))
    small = joined.resize((joined.width // 2, joined.height // 2), Image.Resampling.LANCZOS)
    small.quantize(48).save(Path(folder) / f"studio-{name}.png", optimize=True)
