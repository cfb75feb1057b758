"""A lab: an experiment as one file of commands, with the figures that a reference reports beside what is measured. No torch.

    labs/<name>.toml
      title, question, reference, minutes, verdict     verdict: where a sentence of the results stands
      [rows]                       what the reference reports, part by part
      [[data]]                     what is needed: files below --data DIR, or packs; where from, under which licence
      [[step]]                     one headstart command each, and what --quick changes of it
      [[figure]]                   a figure of the reference, and where ours stands
      [[effect]]                   a difference that the lab is about, told with its interval (effect.py)
      [[table]]  [[picture]]  [[answer]]
      [[task]]                     what a student is asked (tasks.py); stubs and snapshots: the files of these

Places are written `step: path`, such as `study: arms[name=full].mean`: the name of a step and a path in its JSON.
In commands, {data} is the folder given with --data and {out} the folder of the lab; other names of files are relative to
the folder of the lab's file. rules.py says what a command may do.
"""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headstart.errors import ConfigError, DataError, did_you_mean, shortened
from headstart.labs.effect import Effect, Place
from headstart.labs.rules import check_command
from headstart.labs.tasks import Task, check_tasks
from headstart.schema import Frozen, parse, read_toml

Line = Annotated[str, Field(max_length=1000)]
MOST = 500  # figures, tables, pictures, answers
_FORMAT = re.compile(r",?(\.\d)?[defg%]?")  # of a number in an answer: digits, no widths


class Needed(Frozen):
    """Data or weights that a lab stands on."""

    what: Line
    files: tuple[Line, ...] = ()  # below --data DIR; none: a pack, which is fetched by its name
    source: Line  # where a user gets it
    licence: Line
    quick: Line = ""  # what stands in for it with --quick, so that it is not needed then
    packs: Line = ""  # what stands in for it without --data

    def wanted(self, given: bool, quick: bool) -> bool:
        """Whether its files have to be there."""
        return not (self.quick if quick else self.packs and not given)


class Step(Frozen):
    name: str = Field(pattern=r"^[a-z0-9-]+$", max_length=100)
    shows: Line  # what it is for, in a sentence
    command: str = Field(pattern=r"^headstart \S", max_length=10_000)
    # With --quick: a command in its place, or flags with other values; false: left out.
    quick: Annotated[str, Field(max_length=10_000)] | Literal[False] = ""
    packs: str = Field("", max_length=10_000)  # the same without --data, from packs
    data: bool = True  # false: left out with --data

    def words(self, quick: bool, given: bool = True) -> list[str]:
        """The command, word by word, without `headstart`; `given`: there is a --data."""
        changed = shlex.split((self.quick if quick else "" if given else self.packs) or "")
        words = shlex.split(self.command)
        if changed[:1] == ["headstart"]:
            return changed[1:]
        for flag, value in zip(changed[::2], changed[1::2], strict=True):
            place = words.index(flag) + 1 if words.count(flag) == 1 and flag != "--set" else len(words) + 1
            words[place - 1 : place + 1] = [flag, value]
        return words[1:]

    @model_validator(mode="after")
    def commands_are_words(self) -> Self:
        for command in (self.command, self.quick or "", self.packs):
            try:
                shlex.split(command)
            except ValueError as error:
                raise ValueError(f"'{command}' cannot be cut into words: {error}") from error
        return self

    @model_validator(mode="after")
    def quick_can_be_applied(self) -> Self:
        for name, value in (("quick", self.quick or ""), ("packs", self.packs)):
            changed = shlex.split(value)
            if changed[:1] != ["headstart"] and (len(changed) % 2 or any(not f.startswith("--") for f in changed[::2])):
                raise ValueError(f"{name} is a whole command, or flags with a value each, not '{value}'")
        return self

    @model_validator(mode="after")
    def commands_are_allowed(self) -> Self:
        for quick, given in ((False, True), (False, False), (True, False)):
            check_command(self.words(quick, given))
        return self


class Figure(Frozen):
    row: Line  # one of [rows]
    what: Line
    reference: int | float | Line = ""  # what the reference reports; "": nothing
    value: Place
    interval: Place = ""
    seeds: Place = ""
    better: Literal["higher", "lower", "equal", ""] = ""  # than the reference, if that can be said
    substitute: Line = ""  # what stands in for data or weights of the reference


class Table(Frozen):
    caption: Line
    columns: dict[Line, Place]  # each a list; of a list of lists, the mean over the first


class Picture(Frozen):
    file: str = Field(pattern=r"\.(png|svg)$", max_length=300)  # below the folder of the lab
    caption: Line

    @model_validator(mode="after")
    def file_is_of_the_lab(self) -> Self:
        if Path(self.file).is_absolute() or ".." in Path(self.file).parts:
            raise ValueError(f"the picture {shortened(self.file)} is not below the folder of the lab")
        return self


class Answer(Frozen):
    question: Line
    text: str = Field(max_length=10_000)  # with {name} or {name:.3f} for what was measured
    values: dict[Line, Place] = Field(min_length=1)  # an answer rests on something that was measured

    @model_validator(mode="after")
    def fields_are_numbers_and_words(self) -> Self:
        """A field is the name of a value, with its number of digits: no widths, which could fill the memory, no parts."""
        try:
            fields = [
                (name, how, spec or "") for _, name, spec, how in Formatter().parse(self.text) if name is not None
            ]
        except ValueError as error:
            raise ValueError(f"the answer {shortened(self.text)} cannot be filled in: {error}") from None
        for name, how, spec in fields:
            if name not in self.values:
                raise ValueError(f"the answer names {{{name[:100]}}}, which is not among its values")
            if how not in (None, "r") or not _FORMAT.fullmatch(spec) or not name.isidentifier():
                field = shortened(f"{{{name}{'!' + how if how else ''}{':' + spec if spec else ''}}}")
                raise ValueError(
                    f"the answer has {field}; a field is {{name}}, {{name:,}}, {{name:.3f}} or {{name:.0%}}"
                )
        return self


class Lab(Frozen):
    title: Line
    question: Line
    reference: Line = ""  # whose experiment the figures of the reference are of
    minutes: int | None = None  # what the whole of it took on two cores
    verdict: tuple[Place, ...] = Field((), max_length=MOST)
    goals: tuple[Line, ...] = Field((), max_length=MOST)  # what a student can do afterwards
    prerequisites: tuple[Line, ...] = Field((), max_length=MOST)
    stubs: tuple[Line, ...] = Field((), max_length=MOST)  # files for the student's folder, beside the lab's file
    snapshots: Line = ""  # JSON: arguments and right outputs of the functions of tasks
    rows: dict[Line, Line] = Field(default_factory=dict)
    data: tuple[Needed, ...] = Field((), max_length=MOST)
    step: tuple[Step, ...] = Field((), max_length=100)
    figure: tuple[Figure, ...] = Field((), max_length=MOST)
    effect: tuple[Effect, ...] = Field((), max_length=MOST)
    table: tuple[Table, ...] = Field((), max_length=MOST)
    picture: tuple[Picture, ...] = Field((), max_length=MOST)
    answer: tuple[Answer, ...] = Field((), max_length=MOST)
    task: tuple[Task, ...] = Field((), max_length=100)

    @model_validator(mode="after")
    def tasks_go_together(self) -> Self:
        check_tasks(self.task, self.stubs, self.snapshots)
        return self

    @model_validator(mode="after")
    def places_exist(self) -> Self:
        names = [step.name for step in self.step]
        if not names and not self.task:
            raise ValueError("a lab has one [[step]] or more, or one [[task]] or more")
        if len(set(names)) < len(names):
            raise ValueError(f"two steps have the same name ({', '.join(names)})")
        for place in self.places():
            step, mark, _ = place.partition(": ")
            if not mark or step not in names:
                raise ValueError(f"'{place}' names no step; a place is 'step: path'{did_you_mean(step, names)}")
        for figure in self.figure:
            if figure.row not in self.rows:
                raise ValueError(f"the figure '{figure.what}' is of row '{figure.row}', which is not in [rows]")
        return self

    def places(self) -> list[Place]:
        found = [place for figure in self.figure for place in (figure.value, figure.interval, figure.seeds) if place]
        found += [place for table in self.table for place in table.columns.values()]
        found += [place for effect in self.effect for place in effect.places()]
        return [*found, *(place for answer in self.answer for place in answer.values.values()), *self.verdict]

    def steps(self, quick: bool, given: bool) -> list[Step]:
        """`given`: there is a --data, which --quick does not read."""
        return [step for step in self.step if (step.quick is not False if quick else step.data or not given)]

    def part(self, quick: bool, given: bool) -> Lab:
        """What is run, without all that rests on a step that is left out."""
        steps = self.steps(quick, given)
        names = {step.name for step in steps}
        written = {word for step in steps for word in step.words(quick, given)}

        def kept(*places: Place) -> bool:
            return all(place.partition(": ")[0] in names for place in places)

        def drawn(file: str) -> bool:
            return any(f"{{out}}/{each}" in written for each in (Path(file), *Path(file).parents))

        return self.model_copy(
            update={
                "step": tuple(steps),
                "verdict": tuple(place for place in self.verdict if kept(place)),
                "figure": tuple(figure for figure in self.figure if kept(figure.value)),
                "effect": tuple(effect for effect in self.effect if kept(*effect.places())),
                "table": tuple(table for table in self.table if kept(*table.columns.values())),
                "picture": tuple(picture for picture in self.picture if not quick or drawn(picture.file)),
                "answer": tuple(answer for answer in self.answer if kept(*answer.values.values())),
            }
        )

    def commands(self, out: str, data: str, quick: bool) -> dict[str, list[str]]:
        """The words of each step's command, by its name, with the two folders in their places."""
        return {
            step.name: [word.replace("{out}", out).replace("{data}", data) for word in step.words(quick, bool(data))]
            for step in self.steps(quick, bool(data))
        }

    def check_data(self, data: Path | None, quick: bool) -> None:
        """Refuse to begin while a file that will be read is missing; all that are missing are reported at once."""
        missing = {
            needed: lost
            for needed in self.data
            if needed.wanted(data is not None, quick)
            and (lost := [f for f in needed.files if not (data and (data / f).exists())])
        }
        if missing:
            where = f"is not in {data}" if data else "is missing, as --data DIR is not given"
            stand_ins = not quick and all(needed.quick for needed in missing)
            way_out = " With --quick it needs no files of yours." if stand_ins else ""
            needs = [
                f"{needed.what} ({', '.join(lost)}). Where to get it: {needed.source}. Licence: {needed.licence}."
                for needed, lost in missing.items()
            ]
            raise DataError(f"What this lab needs {where}: {' '.join(needs)}{way_out}", "DATA_LAB")
        words = [word for step in self.steps(quick, data is not None) for word in step.words(quick, data is not None)]
        if data is None and any("{data}" in word for word in words):
            raise DataError("This lab reads files below --data DIR, which is not given.", "DATA_LAB")


def lab_files() -> dict[str, Path]:
    """The labs that come with Headstart, by name."""
    folder = Path(str(files("headstart").joinpath("labs")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def lab_path(name: str) -> Path:
    """The file of a lab: of one that comes with Headstart by its name, of the user's own by its path."""
    known = lab_files()
    path = known.get(name) or Path(name)
    if name not in known and path.suffix != ".toml":
        raise ConfigError(f"There is no lab '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return path


def open_lab(name: str) -> tuple[str, Lab]:
    """A lab, and what it is called."""
    path = lab_path(name)
    return path.stem, parse(Lab, read_toml(path), str(path))
