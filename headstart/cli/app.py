"""The application that the verbs join, and how a function becomes a verb with the flags of the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option

from headstart.cli.complete import runs
from headstart.cli.flags import GROUPS, Given, flags_of, option
from headstart.cli.settings import nested_settings
from headstart.cli.terminal import guarded
from headstart.cli.usage import Application

if TYPE_CHECKING:
    from headstart.text.files import Reading

F = TypeVar("F", bound=Callable[..., None])
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


def verb(joined: Application, name: str) -> Callable[[F], F]:
    """A function becomes a verb: with its own parameters, and the flags of the table, which it gets as `given`."""

    def join(function: F) -> F:
        own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "given"]
        flags = list(flags_of(name))
        kind = inspect.Parameter.KEYWORD_ONLY  # whatever has no default may stand after what has one
        shared = [
            inspect.Parameter(
                flag.key, kind, default=False if flag.kind is bool else flag.default, annotation=Annotated[flag.type, flag.option(group)]
            )
            for flag, group in flags
        ]  # fmt: skip

        def run(**values: Any) -> None:
            given = Given(name, {flag.name: values.pop(flag.key) for flag, _ in flags})
            function(**values, given=given)

        ordered = sorted([*(p.replace(kind=kind) for p in own), *shared], key=_place)
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in ordered}
        joined.command(name.split()[-1])(guarded(run))
        return function

    return join


def _place(parameter: inspect.Parameter) -> int:
    """Arguments first, then the verb's own flags, then group by group."""
    (info,) = parameter.annotation.__metadata__
    if isinstance(info, typer.models.ArgumentInfo):
        return 0
    return 2 + list(GROUPS).index(info.rich_help_panel) if info.rich_help_panel else 1


# Flags of the table for verbs with a signature of their own.
Json = Annotated[bool, option("--json")]
Quiet = Annotated[bool, option("--quiet")]
Debug = Annotated[bool, option("--debug")]
NoVerify = Annotated[bool, option("--no-verify")]
Device = Annotated[str | None, option("--device")]
Threads = Annotated[int | None, option("--threads")]
Set = Annotated[list[str] | None, option("--set")]
Encoding = Annotated[str | None, option("--encoding")]
BadBytes = Annotated[str | None, option("--on-bad-bytes")]
StripNul = Annotated[bool, option("--strip-nul")]
LongestLine = Annotated[int | None, option("--max-line-bytes")]
Start = Annotated[str | None, option("--start")]
Vectors = Annotated[str | None, option("--vectors")]
Teacher = Annotated[str | None, option("--teacher")]
Long = Annotated[str | None, option("--long")]
ClassWeights = Annotated[bool, option("--class-weights")]
StrictLeakage = Annotated[bool, option("--strict-leakage")]
TextColumn = Annotated[str | None, option("--text-column")]
LabelColumn = Annotated[str | None, option("--label-column")]
SkipBlank = Annotated[bool, option("--skip-blank")]
CleanLabels = Annotated[bool, option("--clean-labels")]
AnyLabels = Annotated[bool, option("--any-labels")]
Batch = Annotated[int | None, option("--batch-size", "finetune")]
Context = Annotated[int | None, option("--context")]
Size = Annotated[str | None, option("--size")]
Vocab = Annotated[int | None, option("--vocab")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="A finished run directory.", autocompletion=runs)]


def reading_settings(
    encoding: str | None, on_bad_bytes: str | None, strip_nul: bool, max_line_bytes: int | None
) -> dict[str, Any]:
    return {
        "data.encoding": encoding,
        "data.on_bad_bytes": on_bad_bytes,
        "data.strip_nul": strip_nul or None,
        "data.max_line_bytes": max_line_bytes,
    }


def row_settings(skip_blank: bool, clean_labels: bool, any_labels: bool = False) -> dict[str, Any]:
    return {
        "data.skip_blank": skip_blank or None,
        "data.clean_labels": clean_labels or None,
        "data.any_labels": any_labels or None,
    }


def training_settings(
    batch_size: int | None, lr: float | None, seed: int | None, device: str | None, threads: int | None
) -> dict[str, Any]:
    return {
        "train.batch_size": batch_size,
        "train.lr": lr,
        "train.seed": seed,
        "train.device": device,
        "train.threads": threads,
    }


def reading_of(given: Given) -> Reading:
    """How a verb that has no job to configure reads files."""
    from headstart.config import LabelledConfig
    from headstart.schema import parse
    from headstart.text.files import Reading

    data: Mapping[str, Any] = nested_settings(given.settings(), None).get("data", {})
    known = {name: value for name, value in data.items() if name in LabelledConfig.model_fields}
    return Reading(parse(LabelledConfig, {"train": "", **known}))  # whose file it is makes no difference
