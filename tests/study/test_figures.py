"""The figures of a study: readable on any ground, by anyone, whatever the labels are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import headstart.study
from headstart.study.figures import COLORS, INK, PAPER, looks, main_picture, pictures
from headstart.study.report import inline
from headstart.study.results import Results

Study = Callable[..., dict[str, Any]]
CSS = (Path(headstart.study.__file__).parent / "page.css.j2").read_text("utf-8")


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    """The colours of the page by name, light and dark."""
    return [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.S)
    ][:2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_lines_and_words_stand_out_from_the_page(theme: int) -> None:
    page = themes()[theme]
    assert all(contrast(color, page["paper"]) >= 3 for color in COLORS)
    for word in ("ink", "soft", "good", "bad"):
        assert contrast(page[word], page["paper"]) >= 4.5, word
    assert contrast(page["ink"], page["warn-tint"]) >= 4.5


def test_twelve_arms_look_twelve_ways(study: Study) -> None:
    kinds = ("majority", "tfidf", "scratch", "frozen", "last:1", "last:2", "full")
    look = looks(Results.of(study(kinds=kinds, bases=("runs/causal", "runs/masked"), counts=(100,))))
    assert len(look) == 12
    assert len({str(style) for style in look.values()}) == 12
    assert look["full causal"].color == look["full masked"].color
    colored = {(style.color, style.marker) for style in look.values() if style.color != INK}
    assert len({color for color, _ in colored}) == len({marker for _, marker in colored}) == 5


def test_names_are_drawn_as_they_are_written(study: Study) -> None:
    names = ("$x^2$", "<b>&amp;", "أخبار", "a very long name of a label that goes on", "two\nlines", "日本")
    results = Results.of(study(kinds=("scratch", "full"), counts=(100, 200), seeds=2, names=names))
    *_, last = pictures(results)
    texts = [e.text for e in ElementTree.fromstring(last.svg()).iter() if e.tag.endswith("text")]
    assert {"$x^2$", "<b>&amp;", "أخبار", "a very long name…", "two lines", "日本"} <= set(texts)
    assert last.png().startswith(b"\x89PNG")


def test_an_inline_figure_takes_the_colours_of_its_page(study: Study) -> None:
    picture = main_picture(Results.of(study(seeds=2)))
    assert picture
    assert picture.name == "labels"
    svg = picture.svg()
    assert INK in svg
    assert PAPER in svg
    drawn = inline(svg, "m", "what it shows")
    assert INK not in drawn
    assert PAPER not in drawn
    assert "currentColor" in drawn
    assert "<style" not in drawn
    assert '<title id="m-title">what it shows</title>' in drawn


def test_clear_differences_are_filled_and_the_family_leads(study: Study) -> None:
    results = Results.of(study())
    first, *others = [p for p in pictures(results) if "differences" in p.name]
    family = [d for d in results.differences if d.adjusted]
    assert {d.clear for d in family} == {True, False}
    points = [line for line in first.figure.axes[0].lines if line.get_marker() not in ("None", "", None)]
    assert [line.get_markerfacecolor() != PAPER for line in points] == [d.clear for d in family]
    weights = [label.get_fontweight() for label in first.figure.axes[0].get_yticklabels()]
    assert weights == ["bold" if d.clear else "normal" for d in family]
    assert [p.name for p in others] == ["differences 800", "differences 300", "differences 100"]
    drawn = sum(len(p.figure.axes[0].get_yticklabels()) for p in (first, *others))
    assert drawn == len(results.differences)


def test_seeds_of_different_length_and_gaps_are_drawn(study: Study) -> None:
    results = study(kinds=("scratch",), counts=(100,), seeds=2)
    results["curves"]["scratch"] |= {
        "epoch": [0, 1, 2, 3], "train_loss": [[None, 0.5], [None, float("nan")]], "valid_loss": [],
        "valid_accuracy": [[0.5, 0.6, 0.8, None], [0.4, 0.8]],
    }  # fmt: skip
    epochs = next(p for p in pictures(Results.of(results)) if p.name == "epochs")
    left, right = epochs.figure.axes
    assert left.lines[0].get_xdata().tolist() == [0, 1, 2]
    assert left.lines[0].get_ydata().tolist() == pytest.approx([45, 70, 80])
    assert right.lines[1].get_ydata().tolist() == [0.5]
    assert epochs.svg().count("<svg") == 1


def test_what_an_arm_cost_is_its_pretraining_and_one_training(study: Study) -> None:
    results = study(kinds=("tfidf", "scratch", "full"), bases=("runs/ours", "elsewhere"), counts=(900,), seeds=2)
    results["pretraining"] = [{"name": "ours", "run": "runs/ours", "seconds": 540.0, "preparing_seconds": 60.0}]
    axis = next(p for p in pictures(Results.of(results)) if p.name == "costs").figure.axes[0]
    points = [line for line in axis.lines if line.get_marker() != "None"]
    training = (12.3 + 900 / 90) / 60
    assert [line.get_xdata()[0] for line in points] == pytest.approx(
        [0.4 / 60, training, training, 10 + training, training]
    )
    assert [line.get_markerfacecolor() == PAPER for line in points] == [False, False, False, False, True]
