"""The application that the verbs join, the flags that they share, and settings made of flags.

A flag that is not given stays None: defaults have one home, config.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from headstart.cli.usage import Verbs

if TYPE_CHECKING:
    from headstart.text.files import Reading

app = typer.Typer(
    cls=Verbs,
    help="Tell whether pretraining helps on your text, and hand you the model.",
    rich_markup_mode=None,  # plain help: rich's takes as long to load as all the rest
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from headstart import __version__

        typer.echo(f"headstart {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Tell whether pretraining helps on your text, and hand you the model."""


Out = Annotated[str, Option("--out", help="The run directory to make.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress, no notes.")]
Debug = Annotated[bool, Option("--debug", help="Show the traceback of an error.")]
Seed = Annotated[int | None, Option("--seed", help="Everything random follows from it.")]
Device = Annotated[str | None, Option("--device", help="cpu, cuda, mps.")]
Threads = Annotated[int | None, Option("--threads", help="CPU threads.")]
Resume = Annotated[bool, Option("--resume", help="Go on with the run in --out.")]
DryRun = Annotated[
    bool, Option("--dry-run", help="Only say what the run would cost, after a few updates; nothing is written.")
]
Set = Annotated[list[str] | None, Option("--set", help="Any setting of config.toml: train.lr=0.001.")]
Encoding = Annotated[str | None, Option("--encoding", help="Of the text files; utf-8 unless given.")]
BadBytes = Annotated[str | None, Option("--on-bad-bytes", help="fail, or replace: by U+FFFD, and counted.")]
StripNul = Annotated[bool, Option("--strip-nul", help="Leave NUL characters out, and count them.")]
LongestLine = Annotated[int | None, Option("--max-line-bytes", help="Refuse a file with a longer line.")]
TextColumn = Annotated[str | None, Option("--text-column", help="Column that holds the text.")]
LabelColumn = Annotated[str | None, Option("--label-column", help="Column that holds the label.")]
Batch = Annotated[int | None, Option("--batch-size", help="Examples in one forward pass.")]
Rate = Annotated[float | None, Option("--lr", help="Peak learning rate.")]
Context = Annotated[int | None, Option("--context", help="Most tokens of a text or block.")]
Size = Annotated[str | None, Option("--size", help="nano, micro, mini, small or medium.")]
Tokenizer = Annotated[
    str | None,
    Option(
        "--tokenizer", help="bpe, unigram, wordpiece, word, char; or a tokenizer.json, SentencePiece .model, or run."
    ),
]
Vocab = Annotated[int | None, Option("--vocab", help="Entries of the vocabulary.")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="A finished run directory.", show_default=False)]


def job_config(
    kind: Any, given: dict[str, Any], settings: list[str] | None, out: str, resume: bool, needs: dict[str, str]
) -> Any:
    """The settings of a job: those given, or with --resume those of the run, which the given ones must agree with."""
    from headstart.config import differences, parse
    from headstart.errors import ConfigError, UserError
    from headstart.train.run import Run

    nested = nested_settings(given, settings)
    if resume:
        asked = Run(Path(out)).asked(kind)
        changed = differences(asked, nested)
        if changed:
            raise ConfigError(f"{out} was begun with other settings: {'; '.join(changed)}. Leave them out to resume.")
        return asked
    missing = [name for key, name in needs.items() if given[key] is None]
    if missing:
        raise UserError(f"Missing {' and '.join(missing)}.")
    return parse(kind, nested)


def reading_settings(
    encoding: str | None, on_bad_bytes: str | None, strip_nul: bool, max_line_bytes: int | None
) -> dict[str, Any]:
    return {
        "data.encoding": encoding,
        "data.on_bad_bytes": on_bad_bytes,
        "data.strip_nul": strip_nul or None,
        "data.max_line_bytes": max_line_bytes,
    }


def reading_for(settings: dict[str, Any]) -> Reading:
    """How to read, for a verb that has no job to configure."""
    from headstart.config import ReadConfig, parse
    from headstart.text.files import Reading

    return Reading(parse(ReadConfig, nested_settings(settings, None).get("data", {})))


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


def nested_settings(given: dict[str, Any], settings: list[str] | None) -> dict[str, Any]:
    from headstart.config import merge, with_override

    nested: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            for part in reversed(name.split(".")):
                value = {part: value}
            nested = merge(nested, value)
    for assignment in settings or []:
        nested = with_override(nested, assignment)
    return nested
