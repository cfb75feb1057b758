"""A hook of mkdocs: what the pages of docs/ hold that the site does not understand."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?:README|examples|tests|headstart|benchmarks|CONTRIBUTING)[^)]*\)")
INFO = re.compile(r"^(```\w+) [\w -]+$", re.MULTILINE)  # what a test makes of a fence: no-test, varies


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link to a file outside docs/ becomes the words of the link; a fence keeps its language only."""
    return INFO.sub(r"\1", OUTSIDE.sub(r"\1", markdown))
