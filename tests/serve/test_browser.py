"""The pages in a real browser: from an empty folder to a verdict and a model, by mouse and by keyboard."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headstart.labelling.journal import Journal
from tests.labelling.conftest import texts as topic_texts
from tests.serve.browsing import UNNAMED, fits, follow, in_a_browser, picture, until, violations
from tests.serve.conftest import Server

pytestmark = in_a_browser
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


class Mouse:
    """What a person does with a page, by clicking and typing."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def click(self, selector: str) -> None:
        self.page.click(selector)

    def fill(self, selector: str, text: str) -> None:
        self.page.fill(selector, text)

    def pick(self, selector: str, file: Path) -> None:
        self.page.set_input_files(selector, file)

    def select(self, selector: str, shown: str) -> None:
        self.page.select_option(selector, label=shown)

    def picture(self, name: str) -> None:
        picture(self.page, name)


class Keyboard(Mouse):
    """The same with Tab, Enter, Space and letters alone."""

    def _reach(self, selector: str) -> None:
        for _ in range(150):
            if self.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} cannot be reached by the Tab key on {self.page.url}")

    def click(self, selector: str) -> None:
        self._reach(selector)
        self.page.keyboard.press("Space" if "input" in selector else "Enter")

    def fill(self, selector: str, text: str) -> None:
        self._reach(selector)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def pick(self, selector: str, file: Path) -> None:
        from playwright import sync_api

        self._reach(selector)
        for key in ("Space", "Enter"):  # the first press may come before Playwright listens
            with suppress(sync_api.TimeoutError):
                with self.page.expect_file_chooser(timeout=15_000) as chosen:
                    self.page.keyboard.press(key)
                chosen.value.set_files(file)
                return
        raise AssertionError(f"no key opens {selector}")

    def select(self, selector: str, shown: str) -> None:
        self._reach(selector)
        self.page.keyboard.type(shown)

    def picture(self, name: str) -> None:
        """None: another viewport takes the focus away."""


@pytest.mark.parametrize("by", [pytest.param(Mouse, marks=pytest.mark.slow), Keyboard])
def test_from_an_empty_folder_to_a_model_that_is_taken_away(
    by: type[Mouse], tmp_path: Path, browse: Callable[..., Any], start: Callable[..., Server], rows_csv: bytes
) -> None:
    """A study with a reload in its middle, its verdict, a prediction, a look inside, twenty labels, and the model in plain transformers."""
    rows, texts = tmp_path / "my rows.csv", tmp_path / "texts.txt"
    rows.write_bytes(rows_csv)
    texts.write_text("\n".join(text for text, _ in topic_texts(40)), "utf-8")
    page = browse(start(tmp_path / "runs"))
    hand = by(page)
    hand.picture("empty")
    with page.expect_navigation():
        hand.click("nav a[href='/new']")
    hand.pick("#file", rows)
    until(page, "#rows tr")
    assert "48 rows; bad 24, good 24." in page.inner_text("#counts")
    assert page.input_value("#label-column") == "label"
    for base in page.locator("#bases input").all():  # which are at hand depends on the cache
        if base.is_checked() != (base.get_attribute("value") == "gpt"):
            hand.click(f"input[value='{base.get_attribute('value')}']")
    for arm in ("frozen", "full"):
        if page.is_checked(f"input[value='{arm}']"):
            hand.click(f"input[value='{arm}']")
    for place, number in (("#seeds", "1"), ("#epochs", "1"), ("#least-steps", "20")):
        hand.fill(place, number)
    hand.picture("new-study")
    hand.click("#start")
    page.wait_for_url("**/jobs/*")
    until(page, "#cells-part:not([hidden])")
    hand.picture("job")
    page.reload()  # loses nothing
    until(page, "#result:not([hidden])")
    assert page.locator("#cells .finished").count() == 3
    with page.expect_navigation():
        hand.click("#result")
    assert "Does pretraining help on my-rows.csv?" in page.inner_text("h1")
    assert page.inner_text(".verdict")
    with page.expect_navigation():
        hand.click("main a[href^='/models/'][href*='scratch']")
    hand.fill("#text", "the soup was lovely")
    page.wait_for_selector("#labels meter")
    ours = page.inner_text("#labels").split("\n")  # the likeliest label first, and its percentage
    with page.expect_download() as taken:
        hand.click("a[href$='to=transformers']")
    hand.fill("#inside-text", "the soup was cold")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.locator(".headstart-seen .hs-token").count() > 3
    page.go_back()
    with page.expect_navigation():
        hand.click("nav a[href='/label']")
    hand.pick("#file", texts)
    until(page, "#start:enabled")
    hand.fill("#labels", "food, sport")
    hand.select("#base", "TF-IDF")
    with page.expect_navigation():
        hand.click("#start")
    until(page, "#result:not([hidden])")
    with page.expect_navigation():
        hand.click("#result")
    for done in range(20):
        page.wait_for_selector("#skip:enabled")
        page.keyboard.press("1" if done % 2 else "2")
        page.wait_for_function("(n) => document.getElementById('count').textContent === `${n}`", arg=done + 1)
    (session,) = (tmp_path / "runs").glob("label-*/labels.csv")
    assert len(Journal(session).refresh().labelled()) == 20
    assert page.faults == []

    from transformers import pipeline

    with zipfile.ZipFile(taken.value.path()) as archive:
        archive.extractall(tmp_path / "taken")
    (config,) = (tmp_path / "taken").rglob("config.json")
    (scores,) = pipeline("text-classification", str(config.parent), top_k=None)(["the soup was lovely"])
    assert [scores[0]["label"], f"{100 * scores[0]['score']:.1f} %"] == [ours[0], ours[1]]


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


def test_without_a_pretrained_base_nothing_is_proposed_that_needs_one(
    browse: Callable[..., Any], start: Callable[..., Server], tmp_path: Path, rows_csv: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Not after another task or column is chosen either; and a file goes again."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.csv"
    rows.write_bytes(rows_csv)
    server = start(tmp_path / "runs")
    page = browse(server)
    follow(page, page.get_by_role("link", name="New study").first)

    def proposed() -> tuple[list[str], set[str]]:
        bases, arms = ([box.get_attribute("value") for box in page.locator(f"input[name={name}]:checked").all()] for name in ("base", "arm"))  # fmt: skip
        return bases, {"frozen", "full"} & {*arms}

    page.set_input_files("#file", rows)
    until(page, "#rows tr")
    assert proposed() == (["gpt"], set())
    for task, base in (("multilabel", "gpt"), ("tag", "bert")):
        with page.expect_response(lambda answer, task=task: f"task={task}" in answer.url):  # type: ignore[misc]
            page.select_option("#task", task)
        until(page, f"input[value={base}]:checked")
        assert proposed() == ([base], set())
    assert page.locator("#known option:checked").inner_text() == "rows.csv"
    page.once("dialog", lambda asked: asked.dismiss())
    page.click("#remove")
    assert len(server[1].get("/api/files").json()) == 1
    page.once("dialog", lambda asked: asked.accept())
    page.click("#remove")
    page.wait_for_selector("#known-part", state="hidden")
    assert page.is_hidden("#plan-part")
    assert server[1].get("/api/files").json() == []
    assert page.faults == []


def test_a_whole_file_is_labelled_and_labels_become_a_study(
    folder: Path, browse: Callable[..., Any], start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start(folder)
    http, page = server[1], browse(server)
    ids = {e["name"]: e["id"] for kind in ("runs", "labellings") for e in http.get(f"/api/{kind}").json()}
    rows = tmp_path / "my rows.tab"
    rows.write_text("id\ttext\n1\tthe soup was lovely\n2\t\n3\tthe fish was awful\n")
    page.goto(f"{http.base_url}models/{ids['tuned']}")
    page.set_input_files("#file", rows)
    page.click("#label-file")
    until(page, "#labelled a")
    with page.expect_download() as taken:
        page.click("#labelled a")
    assert taken.value.suggested_filename == "my-rows-labelled.tsv"
    labelled = [line.split("\t") for line in Path(taken.value.path()).read_text().splitlines()]
    assert labelled[0] == ["id", "text", "predicted_label", "predicted_probability"]
    assert [line[2] for line in labelled[1:]] == ["good", "", "bad"]
    page.goto(f"{http.base_url}label/{ids['topics']}")
    page.click("#study")
    page.wait_for_selector("#error:has-text('Label some random rows first')")
    assert [file["name"] for file in http.get("/api/files").json()] == [rows.name]
    assert [fault for fault in page.faults if "422" not in fault] == []
    page.faults.clear()
    for done in range(1, 8):
        page.wait_for_selector("#skip:enabled")
        page.keyboard.press("2" if done % 2 else "1")
        page.wait_for_selector(f"#count:text-is('{done + 1}')")
    page.click("#study")
    until(page, "#rows tr")
    assert page.url.partition("#")[0].endswith("/new")
    for place, part in (("#known", "chosen"), ("#test", "random")):
        assert page.locator(f"{place} option:checked").inner_text() == f"topics-{part}.csv"
    assert page.faults == []


def tried(page: Any) -> None:
    """Use the form of a model page, whatever its kind, and wait for what comes out."""
    kind = page.get_attribute("#model", "data-job")
    page.fill("#text", "bana" if kind == "translate" else "the soup was cold")
    if kind == "pretrain":
        page.fill("#tokens", "5")
    if kind != "finetune":  # which answers as one types
        page.locator("section.first button").click()
    places = {
        "finetune": "#labels > *",
        "pretrain": "#generated:not(:empty)",
        "translate": "#translated-notes:not(:empty)",
        "match": "#images img",
    }
    until(page, places[kind])


def test_every_page_is_accessible_and_fits_400_pixels_in_light_and_dark(
    gallery: Path, browse: Callable[..., Any], start: Callable[..., Server]
) -> None:
    """axe-core finds nothing serious; results of models of every kind stand on their pages."""
    server = start(gallery)
    http = server[1]
    ids = {e["name"]: e["id"] for kind in ("runs", "labellings") for e in http.get(f"/api/{kind}").json()}
    models = ("base", "tuned", "several", "number", "stars", "tags", "translator", "matcher")
    paths = ["", "new", "jobs", "labs", "docs", "label", f"label/{ids['topics']}", f"runs/{ids['base']}", "runs/none"]
    paths += [f"studies/{ids['study']}", f"jobs/{ids['study']}", *(f"models/{ids[name]}" for name in models)]
    paths += [f"studies/{ids[f'study-{task}']}" for task in ("several", "number", "stars")]
    inside = {
        "tuned": "the+soup+was+cold",
        **dict.fromkeys(("several", "number", "stars", "tags"), "the+soup"),
        "translator": "bana",
    }
    paths += [f"models/{ids[name]}/inside?text={text}" for name, text in inside.items()]
    page = browse(server, viewport={"width": 400, "height": 800}, color_scheme="light")
    broken: dict[str, Any] = {}
    for path in paths:
        page.emulate_media(color_scheme="light")
        page.goto(f"{http.base_url}{path}")
        if "inside" not in path and path.startswith("models"):
            tried(page)
        if path.startswith("label/"):
            page.wait_for_selector("#skip:enabled")
        assert fits(page), path
        assert page.evaluate(UNNAMED) == [], path
        assert page.locator("h1").count() == ("inside" not in path), path
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if found := violations(page):
                broken[f"{path} {scheme}"] = found
        picture(page, re.sub(r"-[0-9a-f]{8}", "", path.partition("?")[0]).replace("/", "-") or "home")
    assert broken == {}
    assert [fault for fault in page.faults if "404" not in fault] == []  # of runs/none
