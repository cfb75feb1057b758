"""The verbs about captions and images: search, and match train, compare, evaluate, classify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.cli.app import app, group, verb
from headstart.cli.embed import holds_texts, queries, search_texts
from headstart.cli.flags import Given
from headstart.cli.grids import grid_study
from headstart.cli.learn import train as train_job
from headstart.cli.settings import nested_settings, placed
from headstart.cli.summary import show_recalls
from headstart.cli.terminal import Bar, accuracy_line, show, show_json, show_notes, write_drawings
from headstart.errors import UserError
from headstart.quantities import counted

MOST_DRAWN = 200  # images on one sheet; it is drawn in seconds, and no side is longer than a PNG may be

match = group("match", "Captions and images: train, score and classify.")


@verb(app, "search")
def search(given: Given) -> None:
    """Find the IMAGES or TEXTS that fit each QUERY best. Texts by embeddings, with BM25 beside them."""
    from headstart.images.read import bad_notes
    from headstart.jobs.default_matcher import default_matcher
    from headstart.show.page import page
    from headstart.show.view import Inspection, picture
    from headstart.use.search import ImageFolder, ImageSearch, check_captions

    captions, png, html, top = queries(given), given["--png"], given["--html"], given["--top"]
    if holds_texts(given["IMAGES|TEXTS"]):
        search_texts(given, captions)
        return
    if png and len(captions) * top > MOST_DRAWN:
        raise UserError(f"--png draws at most {MOST_DRAWN} images: give a smaller --top, or write a page with --html.")
    bar = Bar(given["--quiet"])
    check_captions(captions)
    folder = ImageFolder.open(given["IMAGES|TEXTS"], bar)
    wanted = folder.file(given["--target"]) if given["--target"] else ""
    name = given["--model"] or default_matcher(folder.path, bar)
    found = ImageSearch.within(folder, name, given["--strict"], bar)
    show_notes(bad_notes(found.bad), given["--quiet"])
    edits = found.edits(wanted, captions) if wanted else None
    sheets = found.find(captions, top, bool(png or html), wanted)
    views = [*([edits] if edits else []), *sheets]
    seen = [
        *([Inspection(name, edits.summary, (edits,))] if edits else []),
        *(Inspection(name, s.caption, (s,)) for s in sheets),
    ]
    write_drawings(given.values, lambda: page(seen), lambda: picture(views))
    if given["--json"]:
        show_json(_records(edits, sheets))
        return
    show("\n\n".join(map(str, views)))
    for file in filter(None, (png, html)):
        show(f"contact sheet: {file}")


def _records(edits: Any, sheets: Any) -> Any:
    if not edits:
        return [{"caption": sheet.caption, **each.data()} for sheet in sheets for each in sheet.found]
    told = edits.data()
    for record, sheet in zip(told["captions"], sheets, strict=True):
        record["found"] = sheet.data()["found"]
    return told


@verb(match, "match train")
def train(given: Given) -> None:
    """Train a text tower and an image tower to agree on which captions and images belong together."""
    train_job("match", given)


@verb(match, "match compare")
def compare(given: Given) -> None:
    """Compare frozen and tuned towers, or towers with each other, on the same splits of the images."""
    from headstart.study.match import MATCHERS

    grid_study(MATCHERS, given)


@verb(match, "match evaluate")
def evaluate(given: Given) -> None:
    """Score the matcher in RUN on PAIRS: recall both ways, with intervals, beside what guessing would score."""
    from headstart.data import CaptionsConfig
    from headstart.images.captions import blank_notes
    from headstart.images.read import bad_notes
    from headstart.schema import parse
    from headstart.use.match import evaluate as scores_on

    settings = {**given.settings(), "data.pairs": placed(given["PAIRS"])}
    data = parse(CaptionsConfig, nested_settings(settings, None)["data"])
    scores = scores_on(given["RUN"], data, Bar(given["--quiet"]))
    show_notes([*bad_notes(scores["bad_images"]), *blank_notes(scores["blank_rows"])], given["--quiet"])
    if given["--json"]:
        show_json(scores)
    else:
        show_recalls("", scores)
        _show_trained_on(scores["trained_on"], scores["images"])


@verb(match, "match classify")
def classify(given: Given) -> None:
    """Label IMAGES with the matcher in RUN, by the names of the labels alone."""
    from headstart.images.read import bad_notes
    from headstart.use.match import TEMPLATES
    from headstart.use.match import classify as labelled

    names = [name.strip() for name in (given["--labels"] or "").split(",") if name.strip()]
    templates = given["--template"] or TEMPLATES
    result = labelled(given["RUN"], given["IMAGES"], names, templates, given["--strict"], Bar(given["--quiet"]))
    show_notes(bad_notes(result["bad_images"]), given["--quiet"])
    if given["--json"]:
        show_json(result)
        return
    for each in result["images"]:
        show(f"{each['label']}\t{each['probabilities'][each['label']]:.2f}\t{each['file']}")
    if result["scores"]:
        show(accuracy_line("accuracy", result["scores"]))
        _show_trained_on(result["trained_on"], len(result["images"]))


def _show_trained_on(part: Mapping[str, int], images: int) -> None:
    if any(part.values()):
        show(
            f"! {part['train']:,} of these {counted(images, 'image')} were trained on, and {part['valid']:,} more chose the "
            "best step: new images would be harder."
        )
