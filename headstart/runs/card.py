"""Names and labels of others in a model card, which is Markdown: they are shown as they are and do nothing."""

from __future__ import annotations

import re

from headstart.hub.packs import name_of
from headstart.text.visible import shown

_MARKS = re.compile(
    r"[\\`*\[\]|#~!$]|(?<![^\W_])_|_(?![^\W_])|://|^[-+=]|^\d+(?=[.)])"
)  # _ inside a word marks nothing
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def plain(text: str) -> str:
    """`text` in one line of Markdown, without HTML, links or headings.

    >>> plain("<b>![x](http://a)\\n# b_c"), plain("my_reviews-2.csv")
    ('&lt;b&gt;\\\\!\\\\[x\\\\](http\\\\://a) \\\\# b_c', 'my_reviews-2.csv')
    """
    line = " ".join(shown(text).split())
    line = _MARKS.sub(lambda mark: mark[0] + "\\" if mark[0].isdigit() else "\\" + mark[0], line)
    return re.sub("[&<>]", lambda found: _HTML[found[0]], line)


def named(*paths: str) -> str:
    """The names of packs, and of files without the folders that they are in."""
    return ", ".join(plain(name_of(path)) for path in paths)
