"""The page of a lab: one self-contained HTML file in the style of a study's page. No torch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.errors import ModelError
from headstart.labs.results import Results, shown, spread
from headstart.regular_file import read_regular
from headstart.runs.disk import write_file
from headstart.study.report import environment

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_BYTES = 20 << 20  # of one picture


def write_page(results: Results, out: Path, sheet: bool = False) -> Path:
    """report.html; or sheet.html, the same with room where the answers stand."""
    from jinja2 import ChoiceLoader, PackageLoader

    made = environment()
    assert made.loader is not None, "a study's templates, for its style and tables"
    made.loader = ChoiceLoader([PackageLoader("headstart", "labs"), made.loader])
    made.filters |= {"shown": shown, "spread": spread}
    pictures = [(embedded(out, picture), picture["caption"]) for picture in results["pictures"]]
    page = made.get_template("page.html.j2").render(results=results, pictures=pictures, sheet=sheet)
    file = out / ("sheet.html" if sheet else "report.html")
    write_file(file, page.encode(errors="backslashreplace"))
    return file


def embedded(out: Path, picture: Mapping[str, str]) -> Markup | None:
    """A figure as part of the page; None where the step did not draw it.

    An SVG is shown as an image too: scripts and events do not run in images, and nothing is fetched for them.
    """
    from markupsafe import Markup, escape

    path = out / picture["file"]
    if not path.exists():
        return None
    if not path.resolve().is_relative_to(out.resolve()):
        raise ModelError(f"{path} leads out of the folder of the lab, so it is not shown.", "LAB_PICTURE")
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise ModelError(f"{path} cannot be shown as a figure ({error.strerror}).", "LAB_PICTURE") from None
    kind = "svg+xml" if path.suffix == ".svg" else "png"
    if kind == "png" and not data.startswith(b"\x89PNG"):
        raise ModelError(f"{path} cannot be shown as a figure (not a PNG image).", "LAB_PICTURE")
    shown_as = base64.b64encode(data).decode()
    return Markup(f'<img src="data:image/{kind};base64,{shown_as}" alt="{escape(picture["caption"])}">')
