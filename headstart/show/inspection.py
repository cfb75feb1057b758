"""One text through one model, and all that was asked about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.show.page import fragment, page
from headstart.show.picture import Picture
from headstart.show.view import View, picture
from headstart.text.visible import shown


@dataclass(frozen=True, repr=False)
class Inspection:
    """It prints itself, draws itself, makes a page of itself, and shows itself in a notebook."""

    model: str  # the run, as it was given
    text: str
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> View:
        """The view of that name: `inspection["attention"]`."""
        return next(view for view in self.views if view.name == name)

    def data(self) -> dict[str, Any]:
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

    def html(self) -> str:
        return page([self])

    def _repr_html_(self) -> str:
        return fragment([self])
