"""Inspections on a page: one self-contained file that asks for nothing, or a fragment for a notebook. No torch.

Everything stands on the page without script, escaped by Jinja; the script only changes what is there, by its text and
by the strength of its colour. It may run because the page names its hash, and nothing else may.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from headstart.show.table import label
from headstart.text.visible import shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


class Shown(Protocol):
    """One text with its views; the template reads the rest."""

    @property
    def text(self) -> str: ...


def page(inspections: Sequence[Shown], back: tuple[str, str] | None = None) -> str:
    """One HTML file that holds all it needs, with any number of inspections; on a server, with a link (address, text) back."""
    script = _resource("view.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template("page.html.j2").render(
        title=inspections[0].text, inspections=inspections, back=back, script=_as_is(script), digest=digest, css=_as_is(_resource("view.css"))
    )  # fmt: skip


def fragment(inspections: Sequence[Shown]) -> str:
    """A part of another page, such as a notebook: no id that could be there twice, no style for anything else."""
    return _environment().get_template("fragment.html.j2").render(
        inspections=inspections, script=_as_is(_resource("view.js")), css=_as_is(_resource("view.css"))
    )  # fmt: skip


def script_json(data: Any) -> Markup:
    """`data` for a script element of type application/json, which nothing in it can end.

    >>> script_json({"token": "</script>"})
    Markup('{"token":"\\\\u003c/script\\\\u003e"}')
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return _as_is(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _as_is(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


@cache
def _resource(name: str) -> str:
    return files("headstart.show").joinpath(name).read_text("utf-8").strip()


@cache
def _environment() -> Environment:
    made = templates("show")
    made.filters |= {"label": label, "shown": shown, "json": script_json}
    return made


def templates(folder: str) -> Environment:
    """The templates of a folder of the package: every text is escaped, and an unknown name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("headstart", folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
