"""The page of a study: one harmless file that shows what there is and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headstart.errors import DataError
from headstart.study.report import study_html, table_csv, write_report
from headstart.study.results import Results

Study = Callable[..., dict[str, Any]]
EVIL = "<img src=x onerror=alert(1)>\"'\u202e$x^2$"
SMALL: dict[str, Any] = {"kinds": ("tfidf", "full"), "counts": (300, 2000), "seeds": 2}


class Page(HTMLParser):
    """Elements, headings, and what a reader reads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text = ""
        self.path: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr"):
            self.path.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.path.pop() == tag
        self.text += " " if tag in ("td", "th") else ""

    def handle_data(self, data: str) -> None:
        if {"h1", "h2", "h3"} & set(self.path):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)
        if "style" not in self.path:
            self.text += data

    def titles(self) -> list[str]:
        return [text for _, text in self.headings]

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def write(folder: Path, results: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "results.json").write_text(json.dumps(results))
    return write_report(folder, Results.read(folder / "results.json")).read_text("utf-8")


def only(study: Study, *parts: str, **options: Any) -> dict[str, Any]:
    """The least that a study can be, and some parts of a whole one."""
    whole = study(**{**SMALL, "counts": (2000,), **options})
    arms = [
        {key: arm[key] for key in ("name", "kind", "labels", "mean", *parts) if key in arm} for arm in whole["arms"]
    ]
    return {"title": "T", "verdict": "V", "arms": arms, **{part: whole[part] for part in parts if part in whole}}


def poisoned(value: Any, names: set[str]) -> Any:
    """Every text made hostile; names of arms, labels and the like also where they are keys."""
    if isinstance(value, str):
        return EVIL + value
    if isinstance(value, list):
        return [poisoned(item, names) for item in value]
    if isinstance(value, dict):
        return {(EVIL + key if key in names else key): poisoned(item, names) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, study: Study) -> Path:
    """A whole study and its page."""
    folder = tmp_path_factory.mktemp("study")
    write(folder, study())
    return folder


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def must_be_harmless(html: str) -> None:
    page = Page(html)
    assert not page.tags() & {"script", "img", "link", "iframe", "object", "embed", "image", "base", "form", "a"}
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (name, value)
            assert name not in ("src", "srcset", "action", "data"), (name, value)
            assert "href" not in name or (value or "").startswith("#"), value
    assert not re.search(r"url\((?!#)|@import|expression\(", html)


def test_the_page_is_one_file_that_loads_and_runs_nothing(html: str) -> None:
    must_be_harmless(html)
    assert "default-src 'none'" in html
    assert "{{" not in html.replace("{{ 7 * 7 }}", "")


def test_hostile_names_and_texts_change_no_markup(tmp_path: Path, study: Study, html: str) -> None:
    results = study(**SMALL)
    names = {a["name"] for a in results["arms"]} | {*results["label_names"], *results["data"]["rows"], "torch"}
    poison = {**poisoned(results, names), "score": "accuracy"}  # of which there are two
    evil = write(tmp_path, poison)
    must_be_harmless(evil)
    assert Page(evil).tags() <= Page(html).tags()
    assert Page(evil).text.count("<img src=x onerror=alert(1)>\"'\\u202e$x^2$") > 100
    must_be_harmless(study_html(Results.of(poison)))
    for file in (tmp_path / "figures").glob("*.svg"):
        svg = file.read_text("utf-8")
        assert "<img" not in svg
        assert "onerror" in "".join(ElementTree.fromstring(svg).itertext())  # it is there, as text


def test_no_character_can_drive_the_page_or_turn_it_around(folder: Path, html: str) -> None:
    for text in (html, *(f.read_text("utf-8") for f in (folder / "figures").glob("*.svg"))):
        hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} - set("\n\t\u200c\u200d")
        assert not hidden
    assert "right \\u202eto left\\u202c and a bell \\x07" in html
    assert "فيلم رائع" in html


def test_headings_are_in_order_and_tables_have_headers(html: str) -> None:
    page = Page(html)
    levels = [int(tag[1]) for tag, _ in page.headings]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    assert page.titles()[:4] == [
        "Does pretraining help on critiques_été.csv?", "Before you read on", "Verdict", "Scores with all 2,000 labels",
    ]  # fmt: skip


def test_every_figure_is_described_and_shares_no_id(html: str) -> None:
    page = Page(html)
    drawn = [attributes for tag, attributes in page.elements if tag == "svg"]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(drawn) == 12 + 20  # figures, and a dot for each arm and label count
    assert all(a["role"] == "img" and ("aria-label" in a or a["aria-labelledby"] in ids) for a in drawn)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', html))
    assert used <= set(ids)


SECTIONS = {
    "notices": "Before you read on",
    "differences": "Arm against arm",
    "curves": "While learning",
    "confusion": "What is taken for what",
    "mistakes": "Most confident mistakes",
    "disagreements": "Where arms disagree",
    "cost": "Cost",
    "pretraining": "Cost",
    "receipts": "What was transferred",
    "failures": "What failed",
    "hygiene": "The data",
    "repeat": "To repeat it",
}
LEAST = ["T", "Verdict", "Scores with all 2,000 labels", "How to read an interval"]


@pytest.mark.parametrize("part", SECTIONS)
def test_a_section_is_there_with_its_data(tmp_path: Path, study: Study, part: str) -> None:
    page = Page(write(tmp_path, only(study, part, *(["label_names"] if part == "confusion" else []))))
    found = [title for tag, title in page.headings if tag != "h3"]
    assert set(found) - set(LEAST) == {SECTIONS[part]}


def test_files_are_named_where_the_study_is_repeated(tmp_path: Path, study: Study) -> None:
    page = Page(write(tmp_path, only(study, "data")))
    assert set(page.titles()) - set(LEAST) == {"The data", "To repeat it"}
    assert "critiques_été.csv, 402,113 bytes" in page.text


def test_a_pack_is_called_by_its_name(tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    results = study()
    for arm in results["arms"]:
        if arm["base"]:
            arm["base"] = str(tmp_path / "cache" / "packs" / "minilm-eccfd0898ec8")
    page = write(tmp_path, results)
    assert "<bdi>minilm</bdi>" in page
    assert "minilm-eccfd0898ec8</bdi>" not in page


def test_the_least_study_has_a_page(tmp_path: Path, study: Study) -> None:
    page = Page(write(tmp_path, only(study)))
    assert page.titles() == LEAST
    assert not {"figure", "details"} & page.tags()
    assert not (tmp_path / "figures").exists()


def test_empty_and_null_parts_are_absent_parts(tmp_path: Path, study: Study) -> None:
    whole, least = study(**SMALL), only(study)
    emptied = {key: [] if isinstance(value, list) else {} for key, value in whole.items() if key not in least}
    nulled = dict.fromkeys(emptied)
    for part in ("score", "seeds"):
        emptied.pop(part)
    assert write(tmp_path, {**least, **emptied}) == write(tmp_path, least) == write(tmp_path, {**least, **nulled})


def test_an_arm_that_never_finished_is_a_row_of_dashes(tmp_path: Path, study: Study) -> None:
    results = only(study, counts=(300, 2000))
    results["arms"][-1] |= {"mean": None, "sd": float("nan")}
    text = " ".join(Page(write(tmp_path, results)).text.split())
    assert "full 2,000 – – – 1 –" in text


def test_fewer_labels_bring_the_curve_and_folded_tables(tmp_path: Path, study: Study) -> None:
    page = Page(write(tmp_path, only(study, counts=(300, 2000))))
    assert "Labels needed" in page.titles()
    assert "300 labels" in page.titles()
    assert (tmp_path / "figures" / "labels.png").read_bytes().startswith(b"\x89PNG")


def test_labels_not_reached_are_said_in_words(tmp_path: Path, study: Study) -> None:
    results = only(study, counts=(300, 2000))
    need = {"arm": "full", "reference": "scratch", "score": 0.7}
    results["labels_needed"] = [
        {**need, "labels": 610, "interval": [400, None], "saved": 1390},
        {**need, "labels": None, "interval": [None, None], "saved": None},
        {**need, "labels": 300, "interval": [300, 500], "at_most": True, "saved": 1700},
    ]
    text = " ".join(Page(write(tmp_path, results)).text.split())
    assert "70.0 610 400 to not reached 1,390" in text
    assert "70.0 not reached – –" in text
    assert "70.0 300 or fewer 300 to 500 1,700" in text


def test_what_would_tell_two_arms_apart_is_said(tmp_path: Path, study: Study) -> None:
    results = only(study, "differences")
    results["differences"][0] |= {"needed": {"seeds": 9, "rows": 5234}, "interval": [-0.0004, 0.02]}
    text = " ".join(Page(write(tmp_path, results)).text.split())
    assert "−0.04 to +2.0" in text
    assert "9 seeds or 5,200 rows" in text


def test_arms_that_agree_stand_behind_one_label(tmp_path: Path, study: Study) -> None:
    results = only(study)
    said = {"full": {"b": 3, "a": 2}, "tfidf": {"b": 1}, "frozen": {"a": 5}}
    results["disagreements"] = [{"row": 1, "text": "t", "label": "a", "said": said}]
    text = " ".join(Page(write(tmp_path, results)).text.split())
    assert "✓ a full 2/5, frozen ✗ b full 3/5, tfidf" in text


def test_receipts_speak_in_words(html: str) -> None:
    text = Page(html).text
    assert "frozen on base: 40 tensors copied, 2 new, 0 of 38 frozen ones moved." in text
    assert "full on base: 40 tensors copied, 2 new, none frozen." in text


def test_long_texts_are_folded_and_endless_ones_cut(tmp_path: Path, study: Study) -> None:
    results = only(study, "disagreements")
    results["disagreements"] = [{"row": 1, "text": "word " * 2000, "label": "a", "said": {"full": {"a": 1}}}]
    page = Page(write(tmp_path, results))
    assert "… (10,000 characters)" in page.text
    assert page.text.count("word") < 1000
    assert ("details", {"class": "more"}) in page.elements


def test_intervals_in_the_table_are_seen_on_light_and_on_dark_paper(study: Study, tmp_path: Path):
    """3 to 1 is what WCAG 2.2 asks of graphics (1.4.11)."""
    page = write(tmp_path, study(kinds=("tfidf", "scratch", "frozen", "full"), counts=(2000,)))
    drawn = [mark for svg in re.findall(r'<svg class="dots".*?</svg>', page, re.DOTALL) for mark in svg.split("<")[3:5]]
    assert not any("opacity" in mark for mark in drawn)
    colors = {color for mark in drawn for color in re.findall(r"#[0-9a-f]{6}", mark)}
    assert len(colors) > 1
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", page)
    assert len(papers) == 2
    for paper in papers:
        assert all(_contrast(color, paper) >= 3 for color in colors)


def _contrast(a: str, b: str) -> float:
    def light(color: str) -> float:
        shares = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return sum(weight * s for weight, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, bright = sorted((light(a), light(b)))
    return (bright + 0.05) / (dark + 0.05)


def test_the_table_has_a_line_for_each_arm_and_label_count(folder: Path, study: Study) -> None:
    lines = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text("utf-8"))))
    assert [(line["arm"], int(line["labels"])) for line in lines] == [(a["name"], a["labels"]) for a in study()["arms"]]
    assert (folder / "table.csv").read_text("utf-8").splitlines()[1] == (
        "majority,majority,,100,accuracy,0.505,,0.485,0.525,rows only,1,0.505,0.495,0.043,0.182,0.499,0.479,0.519,,0.4,,,1"
    )


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_the_table_holds_no_formulas_and_numbers_stay_numbers(name: str) -> None:
    arm = {"name": name, "labels": 5, "mean": -0.25, "interval": [-0.5, 0.5]}
    results = Results.of({"title": "T", "verdict": "V", "arms": [arm]}).shown()
    line = next(csv.DictReader(io.StringIO(table_csv(results), newline="")))
    assert line["arm"][0] in "'\\"
    assert (line["mean"], line["low"], line["labels"]) == ("-0.25", "-0.5", "5")


def test_the_same_results_give_the_same_bytes(tmp_path: Path, study: Study) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, study(**SMALL))
    files = sorted(f.relative_to(tmp_path / "a") for f in (tmp_path / "a").rglob("*") if f.is_file())
    assert len(files) == 2 * 7 + 3
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_the_page_is_made_without_torch(tmp_path: Path, study: Study) -> None:
    (tmp_path / "results.json").write_text(json.dumps(only(study, "differences")))
    code = (
        "import sys; from pathlib import Path; from headstart.study.report import write_report\n"
        "from headstart.study.results import Results\n"
        f"folder = Path({str(tmp_path)!r}); write_report(folder, Results.read(folder / 'results.json'))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_fragments_fit_on_one_page(study: Study) -> None:
    one, other = (study_html(Results.of({**study(**SMALL), "title": title})) for title in ("One", "Another"))
    ids = [{a["id"] for _, a in Page(html).elements if "id" in a} for html in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    style = re.search(r"<style>(.*?)</style>", one, re.S)
    assert style
    rules = [selector.strip() for rule in style[1].split("}")[:-1] for selector in rule.split("{")[0].split(",")]
    assert all(rule.startswith(".headstart-study") for rule in rules)
    must_be_harmless(one)
    assert "pretraining beats training from scratch" in Page(one).text


def test_a_folder_without_results_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no results\.json here") as caught:
        Results.read(tmp_path / "results.json")
    assert caught.value.code == "STUDY_MISSING"


@pytest.mark.parametrize(
    ("content", "told"),
    [("{", "Expecting"), ('{"title": "T", "arms": []}', "verdict"), ("[]", "valid dictionary"),
     ('{"title": "T", "verdict": "V", "arms": [{"name": "a", "labels": 1, "mean": "x"}]}', "arms.0.mean")],
)  # fmt: skip
def test_damaged_results_are_told_where(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(DataError, match=re.escape(told)) as caught:
        Results.read(tmp_path / "results.json")
    assert caught.value.code == "STUDY_DAMAGED"
