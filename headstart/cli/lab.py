"""The verbs about labs: list them, run one, put the figures of several into one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.cli.app import group, verb
from headstart.cli.flags import Given
from headstart.cli.terminal import Bar, show, show_json, show_table
from headstart.cli.usage import Verbs


class Labs(Verbs):
    """Whatever is no verb of its own is the name of a lab to run: `lab pig-latin` is `lab run pig-latin`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        named = args[0] not in self.commands and not args[0].startswith("-")
        return super().resolve_command(ctx, ["run", *args] if named else args)


HELP = """Whole experiments, one command each, and assignments.

headstart lab NAME [--quick] [--data DIR] [--sheet] runs one; `lab list` has the names, `lab run --help` the flags."""
lab = group("lab", HELP, cls=Labs)


@verb(lab, "lab list")
def list_labs(given: Given) -> None:
    """List the labs that come with Headstart."""
    from headstart.labs.lab import lab_files, open_lab

    found = {name: open_lab(name)[1] for name in lab_files()}
    if given["--json"]:
        about = {"title", "question", "minutes", "rows", "data"}
        show_json(
            [
                {"name": name, **known.model_dump(mode="json", include=about), "tasks": len(known.task)}
                for name, known in found.items()
            ]
        )
        return
    rows = [
        [
            name,
            "" if known.minutes is None else f"{known.minutes} min",
            ", ".join(dict.fromkeys(f.split("/")[0] for n in known.data for f in n.files)),
            str(len(known.task) or ""),
            known.title,
        ]
        for name, known in found.items()
    ]
    show_table(["name", "on 2 cores", "from --data DIR", "tasks", "what"], rows, right=(1, 3))
    show("\nheadstart lab NAME --quick needs no files of yours and takes a few minutes.")
    show("One with tasks is an assignment: headstart lab start NAME.")


@verb(lab, "lab run")
def run(given: Given) -> None:
    """Run a lab and write its page. `headstart lab NAME` is the same."""
    from headstart.labs.lab import open_lab
    from headstart.labs.page import write_page
    from headstart.labs.results import gather, other_data, shown, spread
    from headstart.labs.run import run_steps

    name, data, quick, sheet = given["name"], given["--data"], given["--quick"], given["--sheet"]
    stem, wanted = open_lab(name)
    folder = (given["--out"] or Path("runs/labs") / f"{stem}{'-quick' if quick else ''}").absolute()
    run_steps(name, wanted, folder, data.absolute() if data else None, quick, Bar(given["--quiet"]))
    results = gather(name, wanted, folder)
    page = write_page(results, folder, sheet)
    if given["--json"]:
        show_json({**results, "page": str(page)})
        return
    rows = [
        [f["row"], f["what"], shown(f["reference"]), shown(f["ours"]), spread(f), shown(f["seeds"]), f["comparison"]]
        for f in results["figures"]
    ]
    show_table(["", "what", "reference", "ours", "interval or ± sd", "seeds", ""], rows, right=(5,))
    show()
    for sentence in results["verdict"]:
        show(sentence)
    if said := other_data(results):
        show(f"{said} Do not compare it with the reference.")
    for stand_in in results["stands_in"]:
        show(f"- {stand_in}")
    show(f"{'the sheet' if sheet else 'the whole page'}: {page}")


@verb(lab, "lab table")
def table(given: Given) -> None:
    """Put the figures of several labs into one page of Markdown."""
    from headstart.labs.folder import read_results
    from headstart.labs.results import markdown

    labs = [read_results(folder) for folder in given["DIR..."]]
    if given["--json"]:
        show_json(
            [{"lab": found["lab"], "quick": found["quick"], **figure} for found in labs for figure in found["figures"]]
        )
        return
    show(markdown(labs).removesuffix("\n"))
