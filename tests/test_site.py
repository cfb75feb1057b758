"""The hook that makes pages of docs/ into pages of the site."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
FENCE = re.compile(r"^```\w+ (?!title=)(.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_no_code_block_swallows_the_sections_behind_it(page: Path) -> None:
    """The site takes a fence with other words than a title for text, and all behind it for code."""
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "site_pages.py")
    assert spec
    assert spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert FENCE.findall(hook.on_page_markdown(page.read_text("utf-8"))) == []
