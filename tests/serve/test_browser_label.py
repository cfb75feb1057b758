"""The label page in a real browser: by keys alone, with undo and skip, in two tabs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.labelling.journal import Journal
from tests.labelling.conftest import TRUTH, WORDS, texts
from tests.serve.browsing import follow, in_a_browser
from tests.serve.conftest import Server
from tests.serve.test_labelling import place  # noqa: F401

pytestmark = in_a_browser
KEYS = {label: str(i) for i, label in enumerate(WORDS, start=1)}
ROWS = {text: row for row, (text, _) in enumerate(texts(150), start=1)}


def opened(page: Any) -> Any:
    page.get_by_role("link", name="Label", exact=True).click()
    page.get_by_role("link", name="topics").click()
    page.wait_for_selector("#skip:enabled")
    return page


def press(page: Any, key: str) -> int:
    """Press a key for the row that is shown; its number."""
    page.wait_for_selector("#skip:enabled")
    row = int(page.get_attribute("#label", "data-row"))
    assert ROWS[page.text_content("#text")] == row
    page.keyboard.press(KEYS[TRUTH[row]] if key == "label" else key)
    page.wait_for_selector(f"#label:not([data-row='{row}']):not([data-row=''])")
    return row


def counts(page: Any) -> tuple[int, int]:
    return int(page.inner_text("#count")), int(page.inner_text("#skipped"))


def test_twenty_rows_by_keys_with_undo_and_skip(place: Path, browse: Callable[..., Any], start: Callable[..., Server]) -> None:  # noqa: F811  # fmt: skip
    page = opened(browse(start(place)))
    rows = [press(page, "label") for _ in range(20)]
    assert len(set(rows)) == 20
    assert counts(page) == (20, 0)
    page.keyboard.press("u")
    page.wait_for_selector(f"#label[data-row='{rows[-1]}']")
    assert counts(page) == (19, 0)
    press(page, "s")
    assert counts(page) == (19, 1)
    page.reload()
    page.wait_for_selector("#skip:enabled")
    page.keyboard.press("u")  # a reload does not forget what this tab said
    page.wait_for_selector(f"#label[data-row='{rows[-1]}']")
    for _ in range(31):
        press(page, "label")
    page.wait_for_selector("#curve polyline.valid")
    page.wait_for_selector("#curve polyline.expected", state="attached")  # may be a flat line
    assert "more labels give" in page.inner_text("#advice")
    assert page.locator("#curve polygon.interval").count() == 1
    found = {answer.row: answer.label for answer in Journal(place / "topics" / "labels.csv").refresh().labelled()}
    assert len(found) == 50
    assert all(TRUTH[row] == label for row, label in found.items())
    assert page.faults == []


def test_two_tabs_label_different_rows(place: Path, browse: Callable[..., Any], start: Callable[..., Server]) -> None:  # noqa: F811  # fmt: skip
    server = start(place)
    one, two = opened(browse(server)), opened(browse(server))
    rows = [press(page, "label") for _ in range(10) for page in (one, two)]
    assert len(set(rows)) == 20
    two.keyboard.press("u")  # its own last one
    two.wait_for_selector(f"#label[data-row='{rows[-1]}']")
    found = {answer.row for answer in Journal(place / "topics" / "labels.csv").refresh().labelled()}
    assert found == set(rows[:-1])
    assert one.faults == two.faults == []


def test_keys_can_be_turned_off(place: Path, browse: Callable[..., Any], start: Callable[..., Server]) -> None:  # noqa: F811  # fmt: skip
    page = opened(browse(start(place)))
    page.uncheck("#keys")
    page.keyboard.press("1")
    page.get_by_role("button", name="sport").click()
    page.wait_for_selector("#undo:enabled")
    assert counts(page) == (1, 0)


def test_a_file_is_chosen_on_the_page_that_starts_a_session(
    tmp_path: Path,
    browse: Callable[..., Any],
    start: Callable[..., Server],
) -> None:
    rows = tmp_path / "texts.csv"
    rows.write_text("text\n" + "".join(f"soup {i}\n" for i in range(30)))
    page = browse(start(tmp_path / "runs"))
    follow(page, page.get_by_role("link", name="Label").first)
    page.set_input_files("#file", rows)
    page.get_by_text(f"texts.csv: {rows.stat().st_size} bytes.").wait_for(timeout=20_000)
    assert page.faults == []
