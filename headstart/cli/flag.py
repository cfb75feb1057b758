"""What a flag is: an option of typer, and how its value becomes a setting. The flags themselves are in flags.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import Argument, BadParameter, Option


@dataclass(frozen=True)
class Flag:
    name: str  # --lr; of an argument its name in the help: CORPUS, or data
    help: str
    verbs: tuple[str, ...]
    setting: str = ""  # by its dotted name; none: the verb itself reads it
    kind: type = str
    many: bool = False  # may be given several times
    commas: bool = False  # several in one value
    required: bool = False
    default: Any = None
    least: float | None = None
    most: float | None = None
    ends: tuple[str, ...] = ()  # of the name of a file to write
    place: Callable[[Any], Any] | None = (
        None  # what is given as the setting has it, such as a whole path; of many, each
    )
    complete: Callable[[str], list[str]] | None = None
    needed: str = ""  # what a message calls it where it is missing
    settled: bool = False  # by a base, so that both cannot be given

    @property
    def key(self) -> str:
        """Its name as a parameter of a function."""
        return self.name.removeprefix("--").translate(str.maketrans("-|", "__", ".")).lower()

    @property
    def type(self) -> Any:
        kind: Any = list[self.kind] if self.many else self.kind  # type: ignore[name-defined]
        return kind if self.required or self.kind is bool or self.default is not None else kind | None

    def option(self, group: str | None = None) -> Any:
        if not self.name.startswith("-"):
            metavar = None if self.name.islower() else self.name
            return Argument(
                metavar=metavar, help=self.help, autocompletion=self.complete, show_default=bool(self.default)
            )
        return Option(
            self.name,
            help=self.help,
            min=self.least,
            max=self.most,
            callback=self.checked if self.ends else None,
            autocompletion=self.complete,
            rich_help_panel=group,
        )

    def checked(self, file: Path | None) -> Path | None:
        """A file must be called as its content is: of that kind, whatever its name."""
        if file is not None and file.suffix.lower() not in self.ends:
            raise BadParameter(f"'{file}' does not end with {' or '.join(self.ends)}")
        return file

    def value(self, given: Any) -> Any:
        """What the setting becomes; None: not given."""
        if given is None or given is False or ((self.place or self.many or self.commas) and not given):
            return None
        place = self.place or (lambda word: word)
        if self.many or self.commas:
            return tuple(map(place, [word.strip() for word in given.split(",")] if self.commas else given))
        return place(given)
