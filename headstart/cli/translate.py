"""The verbs of translation: train, apply, evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from headstart.cli.app import (
    BadBytes,
    Config,
    Debug,
    Device,
    DryRun,
    Encoding,
    Json,
    LongestLine,
    NoVerify,
    Out,
    Quiet,
    Resume,
    RunArgument,
    Seed,
    Set,
    StripNul,
    Threads,
    app,
    job_config,
    reading_for,
    reading_settings,
    training_settings,
)
from headstart.cli.grids import DryStudy, Jobs, grid_study
from headstart.cli.learn import show_estimate
from headstart.cli.settings import placed
from headstart.cli.terminal import Bar, guarded, show, show_json, show_notes, show_table
from headstart.cli.usage import Verbs, ends
from headstart.quantities import counted, duration

if TYPE_CHECKING:
    from headstart.use.translate import Attended

translate = typer.Typer(cls=Verbs, help="One text to another: train, apply and score.", rich_markup_mode=None)
app.add_typer(translate, name="translate")

SourceColumn = Annotated[
    str | None, Option("--source-column", help="Column that holds the source. [default: found by its name]")
]
TargetColumn = Annotated[
    str | None, Option("--target-column", help="Column that holds the target. [default: found by its name]")
]
Split = Annotated[str | None, Option("--split", help="texts or words. [default: as in training]")]
LengthPenalty = Annotated[
    float,
    Option(
        "--length-penalty",
        min=0.0,
        help="Scores are divided by length to this power; 0 favours short translations.",
    ),
]


@translate.command("train")
@guarded
def train(
    pairs: Annotated[
        list[str] | None,
        Argument(metavar="PAIRS", help="One .tsv, .csv, .jsonl or .txt of pairs, or two files, line by line."),
    ] = None,
    out: Out = "runs/translator",
    model: Annotated[
        str | None,
        Option(help="gru, lstm, gru-additive, lstm-additive, attention or transformer. [default: transformer]"),
    ] = None,
    hidden: Annotated[int | None, Option(help="Width of the states. [default: 64]")] = None,
    level: Annotated[str | None, Option(help="What a token is: char, bpe or word. [default: char]")] = None,
    target_level: Annotated[
        str | None, Option(help="The same, for the target. [default: char; as --level if that is given]")
    ] = None,
    epochs: Annotated[int | None, Option(help="Times through the training pairs. [default: 20]")] = None,
    batch_size: Annotated[int | None, Option(help="Pairs in one forward pass. [default: 64]")] = None,
    lr: Annotated[float | None, Option(help="Peak learning rate. [default: 0.005]")] = None,
    context: Annotated[
        int | None, Option(help="Most tokens of a text; longer pairs are left out. [default: what the model has]")
    ] = None,
    split: Annotated[
        str | None, Option(help="texts, or words: a text is translated word by word. [default: texts]")
    ] = None,
    sample: Annotated[
        list[str] | None,
        Option(help="Text to translate after each evaluation; may be given several times. [default: validation rows]"),
    ] = None,
    hold_out: Annotated[
        list[str] | None, Option(help="A source never to learn from; may be given several times. [default: none]")
    ] = None,
    beam: Annotated[int | None, Option(help="Beams of the scores at the end. [default: 1]")] = None,
    valid: Annotated[
        list[str] | None, Option(help="Validation pairs, or given twice. [default: held out from PAIRS]")
    ] = None,
    test: Annotated[list[str] | None, Option(help="Test pairs, or given twice. [default: held out from PAIRS]")] = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    file: Config = None,
    settings: Set = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train an encoder and a decoder on PAIRS."""
    from headstart.config import TranslateConfig

    given: dict[str, Any] = {
        "split": split,
        "samples": tuple(sample) if sample else None,
        "epochs": epochs,
        "beam": beam,
        "data.pairs": _placed(pairs),
        "data.valid": _placed(valid),
        "data.test": _placed(test),
        "data.source_column": source_column,
        "data.target_column": target_column,
        "data.hold_out": tuple(hold_out) if hold_out else None,
        "source.kind": level,
        "target.kind": target_level,
        "model.kind": model,
        "model.hidden": hidden,
        "model.context": context,
    }
    given |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    given |= training_settings(batch_size, lr, seed, device, threads)
    needs = {"data.pairs": "PAIRS: a table of pairs, or two files"}
    config = job_config(TranslateConfig, given, settings, file, out, resume, needs)
    if dry_run:
        show_estimate(config, resume, as_json)
        return
    from headstart.jobs.translate import translate as job

    result = job(config, out, resume, Bar(quiet))
    if as_json:
        show_json(result)
        return
    show(
        f"{result['run']}: {result['kind']}, hidden size {result['hidden']}, {result['parameters']:,} parameters, "
        f"{counted(result['steps'], 'step')}, {duration(result['seconds'])}"
    )
    for name, part in (("valid", "validation"), ("test", "test")):
        if result[name]:
            show()
            _show_scores(part, result[name])
            learned = result["overlapping"][name]
            if learned:
                show(f"! {counted(learned, f'{part} pair', 'has', 'have')} a source that was also learned from.")
    show()
    for source, said in result["samples"].items():
        show(f"{source} -> {said}")


@translate.command("apply")
@guarded
def apply(
    run: RunArgument,
    texts: Annotated[
        list[str] | None, Argument(metavar="TEXT...", help="Texts to translate.", show_default=False)
    ] = None,
    file: Annotated[str | None, Option(help="Texts to translate: one a line.")] = None,
    split: Split = None,
    beam: Annotated[int, Option(min=1, help="Translations followed at once; 1 is greedy.")] = 1,
    n_best: Annotated[int, Option(min=1, help="Show this many of them, and follow as many at least.")] = 1,
    length_penalty: LengthPenalty = 1.0,
    attention: Annotated[
        Path | None,
        Option(
            help="Draw what each token looked at to this .png, .svg or .html file.",
            callback=ends(".png", ".svg", ".html", ".htm"),
        ),
    ] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Translate each TEXT with the model in RUN."""
    from headstart.errors import UserError
    from headstart.text.read import read_lines

    asked = [*(texts or []), *(read_lines(file) if file else [])]
    if not asked:
        raise UserError(
            f"Nothing to translate: '{run}' is taken for the run. Give the run first, then texts or --file."
        )
    _check_split(split)
    if attention and len(asked) > 1:
        raise UserError(f"--attention draws one translation; {len(asked)} texts were given.")
    from headstart.use.translate import LoadedTranslator

    translator = LoadedTranslator.load(run)
    records = translator.translate(asked, split, max(beam, n_best), n_best, length_penalty)
    if attention:
        _draw_attention(run, translator.attention(asked[0], split), attention)
    _note_lost(records)
    if as_json:
        show_json([{key: record[key] for key in ("source", "translation", "score", "n_best")} for record in records])
        return
    for record in records:
        show(record["translation"])
        for other in record["n_best"] if n_best > 1 else ():
            show(f"  {other['score']:.4f}  {other['translation']}")
    if attention:
        show(f"attention: {attention}")


@translate.command("evaluate")
@guarded
def evaluate(
    run: RunArgument,
    pairs: Annotated[
        list[str], Argument(metavar="PAIRS", help="One table of pairs, or two files.", show_default=False)
    ],
    split: Split = None,
    beam: Annotated[int, Option(min=1, help="Translations followed at once; 1 is greedy.")] = 1,
    length_penalty: LengthPenalty = 1.0,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Score the model in RUN on PAIRS. Each score has its interval; tells where it fails."""
    from headstart.errors import UserError
    from headstart.hub.packs import located

    if len(pairs) > 2:
        raise UserError(f"PAIRS are one table or two files, not {len(pairs)}.")
    _check_split(split)
    from headstart.use.translate import LoadedTranslator

    reading = reading_for(reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes))
    where = [located(path) for path in pairs]
    translator = LoadedTranslator.load(run)
    scores = translator.evaluate(where, source_column, target_column, beam, reading, split, length_penalty)
    show_notes(reading.notes())
    if as_json:
        show_json(scores)
        return
    _show_scores("", scores)
    left_out = scores["left_out"] + scores["blank_pairs"]
    if left_out:
        show(
            f"! {counted(left_out, 'pair', 'was', 'were')} left out: {scores['blank_pairs']} with an empty side, the others too long"
        )
    fails: Mapping[str, Any] = scores["fails"]
    if not fails["wrong"]:
        return
    for name, key in (("length of the source", "length"), ("it begins with", "start")):
        show()
        groups = fails[f"by_{key}"]
        show_table(
            [name, "sources", "wrong", "part"],
            [[g[key], str(g["rows"]), str(g["wrong"]), f"{g['error']:.3f}"] for g in groups],
            right=(1, 2, 3),
        )
    show()
    show_table(
        ["worst", "said", "should be", "edits"],
        [[w["source"], w["translation"], w["reference"], str(w["edits"])] for w in fails["worst"]],
        right=(3,),
    )


@translate.command("grid")
@guarded
def grid(
    pairs: Annotated[
        list[str], Argument(metavar="PAIRS...", help="Tables of pairs, one a data set.", show_default=False)
    ],
    out: Annotated[str, Option(help="The folder of the study.")] = "studies/ladder",
    model: Annotated[
        list[str] | None,
        Option(help="May be given several times. [default: gru, gru-additive, attention, transformer]"),
    ] = None,
    hidden: Annotated[list[int] | None, Option(help="May be given several times. [default: 32, 64]")] = None,
    seeds: Annotated[int | None, Option(help="Runs of each. [default: 3]")] = None,
    epochs: Annotated[int | None, Option(help="Times through the training pairs. [default: 20]")] = None,
    threads: Threads = None,
    settings: Set = None,
    jobs: Jobs = 1,
    dry_run: DryStudy = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train every model at every hidden size on every data set. Gives a table, curves, a heat map and a page."""
    from headstart.cli.settings import nested_settings
    from headstart.study.translate import TRANSLATORS

    given: dict[str, Any] = {
        "data": [placed(path) for path in pairs],
        "models": model or None,
        "hidden": hidden or None,
        "seeds": seeds,
        "settings": nested_settings({"epochs": epochs, "train.threads": threads}, settings) or None,
    }
    grid_study(TRANSLATORS, given, out, jobs, dry_run, as_json, quiet)


def _check_split(split: str | None) -> None:
    from headstart.errors import UserError, did_you_mean

    if split not in (None, "texts", "words"):
        raise UserError(f"--split takes texts or words, not '{split}'.{did_you_mean(split, ('texts', 'words'))}")


def _note_lost(records: Sequence[Mapping[str, Any]]) -> None:
    """Say what the translations lack."""
    unknown_pieces = list(dict.fromkeys(piece for record in records for piece in record["unknown"]))
    endless = [record["source"] for record in records if not record["finished"]]
    for found, what in ((unknown_pieces, "This model has never seen"), (endless, "Cut off, because no end was found:")):
        if found:
            some = ", ".join(repr(text[:40]) for text in found[:10]) + (", ..." if len(found) > 10 else "")
            show_notes([f"{what} {some}."])


def _draw_attention(run: str, attended: list[Attended], file: Path) -> None:
    from headstart.errors import ModelError
    from headstart.runs.disk import write_file
    from headstart.show.page import page
    from headstart.show.view import Inspection, picture

    if not all(each.maps for each in attended):
        raise ModelError("This model has no attention: its decoder sees one state of the whole source, and no tokens.")
    views = [each.maps["cross"] for each in attended]
    match file.suffix.lower():
        case ".png":
            write_file(file, picture(views).png())
        case ".svg":
            write_file(file, picture(views).svg().encode())
        case _:
            told = [f"{each.source} → {each.translation}" for each in attended]
            seen = [Inspection(run, text, (view,)) for text, view in zip(told, views, strict=True)]
            write_file(file, page(seen).encode())


def _placed(paths: list[str] | None) -> tuple[str, ...] | None:
    return tuple(map(placed, paths)) if paths else None


def _show_scores(part: str, scores: Mapping[str, Any]) -> None:
    named = {
        "exact match": scores["exact_match"],
        "character error rate": scores["character_error_rate"],
        "token error rate": scores["token_error_rate"],
        f"BLEU{' (of characters)' * ('tok:char' in scores['bleu']['signature'])}": scores["bleu"],
        "chrF": scores["chrf"],
    }
    loss = {"value": scores["loss"], "interval": scores["loss_interval"]}
    rows = [
        [name, f"{score['value']:.4f}", _interval(score["interval"])]
        for name, score in {"loss (nats a target token)": loss, **named}.items()
    ]
    title = f"{part}, {scores['rows']} sources" if part else f"{scores['rows']} sources"
    show_table([title, "", "95 % interval"], rows, right=(1,))


def _interval(interval: list[float] | None) -> str:
    return f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else "not known"
