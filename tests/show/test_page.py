"""The page of an inspection, in a browser: tokens are shown as text, and the script may do what it should and no more."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from headstart.show.attention import AttentionMaps, causal_mask
from headstart.show.labels import LabelProbabilities
from headstart.show.page import page
from headstart.show.probabilities import Belief, Place, TokenProbabilities
from headstart.show.table import label
from headstart.show.view import Inspection
from headstart.text.visible import shown

HOSTILE = [
    "<script>document.title='owned'</script>", "</script><img src=x onerror=document.title='owned'>", "{{ 7 * 7 }}",
    "\x1b[31mred\x07", "\u202eright to left\u2066", "😀👩\u200d🚀", "\"'&amp;`", " ", "\n", "\ufeff\u200b", "\u0000",
]  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def inspection(tokens: list[str] = HOSTILE) -> Inspection:
    guesses = (0.5, 0.25)
    beliefs = tuple(Belief(p, 1.0, guesses) for p in (0.5, 0.25))
    places = [Place(tokens[0], 0, None, (), ())]
    places += [Place(t, i, 1, (t, tokens[0]), beliefs) for i, t in enumerate(tokens[1:])]
    n = len(tokens)
    weights = np.stack([np.stack([np.eye(n), np.tri(n) / np.arange(1, n + 1)[:, None]])] * 2).astype(np.float32)
    maps = AttentionMaps(tokens, tokens, weights, causal_mask(n), layer=1, head="2")
    return Inspection("runs/<b>x</b>", "".join(tokens), (TokenProbabilities(tuple(places), (0.5, 1.0), 1.0), maps))


def opened(html: str, folder: Path) -> str:
    """The page after its script has run."""
    assert BROWSER is not None
    (folder / "page.html").write_text(html, "utf-8")
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"file://{folder}/page.html"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: dict[str, list[str]] = {}
        self.styles: list[str] = []
        self.scripts: list[str] = []
        self.live = 0
        self.title = ""
        self._stack: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._stack.append(tag)
        self.live += "data-live" in given
        if tag == "script":
            self.scripts.append("")
        if tag == "td":
            self.styles.append(f"{given.get('class') or ''}{given.get('style') or ''}")
        if tag in ("bdi", "output"):
            self.words.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self._stack and self._stack.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self._stack[-1] if self._stack else ""
        if inside in self.words:
            self.words[inside][-1] += data
        if inside == "script":
            self.scripts[-1] += data
        if inside == "title":
            self.title += data


def test_the_page_asks_for_nothing_and_allows_one_script() -> None:
    html = page([inspection(), inspection()])
    assert "default-src 'none'; script-src 'sha256-" in html
    assert not {"http:", "https:", "//cdn"} & set(html.split('"'))
    assert html.count("<script>") == 1
    assert html.count('<script type="application/json">') == 4


def test_every_text_is_escaped_before_a_browser_sees_it() -> None:
    html = page([inspection()])
    assert "<script>document" not in html
    assert "<img" not in html
    assert "<b>x" not in html
    assert not any(c in html for c in "\x1b\x07\u202e\u2066\ufeff\x00")


@browser
def test_hostile_tokens_are_shown_as_text_in_a_browser(tmp_path: Path) -> None:
    seen = Page(opened(page([inspection(), inspection(["a", "b"])]), tmp_path))
    assert seen.title == shown("".join(HOSTILE))
    n = len(HOSTILE)
    names = [label(token) for token in HOSTILE]
    assert seen.words["bdi"][2 : 2 + n] == names  # after the text and the model
    assert seen.words["bdi"][-4:] == ["a", "b", "a", "b"]
    assert seen.live == 4
    assert sum(not script.startswith("{") for script in seen.scripts) == 1


@browser
def test_a_script_that_is_not_ours_does_not_run(tmp_path: Path) -> None:
    html = page([inspection(["a", "b"])]).replace("</main>", "<script>document.title = 'owned'</script></main>")
    seen = Page(opened(html, tmp_path))
    assert (seen.title, seen.live) == ("ab", 2)


@browser
def test_a_reader_picks_layer_head_token_and_temperature(tmp_path: Path) -> None:
    """Driven by a script of the test, on a page without a policy; a notebook has none either."""
    drive = """
    const fire = (element, kind) => element.dispatchEvent(new Event(kind, {bubbles: true}));
    for (const view of document.querySelectorAll("[data-view=attention]")) {
      view.querySelector(".hs-head").value = "1";
      fire(view.querySelector(".hs-head"), "change");
      fire(view.querySelectorAll("tbody tr")[1].cells[2], "pointerover");
    }
    const first = document.querySelector("[data-view=probabilities]");
    first.querySelector("input").value = "0";
    fire(first.querySelector("input"), "input");
    document.title = [...document.querySelectorAll("output")].map((o) => o.textContent).join("|") + "|" +
      first.querySelector("thead .hs-n").textContent;
    """
    html = f"<!doctype html><title></title>{inspection(['a', '<i>b'])._repr_html_()}{inspection(['c', 'd'])._repr_html_()}<script>{drive}</script>"
    seen = Page(opened(html, tmp_path))
    assert seen.title == "0.5|<i>b → <i>b: 1.000|1|d → d: 1.000|0.50"
    shades = [style for style in seen.styles if "--w" in style or "unseen" in style]
    assert shades[-4:] == ["--w: 1;", "hs-unseen", "--w: 0;", "--w: 1;"]


def test_a_picture_holds_every_token(tmp_path: Path) -> None:
    picture = inspection(["alpha", "beta", "$x_1$"]).picture()
    svg = picture.svg()
    assert all(svg.count(word) >= 2 for word in ("alpha", "beta", "$x_1$"))
    assert picture.png().startswith(b"\x89PNG")
    assert "2 layers" in picture.alt


def test_many_labels_are_folded_behind_the_most_probable() -> None:
    page = LabelProbabilities({f"label {i}": 1 / (i + 2) for i in range(25)}).html()
    seen, folded = page.split("<summary>5 less probable</summary>")
    assert [text.count('class="hs-bar"') for text in (seen, folded)] == [20, 5]
    assert "less probable" not in LabelProbabilities({"yes": 0.7, "no": 0.3}).html()
