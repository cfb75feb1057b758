"""The verb that ranks bases and routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.app import app, verb
from headstart.cli.flags import Given
from headstart.cli.settings import nested_settings
from headstart.cli.study import run_study
from headstart.cli.terminal import Bar, show, show_json, show_notes, show_table
from headstart.errors import UserError
from headstart.quantities import data_size, duration, signed

if TYPE_CHECKING:
    from headstart.study.which import Ranking


@verb(app, "which")
def which(given: Given) -> None:
    """Rank bases and cheap routes on DATA in minutes. By cross-validation on the training rows; names what is worth a study."""
    from headstart.data import LabelledConfig
    from headstart.schema import parse
    from headstart.study.which import get_missing_packs, rank

    if given["DATA"] is None:
        raise UserError("Missing DATA: labelled rows to rank on.")
    if given["--then"] not in (None, "compare"):
        raise UserError(f"--then takes compare, not '{given['--then']}'.")
    settings: dict[str, Any] = nested_settings(given.settings(), None)
    data = parse(LabelledConfig, settings["data"])
    quiet = given["--quiet"]
    if given["--packs"]:
        get_missing_packs(Bar(quiet))
    asked = settings.get("prompts", ()), settings.get("label_words", {})
    found = rank(data, settings.get("bases", ()), *asked, given["--minutes"], Bar(quiet))
    if given["--plot"]:
        from headstart.runs.disk import write_file
        from headstart.study.plots import ranking_picture

        write_file(given["--plot"], ranking_picture(found).png())
    if given["--then"] is None:
        show_json({**found.model_dump(mode="json"), "verdict": found.verdict}) if given["--json"] else _show(
            found, quiet
        )
        return
    if not given["--json"]:
        _show(found, quiet)
        show()
    own: dict[str, Any] = {key: settings[key] for key in ("prompts", "label_words") if key in settings}
    run_study(found.study(data, nested_settings({}, given["--set"], own)), Path(given["--out"]), given)


def _show(found: Ranking, quiet: bool) -> None:
    rows = [
        [
            pair.base or "",
            pair.route,
            f"{pair.score:.3f}",
            "{:.3f} to {:.3f}".format(*pair.interval),
            "" if pair is found.best else signed(100 * pair.difference),
            "" if pair is found.best else "yes" if pair.significant else "no",
            duration(pair.seconds),
            data_size(1e6 * pair.megabytes) if pair.base else "",
        ]
        for pair in found.pairs
    ]
    header = ["base", "route", found.score_name, "95 % interval", "points to best", "significant", "time", "weights"]
    show_table(header, rows, right=(2, 4, 6, 7))
    show()
    show(found.verdict)
    show_notes([*found.notes, *(f"skipped {why}" for why in found.skipped)], quiet)
