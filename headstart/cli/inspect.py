"""The verb that looks inside a finished model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from headstart.cli.app import Debug, Json, RunArgument, app
from headstart.cli.terminal import guarded, show, show_json


@app.command()
@guarded
def inspect(
    run: RunArgument,
    texts: Annotated[list[str], Argument(metavar="TEXT...", help="Texts to look at.", show_default=False)],
    view: Annotated[
        list[str] | None,
        Option("--show", help="Only this, may be given several times: probabilities, attention, labels."),
    ] = None,
    top: Annotated[int, Option(min=1, help="Most probable tokens to show at each place.")] = 6,
    temperature: Annotated[float, Option(help="Probabilities at this temperature.")] = 1.0,
    tokens: Annotated[int, Option(min=0, help="Let the model add this many tokens first.")] = 0,
    sample: Annotated[
        bool, Option("--sample", help="Draw the added tokens at --temperature; else the most probable.")
    ] = False,
    seed: Annotated[int, Option(min=0, help="Of the drawing.")] = 0,
    layer: Annotated[int, Option(min=0, help="Layer whose attention is shown first; 0 = the last.")] = 0,
    head: Annotated[str, Option(help="Head whose attention is shown first: mean, rollout or 1, 2, ...")] = "mean",
    html: Annotated[Path | None, Option(help="Write an interactive page to this file.")] = None,
    png: Annotated[Path | None, Option(help="Draw to this file.")] = None,
    svg: Annotated[Path | None, Option(help="Draw to this file.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Look inside the model in RUN. Shows what it made of each TEXT."""
    from headstart.errors import UserError
    from headstart.models.decode import Sampling
    from headstart.train.disk import write_file
    from headstart.use.inspect import Inspector

    if (png or svg) and len(texts) > 1:
        raise UserError("--png and --svg draw one text. Give one, or write all of them to a page with --html.")
    inspector = Inspector.load(run)
    how = Sampling(temperature if sample else 0.0, seed=seed)
    seen = [inspector.inspect(text, tuple(view or ()), top, temperature, tokens, how, layer, head) for text in texts]
    if html:
        from headstart.show.page import page

        write_file(html, page(seen).encode())
    if png:
        write_file(png, seen[0].picture().png())
    if svg:
        write_file(svg, seen[0].picture().svg().encode())
    if as_json:
        show_json([inspection.data() for inspection in seen])
        return
    for i, inspection in enumerate(seen):
        show(("\n" if i else "") + str(inspection))
