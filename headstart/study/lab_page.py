"""The page of a lab: one self-contained HTML file in the style of a study's page. No torch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.show.picture import inline
from headstart.study.lab_results import shown, spread
from headstart.study.report import environment
from headstart.train.disk import write_file

if TYPE_CHECKING:
    from markupsafe import Markup


def write_page(results: Mapping[str, Any], out: Path, sheet: bool = False) -> Path:
    """report.html; or sheet.html, the same with room where the answers stand."""
    made = environment()
    made.filters |= {"shown": shown, "spread": spread}
    pictures = [(_embedded(out, picture, n), picture["caption"]) for n, picture in enumerate(results["pictures"])]
    page = made.get_template("lab.html.j2").render(results=results, pictures=pictures, sheet=sheet)
    file = out / ("sheet.html" if sheet else "report.html")
    write_file(file, page.encode())
    return file


def _embedded(out: Path, picture: Mapping[str, str], n: int) -> Markup | None:
    """A picture as part of the page; None where the step did not draw it."""
    from markupsafe import Markup, escape

    path = out / picture["file"]
    if not path.exists():
        return None
    if path.suffix == ".svg":
        return inline(path.read_text("utf-8"), f"p{n}", picture["caption"])
    data = base64.b64encode(path.read_bytes()).decode()
    return Markup(f'<img src="data:image/png;base64,{data}" alt="{escape(picture["caption"])}">')
