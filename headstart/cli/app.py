"""The application that the verbs join, and the flags that they share.

A flag that is not given stays None: defaults have one home, config.py. The help repeats them, because loading config.py
would make it slow; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from headstart.cli.complete import runs
from headstart.cli.settings import FLAGS, file_settings, has, nested_settings
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
NoVerify = Annotated[
    bool, Option("--no-verify", help="Take a model as it is, though its files are not those that were written.")
]  # `guarded` sees to it
Seed = Annotated[int | None, Option("--seed", help="Everything random follows from it. [default: 0]")]
Device = Annotated[str | None, Option("--device", help="cpu, cuda, mps. [default: cpu]")]
Threads = Annotated[int | None, Option("--threads", help="CPU threads. [default: what torch chooses]")]
Resume = Annotated[bool, Option("--resume", help="Go on with the run in --out.")]
DryRun = Annotated[
    bool, Option("--dry-run", help="Only say what the run would cost, after a few updates; nothing is written.")
]
Config = Annotated[
    str | None, Option("--config", help="Settings in a TOML file, such as config.toml of a run; flags win over it.")
]
Set = Annotated[list[str] | None, Option("--set", help="Any setting of config.toml: train.lr=0.001.")]
Encoding = Annotated[str | None, Option("--encoding", help="Of the text files. [default: utf-8]")]
BadBytes = Annotated[
    str | None, Option("--on-bad-bytes", help="fail, or replace: by U+FFFD, and counted. [default: fail]")
]
StripNul = Annotated[bool, Option("--strip-nul", help="Leave NUL characters out, and count them.")]
LongestLine = Annotated[
    int | None, Option("--max-line-bytes", help="Refuse a file with a longer line. [default: any length]")
]
Start = Annotated[
    str | None,
    Option(help="Token vectors before the first update: cooccurrence (counted), random or auto. [default: auto]"),
]
Vectors = Annotated[
    str | None,
    Option(
        help="Word vectors made elsewhere, beside the counted ones: a .vec file, a spaCy pipeline's folder, or a pack. [default: none]"
    ),
]
Teacher = Annotated[
    str | None,
    Option(
        help="What the objective distill learns from: minilm, a folder, hf:NAME or a run. [default: none]",
        autocompletion=runs,
    ),
]
Long = Annotated[
    str | None,
    Option(
        "--long",
        help="Texts longer than the context: truncate, or window (the mean over windows). [default: truncate]",
    ),
]
ClassWeights = Annotated[bool, Option("--class-weights", help="Rare classes count as much as common ones.")]
StrictLeakage = Annotated[
    bool, Option("--strict-leakage", help="Refuse test rows that also stand among the rows learned from.")
]
TextColumn = Annotated[
    str | None, Option("--text-column", help="Column that holds the text. [default: found by its name]")
]
LabelColumn = Annotated[
    str | None, Option("--label-column", help="Column that holds the label. [default: found by its name]")
]
SkipBlank = Annotated[bool, Option("--skip-blank", help="Leave rows without a text or a label out, and count them.")]
CleanLabels = Annotated[
    bool, Option("--clean-labels", help="Make labels one that differ only by white space or case, and count them.")
]
AnyLabels = Annotated[
    bool, Option("--any-labels", help="Take labels for classes that look like numbers, ids or lists.")
]
Batch = Annotated[int | None, Option("--batch-size", help="Examples in one forward pass. [default: 16]")]
Rate = Annotated[
    float | None, Option("--lr", help="Peak learning rate. [default: what suits the base: 0.0005 for one of ours]")
]
Pickle = Annotated[
    bool, Option("--allow-pickle", help="Open pickled weights of --base, should it have no others; tensors only.")
]
BaseToGoOn = Annotated[
    str | None,
    Option(
        "--base",
        help="Go on from a run, or from a model made elsewhere: a folder, minilm, smollm2, hf:NAME.",
        autocompletion=runs,
    ),
]
Context = Annotated[
    int | None, Option("--context", help="Most tokens of a text or block. [default: what the size has]")
]
Size = Annotated[
    str | None, Option("--size", help="nano, micro, mini, small or medium. [default: micro; classic has its own]")
]
Tokenizer = Annotated[
    str | None,
    Option(
        "--tokenizer",
        help="bpe, unigram, wordpiece, word, char; or a tokenizer.json, SentencePiece .model, or run. [default: bpe]",
    ),
]
Vocab = Annotated[int | None, Option("--vocab", help="Entries of the vocabulary. [default: what the text feeds]")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="A finished run directory.", autocompletion=runs)]


def job_config(
    kind: Any,
    given: dict[str, Any],
    settings: list[str] | None,
    file: str | None,
    out: str,
    resume: bool,
    needs: dict[str, str],
) -> Any:
    """The settings of a job: those given; with --resume, laid over those of the run, which has the last word."""
    from headstart.errors import UserError
    from headstart.runs.run import Run
    from headstart.schema import merge, parse

    if resume and file:
        raise UserError("A resumed run keeps its own settings. Leave out --config.")
    stored = file_settings(kind, file) if file else {}
    named = nested_settings(given, settings)
    if has(named, "epochs") and isinstance(stored.get("train"), dict):
        stored["train"].pop("steps", None)  # how long is said anew
    nested = nested_settings(given, settings, stored)
    if resume:
        asked = Run(Path(out)).asked(kind).model_dump()
        return parse(kind, merge(asked, nested), "the settings", FLAGS)
    missing = [name for key, name in needs.items() if not has(nested, key)]
    if missing:
        raise UserError(f"Missing {' and '.join(missing)}.")
    return parse(kind, nested, file or "the settings", FLAGS)


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


def reading_for(settings: dict[str, Any]) -> Reading:
    """How to read, for a verb that has no job to configure."""
    from headstart.config import LabelledConfig
    from headstart.schema import parse
    from headstart.text.files import Reading

    data = nested_settings(settings, None).get("data", {})
    return Reading(parse(LabelledConfig, {"train": "", **data}))  # whose file it is makes no difference


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
