"""What every display has in common: plain data that can be printed, drawn, and put on a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headstart.show.picture import WIDTH, Picture, style

if TYPE_CHECKING:
    from headstart.show.inspection import Inspection


class View(ABC):
    """Something that was seen in a model. Its text is `str(view)`; in a notebook it shows itself."""

    name: ClassVar[str]  # of the template, and the key in JSON

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        return str(self)  # so that a prompt shows it as a terminal does

    @property
    @abstractmethod
    def size(self) -> tuple[float, float]:
        """Width and height of the drawing in inches."""

    @abstractmethod
    def draw(self, figure: Any) -> None:
        """The drawing, on a figure of matplotlib or a part of one."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """What the drawing shows, in words."""

    def payload(self) -> dict[str, Any]:
        """What the script of a page needs to know beside what stands on the page."""
        return {}

    def picture(self) -> Picture:
        return picture([self])

    def html(self) -> str:
        """A page of its own."""
        return self._alone().html()

    def _repr_html_(self) -> str:
        return self._alone()._repr_html_()

    def _alone(self) -> Inspection:
        from headstart.show.inspection import Inspection  # which is made of views

        return Inspection("", "", (self,))


@style()
def picture(views: Sequence[View]) -> Picture:
    """The drawings of `views`, one below the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sizes = [view.size for view in views]
    width, height = max(WIDTH, *(w for w, _ in sizes)), sum(h for _, h in sizes)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(views), 1, height_ratios=[h for _, h in sizes], squeeze=False)[:, 0]
    for view, part in zip(views, parts, strict=True):
        view.draw(part)
    return Picture("-".join(view.name for view in views), " ".join(view.alt for view in views), figure)
