"""The verbs as commands: help by groups and without heavy imports, and wrong usage told like every other error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from headstart.cli.flags import GROUPS
from headstart.cli.terminal import fail, prepare_streams
from headstart.errors import DataError, UserError, did_you_mean
from headstart.text.visible import is_whole

F = TypeVar("F", bound=Callable[..., Any])


class Verb(TyperCommand):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the verb's own flags, then those of the table by their groups."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *GROUPS)}
        for param in self.get_params(ctx):
            own = "Other" if param.name == "help" else "Options"
            panel = "Arguments" if param.param_type_name == "argument" else getattr(param, "rich_help_panel", None)
            if record := param.get_help_record(ctx):
                sections[panel or own].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class Verbs(TyperGroup):
    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *others: Any, **extra: Any) -> None:
        """Run a verb and exit; whatever typer finds wrong becomes our message and exit code."""
        prepare_streams()
        args = list(sys.argv[1:] if args is None else args)
        try:
            for word in args:
                if not is_whole(word):
                    raise DataError(f"'{word}' holds bytes that are no characters. Is it UTF-8?", "DATA_ENCODING")
            done = super().main(args, "headstart", *others, **{**extra, "standalone_mode": False})
        except UserError as error:
            fail(error.code, str(error), error.exit_code, "--json" in args)
        except typer.TyperException as error:
            fail("USAGE", _sentence(error), 2, "--json" in args)
        sys.exit(done if isinstance(done, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            raise UserError(f"{ctx.command_path} has no verb '{name}'.{did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            if param.default is None and getattr(param, "is_flag", False):
                param.default = False  # typer sends None through pydantic, which doubles the time of --help
        return params


class Application(typer.Typer):
    """Verbs with plain help: rich's takes as long to load as all the rest."""

    def __init__(self, help: str, cls: type[Verbs] = Verbs) -> None:  # noqa: A002 (typer's name)
        super().__init__(cls=cls, help=help, rich_markup_mode=None, pretty_exceptions_enable=False)

    def command(self, name: str | None = None, **how: Any) -> Callable[[F], F]:
        return super().command(name, **{"cls": Verb, **how})


def _sentence(error: typer.TyperException) -> str:
    """What typer says, with the value that it leaves out, or with the nearest flag for one that is not there."""
    ctx, flag = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if ctx is None:
        return error.format_message()
    flags = [name for param in ctx.command.get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
    if flag is not None and flag not in flags:
        return f"{ctx.command_path} has no flag '{flag}'.{did_you_mean(flag, flags)}"
    got = [f" (got {problem['input']!r})" for problem in getattr(error.__cause__, "errors", list)()]
    return f"{error.format_message().rstrip('.')}{''.join(got)}. See {ctx.command_path} --help."
