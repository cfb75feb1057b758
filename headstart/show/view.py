"""Views and inspections: plain data that can be printed, drawn, and put on a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

from headstart.show.page import fragment, page
from headstart.show.picture import WIDTH, Picture, style
from headstart.text.visible import shown


class Guess(TypedDict):
    """A token that a model expects, in the data of views."""

    token: str
    probability: float


class View(ABC):
    """Something that was seen in a model. Its text is `str(view)`; in a notebook it shows itself."""

    name: ClassVar[str]  # of the template, and the key in JSON

    @abstractmethod
    def data(self) -> Mapping[str, Any]:
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

    def payload(self) -> Mapping[str, Any]:
        """What the script of a page needs to know beside what stands on the page."""
        return {}

    def picture(self) -> Picture:
        return picture([self])

    def html(self) -> str:
        """A page of its own."""
        return Inspection("", "", (self,)).html()

    def _repr_html_(self) -> str:
        return Inspection("", "", (self,))._repr_html_()


@dataclass(frozen=True, repr=False)
class Inspection:
    """One text through one model, and all that was asked about it. It prints itself, draws itself, makes a page of itself, and shows itself in a notebook."""

    model: str  # the run, as it was given
    text: str
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> View:
        """The view of that name: `inspection["attention"]`."""
        return next(view for view in self.views if view.name == name)

    def data(self) -> dict[str, Any]:  # beside model, text and notes, a key for each view
        found: dict[str, Any] = {"model": self.model, "text": self.text, "notes": list(self.notes)}
        for view in self.views:
            same = sum(other.name == view.name for other in self.views)
            if same == 1:
                found[view.name] = view.data()
            else:  # a translator has several kinds of attention
                found.setdefault(view.name, []).append(view.data())
        return found

    def __str__(self) -> str:
        return "\n\n".join([shown(self.text), *self.notes, *map(str, self.views)])

    def __repr__(self) -> str:
        return str(self)  # so that a prompt shows it as a terminal does

    def picture(self) -> Picture:
        return picture(self.views)

    def html(self, back: tuple[str, str] | None = None) -> str:
        return page([self], back)

    def _repr_html_(self) -> str:
        return fragment([self])


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
