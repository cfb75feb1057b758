"""A hook of mkdocs: a link to a file outside docs/ becomes the words of the link, because the site does not hold that file."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(
        r"\[([^\]]+)\]\(\.\./(?:README|examples|tests|headstart|benchmarks|CONTRIBUTING)[^)]*\)", r"\1", markdown
    )
