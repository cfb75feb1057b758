"""The verb that looks inside a finished model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.cli.app import app, reading_of, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_notes, write_drawings
from headstart.errors import UserError

if TYPE_CHECKING:
    from headstart.show.view import Inspection


@verb(app, "inspect")
def inspect(given: Given) -> None:
    """Look inside the model in RUN. Shows what it made of each TEXT."""
    from headstart.show.page import page
    from headstart.show.view import picture
    from headstart.use.inspect import inspect_translation, is_translator

    run, texts, data = given["RUN"], given["TEXT..."] or [], given["--data"]
    if not (texts or data):
        raise UserError(f"Nothing to look at: '{run}' is taken for the run. Give the run first, then texts or --data.")
    if (given["--png"] or given["--svg"]) and len(texts) > 1:
        raise UserError("--png and --svg draw one text. Give one, or write all of them to a page with --html.")
    if not is_translator(run):
        seen = _seen(run, texts, given)
    elif data or given["--before"]:
        raise UserError("--data and --before are for language models and classifiers; RUN is a translator.")
    else:
        seen = [inspect_translation(run, text, given["--layer"], given["--head"]) for text in texts]
    drawn = [found for inspection in seen for found in inspection.views]
    write_drawings(given.values, lambda: page(seen), lambda: picture(drawn))
    if given["--json"]:
        show_json([inspection.data() for inspection in seen])
        return
    for i, inspection in enumerate(seen):
        show(("\n" if i else "") + str(inspection))


def _seen(run: str, texts: list[str], given: Given) -> list[Inspection]:
    from headstart.hub.packs import located
    from headstart.models.decode import Sampling
    from headstart.text.read import read_labelled
    from headstart.use.inspect import Inspector, first_of_each_label

    inspector, data, rows, temperature = Inspector.load(run), given["--data"], given["--rows"], given["--temperature"]
    how = Sampling(temperature if given["--sample"] else 0.0, seed=given["--seed"])
    what = tuple(given["--show"] or ()), given["--top"], temperature, given["--tokens"], how
    where = given["--layer"], given["--head"], given["--label"]
    seen = [inspector.inspect(text, *what, *where) for text in texts]
    probed = texts
    if data:
        reading = reading_of(given)
        columns, blank = (given["--text-column"], given["--label-column"]), inspector.target.may_be_blank
        labelled = read_labelled(located(data), *columns, reading, keep_blank=blank)
        show_notes(reading.notes())
        seen.append(inspector.inspect_rows(labelled, data, most=rows, watch=Bar(given["--json"])))
        probed = [*texts, *(example.text for example in first_of_each_label(labelled, rows))]
    if given["--before"]:
        seen.append(inspector.inspect_change(Inspector.load(given["--before"]), probed))
    return seen
