"""The verbs about translation: train, apply, evaluate and grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.app import group, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.grids import grid_study
from headstart.cli.learn import train as train_job
from headstart.cli.summary import show_translation_scores
from headstart.cli.terminal import show, show_json, show_notes, show_table, write_drawings
from headstart.errors import ModelError, UserError, did_you_mean
from headstart.quantities import counted

if TYPE_CHECKING:
    from headstart.use.translate import Attended

translate = group("translate", "One text to another: train, apply and score.")


@verb(translate, "translate train")
def train(given: Given) -> None:
    """Train an encoder and a decoder on PAIRS."""
    train_job("translate", given)


@verb(translate, "translate apply")
def apply(given: Given) -> None:
    """Translate each TEXT with the model in RUN."""
    from headstart.text.read import read_lines

    run, n_best, attention = given["RUN"], given["--n-best"], given["--attention"]
    asked = [*(given["TEXT..."] or []), *(read_lines(given["--file"]) if given["--file"] else [])]
    if not asked:
        raise UserError(
            f"Nothing to translate: '{run}' is taken for the run. Give the run first, then texts or --file."
        )
    split = _split(given)
    if attention and len(asked) > 1:
        raise UserError(f"--attention draws one translation; {len(asked)} texts were given.")
    from headstart.use.translate import LoadedTranslator

    translator = LoadedTranslator.load(run)
    records = translator.translate(asked, split, max(given["--beam"], n_best), n_best, given["--length-penalty"])
    if attention:
        _draw_attention(run, translator.attention(asked[0], split), attention)
    _note_lost(records)
    if given["--json"]:
        show_json([{key: record[key] for key in ("source", "translation", "score", "n_best")} for record in records])
        return
    for record in records:
        show(record["translation"])
        for other in record["n_best"] if n_best > 1 else ():
            show(f"  {other['score']:.4f}  {other['translation']}")
    if attention:
        show(f"attention: {attention}")


@verb(translate, "translate evaluate")
def evaluate(given: Given) -> None:
    """Score the model in RUN on PAIRS. Reports each score with its interval, and where it fails."""
    from headstart.hub.packs import located

    pairs = given["PAIRS"]
    if len(pairs) > 2:
        raise UserError(f"PAIRS are one table or two files, not {len(pairs)}.")
    split, reading = _split(given), reading_of(given)
    from headstart.use.translate import LoadedTranslator

    columns = given["--source-column"], given["--target-column"]
    scores = LoadedTranslator.load(given["RUN"]).evaluate(
        [located(path) for path in pairs], *columns, given["--beam"], reading, split, given["--length-penalty"]
    )
    show_notes(reading.notes())
    if given["--json"]:
        show_json(scores)
        return
    show_translation_scores("", scores)
    if left_out := scores["left_out"] + scores["blank_pairs"]:
        blank = f"{scores['blank_pairs']} with an empty side, the others too long"
        show(f"! {counted(left_out, 'pair', 'was', 'were')} left out: {blank}")
    if scores["fails"]["wrong"]:
        _show_failures(scores["fails"])


def _show_failures(fails: Mapping[str, Any]) -> None:
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


@verb(translate, "translate grid")
def grid(given: Given) -> None:
    """Train every model at every hidden size on every data set. Gives a table, curves, a heat map and a page."""
    from headstart.study.translate import TRANSLATORS

    grid_study(TRANSLATORS, given)


def _split(given: Given) -> str | None:
    split: str | None = given["--split"]
    if split not in (None, "texts", "words"):
        raise UserError(f"--split takes texts or words, not '{split}'.{did_you_mean(split, ('texts', 'words'))}")
    return split


def _note_lost(records: Sequence[Mapping[str, Any]]) -> None:
    """Report what the translations lack."""
    unread = list(dict.fromkeys(piece for record in records for piece in record["unknown"]))
    endless = [record["source"] for record in records if not record["finished"]]
    for found, what in ((unread, "This model has never seen"), (endless, "Cut off, because no end was found:")):
        if found:
            some = ", ".join(repr(text[:40]) for text in found[:10]) + (", ..." if len(found) > 10 else "")
            show_notes([f"{what} {some}."])


def _draw_attention(run: str, attended: list[Attended], file: Path) -> None:
    from headstart.show.page import page
    from headstart.show.view import Inspection, picture

    if not all(each.maps for each in attended):
        raise ModelError("This model has no attention: its decoder sees one state of the whole source, and no tokens.")
    views = [each.maps["cross"] for each in attended]
    told = [f"{each.source} → {each.translation}" for each in attended]
    seen = [Inspection(run, text, (view,)) for text, view in zip(told, views, strict=True)]
    kind = file.suffix.lower() if file.suffix.lower() in (".png", ".svg") else ".html"
    write_drawings({f"--{kind[1:]}": file}, lambda: page(seen), lambda: picture(views))
