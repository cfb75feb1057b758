"""How every figure is drawn: its style, its two formats, and its place in a page. No torch, and matplotlib only when drawing.

Every colour has a contrast of 3 to 1 or more on white and on nearly black.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from markupsafe import Markup

INK, PAPER = "#1b1d21", "#fffffe"  # two colours that nothing else has: a page puts its own in their place
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a6761d", "#8c6bb1")  # the first four: Okabe and Ito, 2008
WIDTH = 7.2  # inches
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8, "axes.labelsize": 8,
    "axes.titlesize": 8.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5, "legend.fontsize": 8, "legend.frameon": False, "lines.linewidth": 1.6,
    "lines.markersize": 4.5, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.facecolor": "none", "figure.facecolor": PAPER, "axes.linewidth": 0.6,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "figure.constrained_layout.w_pad": 0.09, "figure.constrained_layout.h_pad": 0.06, "text.hinting": "none", "svg.fonttype": "none", "svg.hashsalt": "headstart", "text.parse_math": False,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Our settings and no others, while a figure is drawn and while it is written."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a PNG shows a box; an SVG leaves it to the reader
        yield


@dataclass(frozen=True)
class Picture:
    """A drawn figure; `alt` says in words what it shows."""

    name: str
    alt: str
    figure: Any

    @style()
    def svg(self) -> str:
        file = io.StringIO()
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")  # everything has found its place: once is enough for both formats
        self.figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return file.getvalue()

    @style()
    def png(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=180)
        return file.getvalue()


def axes(count: int, width: float, height: float) -> tuple[Any, Sequence[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no display is needed, and pyplot's global state is left alone
    return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]


def brief(name: str, most: int = 24) -> str:
    """`name` on one line and not too long for a figure.

    >>> brief("a very long name indeed", 10)
    'a very lo…'
    """
    line = " ".join(name.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def inline(svg: str, mark: str, alt: str) -> Markup:
    """A figure of ours as part of a page: its ids its own, its ink and paper the page's, described by `alt`."""
    from markupsafe import Markup

    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):  # a style here would hold for the whole page
                parent.remove(child)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{mark}-{value}")
            else:
                element.set(key, _repainted(value.replace("url(#", f"url(#{mark}-")))
            if key == f"{{{XLINK}}}href":
                element.set(key, value.replace("#", f"#{mark}-"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-labelledby": f"{mark}-title", "stroke-linejoin": "round"}
    title = ElementTree.Element(f"{{{SVG}}}title", {"id": f"{mark}-title"})
    title.text = alt
    root.insert(0, title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _repainted(value: str) -> str:
    return value.replace(INK, "currentColor").replace(PAPER, "var(--paper, none)")
