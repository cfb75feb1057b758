"""Model cards hold other people's labels and names, and these stay text."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from headstart.config import FinetuneConfig
from headstart.jobs.finetune import finetune
from headstart.runs.card import named, plain
from headstart.schema import parse
from headstart.use.export import export_transformers

EVIL = [
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](http://evil/x.png)",
    "<http://evil>",
    "see http://evil and www.evil.com",
    "# heading",
    "a\n\n# heading\n\n---\nlicense: mit\n---",
    "- list",
    "1. list",
    "1) list",
    "+ list",
    "=====",
    "`code` ``` and ~~~",
    "**bold** _emphasis_ __strong__ ~~gone~~",
    "a | b | c",
    "&lt; &amp; &#60;",
    "\\<b> \\\\[a](b)",
    "$x$ $$y$$",
    "[^1] [x]: http://evil",
    "\u202eright to left\x1b[31m",
    "snake_case_name",
]


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("frame", ["{}", "- {}", "# A {}", "On {}, seed 1.", "| {} | 1 |"])
def test_whatever_a_name_is_it_is_rendered_as_its_own_text(text: str, frame: str) -> None:
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    written, harmless = (markdown.render(frame.format(name)) for name in (plain(text), "NAME"))
    before, after = harmless.split("NAME")
    assert written.startswith(before)
    assert written.endswith(after)
    inside = written[len(before) : len(written) - len(after)]
    assert "<" not in inside
    if not any(c in text for c in "\x1b\u202e"):  # these are shown by their numbers
        assert unescape(inside) == " ".join(text.split())


def test_a_name_is_told_without_its_folder_and_usual_ones_stay_as_they_are() -> None:
    assert named("/home/me/my_reviews-2.csv", "b (copy).txt") == "my_reviews-2.csv, b (copy).txt"


def test_the_card_of_a_classifier_with_evil_labels_is_two_paragraphs(tmp_path: Path) -> None:
    labels = ['<img src=x onerror="alert(1)">', "[a](http://evil)"]
    rows = [f'"film {i} of <b>","{labels[i % 2].replace(chr(34), chr(34) * 2)}"' for i in range(40)]
    data = tmp_path / "<i>rows*.csv"
    data.write_text("\n".join(["text,label", *rows]))
    cfg = parse(
        FinetuneConfig,
        {
            "base": "bert",
            "init": "scratch",
            "pool": "cls",  # which transformers has a class for
            "data": {"train": str(data)},
            "tokenizer": {"kind": "word"},
            "model": {"size": "nano"},
            "train": {"steps": 1, "threads": 1, "tensorboard": False},
        },
    )
    finetune(cfg, tmp_path / "run")
    pytest.importorskip("transformers")
    export_transformers(tmp_path / "run", tmp_path / "out")
    for file in (tmp_path / "run" / "model" / "README.md", tmp_path / "out" / "README.md"):
        html = MarkdownIt("commonmark", {"html": True}).render(file.read_text("utf-8").rpartition("---\n")[2])
        assert not any(mark in html for mark in ("<img", "<i>", "<a ", "href"))
        assert html.count("<h1>") == 1
        assert "&lt;img src=x" in html
