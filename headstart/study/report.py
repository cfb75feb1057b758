"""One self-contained HTML page about a study: no script, no network, opens from disk. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.train.disk import write_file


def write_page(file: Path, facts: dict[str, Any], pictures: dict[str, str]) -> None:
    """`facts` through page.html.j2; `pictures` are SVG texts that we drew."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(loader=PackageLoader("headstart", "study"), autoescape=True, undefined=StrictUndefined)
    drawn = {name: Markup(svg[svg.index("<svg") :]) for name, svg in pictures.items()}
    page = environment.get_template("page.html.j2").render(**facts, pictures=drawn)
    write_file(file, page.encode())
