"""Text that others wrote, made fit to be shown: it can drive neither a terminal nor the order of what stands around it."""

from __future__ import annotations

import unicodedata
from typing import Any

_JOINERS = "\u200c\u200d"  # Persian and many emoji are spelt with them, and they move nothing
_NEVER = "\ufffe\uffff"  # no XML may hold these two, so no figure either


def shown(text: str) -> str:
    """`text` with control and direction characters made visible; line ends and tabs stay.

    >>> shown("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _hidden(c) else c for c in text)


def _hidden(c: str) -> bool:
    return c in _NEVER or (unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in _JOINERS and c not in "\n\t")


def is_whole(text: str) -> bool:
    """Whether it can be written as UTF-8: no half characters, which is what other bytes in a name become.

    >>> is_whole("a\\udce9b")
    False
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def all_shown(value: Any) -> Any:
    """Plain data with every text in it shown, keys too.

    >>> all_shown({"a\\x07": ["b\\u202e", 1.5, None]})
    {'a\\\\x07': ['b\\\\u202e', 1.5, None]}
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(str(key)): all_shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_shown(item) for item in value]
    return value
