"""The verb that looks inside a finished model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from headstart.cli.app import RunArgument, app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_notes
from headstart.cli.usage import ends

if TYPE_CHECKING:
    from headstart.show.view import Inspection


@verb(app, "inspect")
def inspect(
    run: RunArgument,
    given: Given,
    texts: Annotated[
        list[str] | None, Argument(metavar="TEXT...", help="Texts to look at.", show_default=False)
    ] = None,
    data: Annotated[
        str | None, Option(help="Labelled rows: adds the evidence for each label, and what each layer knows.")
    ] = None,
    rows: Annotated[int, Option(min=1, help="Maximum rows of a label to take from --data.")] = 50,
    before: Annotated[
        str | None, Option(help="The run that RUN was tuned from: adds what changed, on --data or the texts.")
    ] = None,
    view: Annotated[
        list[str] | None,
        Option("--show", help="Only this, once or more: probabilities, lens, labels, attribution, attention."),
    ] = None,
    top: Annotated[int, Option(min=1, help="Most probable tokens to show at each place.")] = 6,
    temperature: Annotated[float, Option(help="Probabilities at this temperature.")] = 1.0,
    tokens: Annotated[int, Option(min=0, help="Generate this many tokens first.")] = 0,
    sample: Annotated[
        bool, Option("--sample", help="Sample the generated tokens at --temperature; else the most probable.")
    ] = False,
    seed: Annotated[int, Option(min=0, help="Seed of the sampling.")] = 0,
    layer: Annotated[int, Option(min=0, help="Layer whose attention is shown first; 0 = the last.")] = 0,
    head: Annotated[str, Option(help="Head whose attention is shown first: mean, rollout or 1, 2, ...")] = "mean",
    label: Annotated[str | None, Option(help="Label to attribute to the tokens; else the most probable.")] = None,
    html: Annotated[
        Path | None, Option(help="Write an interactive page to this file.", callback=ends(".html", ".htm"))
    ] = None,
    png: Annotated[Path | None, Option(help="Draw to this file.", callback=ends(".png"))] = None,
    svg: Annotated[Path | None, Option(help="Draw to this file.", callback=ends(".svg"))] = None,
) -> None:
    """Look inside the model in RUN. Shows what it made of each TEXT."""
    from headstart.errors import UserError
    from headstart.hub.packs import located
    from headstart.models.decode import Sampling
    from headstart.text.read import read_labelled
    from headstart.use.inspect import Inspector, first_of_each_label, inspect_translation, is_translator

    texts = texts or []
    if not (texts or data):
        raise UserError(f"Nothing to look at: '{run}' is taken for the run. Give the run first, then texts or --data.")
    if (png or svg) and len(texts) > 1:
        raise UserError("--png and --svg draw one text. Give one, or write all of them to a page with --html.")
    if is_translator(run):
        if data or before:
            raise UserError("--data and --before are for language models and classifiers; RUN is a translator.")
        seen = [inspect_translation(run, text, layer, head) for text in texts]
    else:
        inspector = Inspector.load(run)
        how = Sampling(temperature if sample else 0.0, seed=seed)
        views = tuple(view or ())
        seen = [inspector.inspect(text, views, top, temperature, tokens, how, layer, head, label) for text in texts]
        if data:
            reading = reading_of(given)
            labelled = read_labelled(located(data), given["--text-column"], given["--label-column"], reading)
            show_notes(reading.notes())
            seen.append(inspector.inspect_rows(labelled, data, most=rows, watch=Bar(given["--json"])))
        if before:
            probed = [*texts, *(example.text for example in first_of_each_label(labelled, rows))] if data else texts
            seen.append(inspector.inspect_change(Inspector.load(before), probed))
    _write(seen, html, png, svg)
    if given["--json"]:
        show_json([inspection.data() for inspection in seen])
        return
    for i, inspection in enumerate(seen):
        show(("\n" if i else "") + str(inspection))


def _write(seen: list[Inspection], html: Path | None, png: Path | None, svg: Path | None) -> None:
    from headstart.runs.disk import write_file
    from headstart.show.page import page
    from headstart.show.view import picture

    drawn = [found for inspection in seen for found in inspection.views]
    if html:
        write_file(html, page(seen).encode())
    if png:
        write_file(png, picture(drawn).png())
    if svg:
        write_file(svg, picture(drawn).svg().encode())
