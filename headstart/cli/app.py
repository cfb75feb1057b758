"""The application that the verbs join, and how a function becomes a verb with the flags of the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from headstart.cli.flag import Flag
from headstart.cli.flags import Given, flags_of
from headstart.cli.processes import follow
from headstart.cli.settings import nested_settings
from headstart.cli.terminal import guarded
from headstart.cli.usage import Application
from headstart.runs.place import here

if TYPE_CHECKING:
    from headstart.text.files import Reading

Answer = Callable[[Given], None]
PURPOSE = "Measure whether pretraining helps on your text, and get the model."
app = Application(help=PURPOSE)


def _show_version(asked: bool) -> None:
    if asked:
        from headstart import __version__

        typer.echo(f"headstart {__version__}")
        raise typer.Exit


@app.callback(help=PURPOSE)
def main(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def group(name: str, purpose: str, **how: Any) -> Application:
    """Verbs of two words."""
    made = Application(help=purpose, **how)
    app.add_typer(made, name=name)
    return made


def verb(joined: Application, name: str) -> Callable[[Answer], Answer]:
    """A function becomes a verb, with the arguments and flags that the table has for it."""

    def join(function: Answer) -> Answer:
        flags = sorted(flags_of(name), key=lambda row: row[0].name.startswith("-"))
        parameters = [_parameter(flag, group) for flag, group in flags]

        def run(**values: Any) -> None:
            given = Given(name, {flag.name: values[flag.key] for flag, _ in flags})
            if "--processes" in given.values and not given["--dry-run"] and not here().leads:
                follow(given["--out"])  # what the first process prepares
                return
            function(given)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        joined.command(name.split()[-1])(guarded(run))
        return function

    return join


def _parameter(flag: Flag, group: str) -> inspect.Parameter:
    default = inspect.Parameter.empty if flag.required else False if flag.kind is bool else flag.default
    annotation: Any = Annotated[flag.type, flag.option(group)]
    return inspect.Parameter(flag.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def reading_of(given: Given) -> Reading:
    """How a verb that has no job to configure reads files."""
    from headstart.data import LabelledConfig
    from headstart.schema import parse
    from headstart.text.files import Reading

    data: Mapping[str, Any] = nested_settings(given.settings(), None).get("data", {})
    known = {name: value for name, value in data.items() if name in LabelledConfig.model_fields}
    return Reading(parse(LabelledConfig, {"train": "", **known}))  # whose file it is makes no difference
