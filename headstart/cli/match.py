"""The verbs about captions and pictures: search, and match train, compare, evaluate, classify."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from headstart.cli.app import (
    BadBytes,
    Config,
    Debug,
    Device,
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
    reading_settings,
    training_settings,
)
from headstart.cli.complete import runs
from headstart.cli.grids import DryStudy, Jobs, grid_study
from headstart.cli.settings import nested_settings, placed
from headstart.cli.terminal import Bar, guarded, show, show_json, show_notes, show_table
from headstart.cli.usage import Verbs, ends
from headstart.errors import UserError
from headstart.quantities import counted, duration

MOST_DRAWN = 200  # images on one sheet; it is drawn in seconds, and no side is longer than a PNG may be

match = typer.Typer(cls=Verbs, help="Captions and pictures: train, score and classify.", rich_markup_mode=None)
app.add_typer(match, name="match")

Images = Annotated[
    str | None,
    Option("--images", help="Folder of the files. [default: images/ beside PAIRS, or the folder of PAIRS]"),
]
FileColumn = Annotated[str | None, Option("--file-column", help="Column of the files. [default: found by its name]")]
CaptionColumn = Annotated[
    str | None, Option("--caption-column", help="Column of the captions. [default: found by its name]")
]
Strict = Annotated[bool, Option("--strict", help="Refuse images that cannot be used, instead of leaving them out.")]
Folder = Annotated[
    str, Argument(metavar="IMAGES", help="A folder of .png, .jpg and .webp files, or a pack.", show_default=False)
]


@app.command("search")
@guarded
def search(
    images: Folder,
    captions: Annotated[list[str], Argument(metavar="CAPTION...", help="What to look for.", show_default=False)],
    model: Annotated[
        str | None,
        Option(
            help="A run of match train, a folder with a CLIP model, hf:NAME. [default: the newest such run in runs/; "
            "where there is none, and for the pack emoji, one trained on emoji]",
            autocompletion=runs,
        ),
    ] = None,
    top: Annotated[int, Option(min=1, help="Images to show for each caption.")] = 10,
    target: Annotated[
        str | None,
        Option(help="The wanted image, by file or caption: tells its rank for each caption, and what each word did."),
    ] = None,
    png: Annotated[
        Path | None, Option(help="Draw a contact sheet to this file, of 200 images at most.", callback=ends(".png"))
    ] = None,
    html: Annotated[
        Path | None, Option(help="Write a contact sheet as one page to this file.", callback=ends(".html", ".htm"))
    ] = None,
    strict: Strict = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the IMAGES that fit each CAPTION best."""
    from headstart.images.read import bad_notes
    from headstart.jobs.default_matcher import default_matcher
    from headstart.use.search import ImageFolder, ImageSearch, check_captions

    if png and len(captions) * top > MOST_DRAWN:
        raise UserError(f"--png draws at most {MOST_DRAWN} images: give a smaller --top, or write a page with --html.")
    bar = Bar(quiet)
    check_captions(captions)
    folder = ImageFolder.open(images, bar)
    wanted = folder.file(target) if target else ""
    name = model or default_matcher(folder.path, bar)
    found = ImageSearch.within(folder, name, strict, bar)
    if not quiet:
        show_notes(bad_notes(found.bad))
    edits = found.edits(wanted, captions) if wanted else None
    sheets = found.find(captions, top, bool(png or html), wanted)
    if png or html:
        from headstart.runs.disk import write_file
        from headstart.show.page import page
        from headstart.show.view import Inspection, View, picture

        views: list[View] = [*([edits] if edits else []), *sheets]
        if png:
            write_file(png, picture(views).png())
        if html:
            seen = [Inspection(name, sheet.caption, (sheet,)) for sheet in sheets]
            first = [Inspection(name, edits.summary, (edits,))] if edits else []
            write_file(html, page([*first, *seen]).encode())
    if as_json and edits:
        told = edits.data()
        for record, sheet in zip(told["captions"], sheets, strict=True):
            record["found"] = sheet.data()["found"]
        show_json(told)
    elif as_json:
        show_json([{"caption": s.caption, **each.data()} for s in sheets for each in s.found])
    else:
        show("\n\n".join(map(str, [*([edits] if edits else []), *sheets])))
        for file in filter(None, (png, html)):
            show(f"contact sheet: {file}")


@match.command("train")
@guarded
def train(
    pairs: Annotated[
        str | None,
        Argument(
            metavar="PAIRS", help="A .csv, .tsv or .jsonl of file and caption; or a folder with pairs.csv, a pack."
        ),
    ] = None,
    images: Images = None,
    out: Out = "runs/matcher",
    text: Annotated[
        str | None,
        Option(help="Base of the text tower: a run, minilm, a folder, hf:NAME. [default: minilm]", autocompletion=runs),
    ] = None,
    image: Annotated[
        str | None,
        Option(
            help="Image tower: efficientnet-lite0, mobilenet-v2; or transformer, from nothing. [default: efficientnet-lite0]"
        ),
    ] = None,
    scope: Annotated[
        str | None, Option("--train", help="head: the projections alone; full: the towers too. [default: head]")
    ] = None,
    pool: Annotated[
        str | None, Option(help="Of the text tower: last, cls or mean. [default: what suits the base]")
    ] = None,
    epochs: Annotated[int | None, Option(help="Times through the training images. [default: 10]")] = None,
    batch_size: Annotated[int | None, Option(help="Images told apart at once. [default: 256]")] = None,
    lr: Annotated[float | None, Option(help="Peak learning rate. [default: 0.0001]")] = None,
    file_column: FileColumn = None,
    caption_column: CaptionColumn = None,
    group_column: Annotated[
        str | None,
        Option(
            "--group-column", help="Images of one group stay together in the split. [default: group, if there is one]"
        ),
    ] = None,
    strict: Strict = False,
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
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a text tower and an image tower to agree on which captions and images belong together."""
    from headstart.cli.settings import placed_base
    from headstart.config import MatchConfig

    given: dict[str, Any] = {
        "text": placed_base(text) if text else None,
        "image": placed_base(image) if image else None,
        "scope": scope,
        "pool": pool,
        "epochs": epochs,
        "data.pairs": placed(pairs) if pairs else None,
        "data.images": placed(images) if images else None,
        "data.file_column": file_column,
        "data.caption_column": caption_column,
        "data.group_column": group_column,
        "data.strict": strict or None,
    }
    given |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    given |= training_settings(batch_size, lr, seed, device, threads)
    config = job_config(MatchConfig, given, settings, file, out, resume, {"data.pairs": "PAIRS: a table of captions"})
    from headstart.jobs.match import match as job

    result = job(config, out, resume, Bar(quiet))
    if as_json:
        show_json(result)
        return
    show(
        f"{result['run']}: {Path(result['text']).name} and {Path(result['image']).name}, {result['trained_parameters']:,} of "
        f"{result['parameters']:,} parameters trained, {counted(result['steps'], 'step')}, {duration(result['seconds'])}"
    )
    for part, name in (("valid", "validation"), ("test", "test")):
        if result[part]:
            show()
            _show_recalls(name, result[part])


@match.command("compare")
@guarded
def compare(
    pairs: Annotated[
        str, Argument(metavar="PAIRS", help="A table of captions, a folder or a pack.", show_default=False)
    ],
    images: Images = None,
    out: Annotated[str, Option(help="The folder of the study.")] = "studies/towers",
    text: Annotated[
        list[str] | None,
        Option(help="Text tower; may be given several times. [default: minilm]", autocompletion=runs),
    ] = None,
    image: Annotated[
        list[str] | None, Option(help="Image tower; may be given several times. [default: efficientnet-lite0]")
    ] = None,
    scope: Annotated[
        str | None, Option("--train", help="What learns, with a comma between: head, full. [default: head,full]")
    ] = None,
    splits: Annotated[int | None, Option(help="Runs of each, every one on other images. [default: 3]")] = None,
    epochs: Annotated[int | None, Option(help="Times through the training images. [default: 10]")] = None,
    batch_size: Annotated[int | None, Option(help="Images told apart at once. [default: 256]")] = None,
    lr: Annotated[float | None, Option(help="Peak learning rate. [default: 0.0001]")] = None,
    device: Device = None,
    threads: Threads = None,
    settings: Set = None,
    jobs: Jobs = 1,
    dry_run: DryStudy = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare frozen and tuned towers, or towers with each other, on the same splits of the images."""
    from headstart.cli.settings import placed_base
    from headstart.study.match import MATCHERS

    each = {"epochs": epochs, "data.images": placed(images) if images else None}
    each |= training_settings(batch_size, lr, None, device, threads)
    given: dict[str, Any] = {
        "data": placed(pairs),
        "text": [placed_base(name) for name in text] if text else None,
        "image": [placed_base(name) for name in image] if image else None,
        "scope": scope.split(",") if scope else None,
        "splits": splits,
        "settings": nested_settings(each, settings) or None,
    }
    grid_study(MATCHERS, given, out, jobs, dry_run, as_json, quiet)


@match.command("evaluate")
@guarded
def evaluate(
    run: RunArgument,
    pairs: Annotated[str, Argument(metavar="PAIRS", help="A table of captions, or a pack.", show_default=False)],
    images: Images = None,
    file_column: FileColumn = None,
    caption_column: CaptionColumn = None,
    strict: Strict = False,
    encoding: Encoding = None,
    on_bad_bytes: BadBytes = None,
    strip_nul: StripNul = False,
    max_line_bytes: LongestLine = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score the matcher in RUN on PAIRS: recall both ways, with intervals, beside what guessing would score."""
    from headstart.config import CaptionsConfig
    from headstart.images.captions import blank_notes
    from headstart.images.read import bad_notes
    from headstart.schema import parse
    from headstart.use.match import evaluate as scores_on

    settings: dict[str, Any] = {
        "data.pairs": placed(pairs),
        "data.images": placed(images) if images else None,
        "data.file_column": file_column,
        "data.caption_column": caption_column,
        "data.strict": strict or None,
    }
    settings |= reading_settings(encoding, on_bad_bytes, strip_nul, max_line_bytes)
    data = parse(CaptionsConfig, nested_settings(settings, None)["data"])
    scores = scores_on(run, data, Bar(quiet))
    if not quiet:
        show_notes([*bad_notes(scores["bad_images"]), *blank_notes(scores["blank_rows"])])
    if as_json:
        show_json(scores)
    else:
        _show_recalls("", scores)
        _show_trained_on(scores["trained_on"], scores["images"])


@match.command("classify")
@guarded
def classify(
    run: RunArgument,
    images: Folder,
    labels: Annotated[str, Option(help="Names of the labels, with commas. [default: names of the sub-folders]")] = "",
    template: Annotated[
        list[str] | None,
        Option(help="A caption with {} for the label; several are averaged. [default: a photo of a {}, and two more]"),
    ] = None,
    strict: Strict = False,
    no_verify: NoVerify = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Label IMAGES with the matcher in RUN, by the names of the labels alone."""
    from headstart.cli.terminal import accuracy_line
    from headstart.images.read import bad_notes
    from headstart.use.match import TEMPLATES
    from headstart.use.match import classify as labelled

    names = [name.strip() for name in labels.split(",") if name.strip()]
    result = labelled(run, images, names, template or TEMPLATES, strict, Bar(quiet))
    if not quiet:
        show_notes(bad_notes(result["bad_images"]))
    if as_json:
        show_json(result)
        return
    for each in result["images"]:
        show(f"{each['label']}\t{each['probabilities'][each['label']]:.2f}\t{each['file']}")
    if result["scores"]:
        show(accuracy_line("accuracy", result["scores"]))
        _show_trained_on(result["trained_on"], len(result["images"]))


def _show_recalls(part: str, scores: Mapping[str, Any]) -> None:
    title = (
        f"{part + ', ' if part else ''}{counted(scores['captions'], 'caption')}, {counted(scores['images'], 'image')}"
    )
    ways = {"text_to_image": "caption to image", "image_to_text": "image to caption"}
    rows = [
        [name, k, f"{score['value']:.4f}", "{:.4f} to {:.4f}".format(*score["interval"]), f"{chance[k]:.4f}"]
        for way, name in ways.items()
        for chance in [scores["chance"][way]]
        for k, score in scores[way].items()
        if chance[k] < 1
    ]
    show_table([title, "", "", "95 % interval", "chance"], rows, right=(2, 4))
    _show_too_few(scores["chance"]["text_to_image"])


def _show_too_few(chance: dict[str, float]) -> None:
    """Recall that guessing reaches says nothing of a model."""
    sure = [k for k, by_chance in chance.items() if by_chance == 1]
    if sure:
        show(f"! Too few images to judge by: {' and '.join(sure)} would be 1 by guessing.")


def _show_trained_on(part: dict[str, int], images: int) -> None:
    if any(part.values()):
        show(
            f"! {part['train']:,} of these {counted(images, 'image')} were trained on, and {part['valid']:,} more chose the "
            "best step: new images would be harder."
        )
